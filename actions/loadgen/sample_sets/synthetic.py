"""Make samples of random tokens: exact lengths, no text, the same for the same seed."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING

from actions.loadgen.in_environment.harness.dataset import pack_tokens
from agent.core.safe_files import write_to

if TYPE_CHECKING:
    from pathlib import Path

_SPREAD = 0.47
"""Standard deviation of the lengths on the logarithmic scale: that of articles of CNN-DailyMail, whose
standard deviation is about half their mean."""
_NORMAL = NormalDist()
_TINY = 1e-300


@dataclass(frozen=True)
class SyntheticSamples:
    """Parameters of the samples: lengths are log-normal like those of texts, truncated at the longest.

    Args:
        samples: the number of samples.
        mean_tokens: the mean input length, in tokens.
        max_tokens: the longest input, in tokens; if equal to the mean, all inputs have this length.
        seed: the same seed gives the same samples on every host.
        first_token: the lowest token id to use; lower ids are usually control tokens.
        vocabulary: upper bound of token ids, exclusive; every model's vocabulary must be larger.
    """

    samples: int
    mean_tokens: int
    max_tokens: int
    seed: int
    first_token: int = 1000
    vocabulary: int = 30000

    def __post_init__(self) -> None:
        """Refuse impossible lengths."""
        if self.samples < 1 or self.mean_tokens < 1:
            raise ValueError("synthetic samples need at least one sample of one token")
        if self.max_tokens < self.mean_tokens:
            raise ValueError(
                f"the longest input, {self.max_tokens} tokens, is below the mean, {self.mean_tokens}"
            )
        if not 0 <= self.first_token < self.vocabulary:
            raise ValueError(f"there is no token id from {self.first_token} to below {self.vocabulary}")

    def token_ids(self) -> list[list[int]]:
        """Return the samples."""
        generator = random.Random(self.seed)  # noqa: S311 - reproducible on purpose
        lengths = [self._length(generator) for _ in range(self.samples)]
        return [generator.choices(range(self.first_token, self.vocabulary), k=length) for length in lengths]

    def write(self, path: Path) -> None:
        """Write the samples as JSON lines."""
        with write_to(path) as file:
            for number, ids in enumerate(self.token_ids()):
                row = {"id": f"synthetic-{number:05d}", "token_ids": pack_tokens(ids)}
                file.write(json.dumps(row) + "\n")

    def _length(self, generator: random.Random) -> int:
        if self.max_tokens == self.mean_tokens:
            return self.mean_tokens
        below = _NORMAL.cdf(self._place_of(self.max_tokens, self._location))
        share = max(generator.random() * below, _TINY)
        length = math.exp(self._location + _SPREAD * _NORMAL.inv_cdf(share))
        return min(max(round(length), 1), self.max_tokens)

    @staticmethod
    def _place_of(length: float, location: float) -> float:
        return (math.log(length) - location) / _SPREAD

    @cached_property
    def _location(self) -> float:
        """Return the logarithmic mean at which the truncated distribution has the requested mean."""
        low, high = -1.0, math.log(self.max_tokens) + 8.0
        for _ in range(60):
            middle = (low + high) / 2
            if self._mean(middle) < self.mean_tokens:
                low = middle
            else:
                high = middle
        return low

    def _mean(self, location: float) -> float:
        """Return the mean of a log-normal distribution that is truncated at the longest length."""
        place = self._place_of(self.max_tokens, location)
        below = _NORMAL.cdf(place)
        if below < _TINY:
            return float(self.max_tokens)
        return math.exp(location + _SPREAD**2 / 2) * _NORMAL.cdf(place - _SPREAD) / below
