"""Samples made of random tokens: exact lengths, no text, the same for the same seed."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SyntheticSamples"]

_SPREAD = 4.0
"""How narrow the lengths lie about their mean: the sum of the beta distribution's two shapes."""


@dataclass(frozen=True)
class SyntheticSamples:
    """What to make.

    Args:
        samples: how many.
        mean_tokens: the mean input length, in tokens.
        max_tokens: the longest input, in tokens; equal to the mean, all inputs are that long.
        seed: the same seed gives the same samples on every host.
        first_token: the lowest token id used; below it are usually control tokens.
        vocabulary: token ids are below this; every model's vocabulary must be larger.
    """

    samples: int
    mean_tokens: int
    max_tokens: int
    seed: int
    first_token: int = 1000
    vocabulary: int = 30000

    def __post_init__(self) -> None:
        """Refuse lengths that cannot be."""
        if self.samples < 1 or self.mean_tokens < 1:
            raise ValueError("synthetic samples need at least one sample of one token")
        if self.max_tokens < self.mean_tokens:
            raise ValueError(
                f"the longest input, {self.max_tokens} tokens, is below the mean, {self.mean_tokens}"
            )
        if not 0 <= self.first_token < self.vocabulary:
            raise ValueError(f"there is no token id from {self.first_token} to below {self.vocabulary}")

    def token_ids(self) -> list[list[int]]:
        """The samples."""
        generator = random.Random(self.seed)  # noqa: S311 - reproducible on purpose
        return [
            [generator.randrange(self.first_token, self.vocabulary) for _ in range(length)]
            for length in (self._length(generator) for _ in range(self.samples))
        ]

    def write(self, path: Path) -> None:
        """Write the samples as JSON lines."""
        with path.open("w", encoding="utf-8") as file:
            for number, ids in enumerate(self.token_ids()):
                file.write(json.dumps({"id": f"synthetic-{number:05d}", "token_ids": ids}) + "\n")

    def _length(self, generator: random.Random) -> int:
        if self.max_tokens == self.mean_tokens:
            return self.mean_tokens
        place = (self.mean_tokens - 1) / (self.max_tokens - 1)
        if place == 0:
            return 1
        share = generator.betavariate(_SPREAD * place, _SPREAD * (1 - place))
        return 1 + round(share * (self.max_tokens - 1))
