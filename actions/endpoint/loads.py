"""Compute the requests of one point: due times, and lengths of prompts and answers."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from actions.endpoint.traces import BLOCK_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actions.endpoint.traces import TracedRequest

_FIRST_TOKEN, _VOCABULARY = 1000, 30000
"""Range of token ids that common models share; lower ids are usually control tokens."""
_OWN_TOKENS = 8
"""Number of tokens at the start of a prompt that differ from every other prompt of the run."""
_POOL = 1 << 16


@dataclass(frozen=True)
class Lengths:
    """Lengths of a request, in tokens; ``blocks`` as in ``TracedRequest``."""

    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True)
class PointLoad:
    """The load of one point.

    Args:
        lengths: the lengths of each request.
        arrivals_s: due time of each request, in seconds; empty for a concurrency.
    """

    lengths: Sequence[Lengths]
    arrivals_s: Sequence[float] = field(default=())


def poisson_arrivals(rate: float, count: int, seed: str) -> list[float]:
    """Return the times of a Poisson process with this rate, given its number of requests.

    Given the number, the times are independent and uniform (Kingman, Poisson Processes, 1993, section 2.4),
    and the mean rate is exact: two runs differ only by their bursts.
    """
    chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
    span_s = count / rate
    return sorted(round(chance.random() * span_s, 6) for _ in range(count))


def traced_arrivals(trace: Sequence[TracedRequest], rate: float | None, count: int) -> list[float]:
    """Return the trace's arrival times, stretched to a mean rate; unchanged if the rate is None.

    A trace that is too short is repeated.
    """
    span_s = trace_span_s(trace)
    stretch = 1.0 if rate is None else len(trace) / span_s / rate
    rounds = math.ceil(count / len(trace))
    moments = (turn * span_s + request.offset_s for turn in range(rounds) for request in trace)
    return [round(moment_s * stretch, 6) for moment_s, _ in zip(moments, range(count), strict=False)]


def trace_span_s(trace: Sequence[TracedRequest]) -> float:
    """Return the duration of a trace in seconds, plus one mean pause after its last request."""
    last_s = trace[-1].offset_s
    return last_s * len(trace) / (len(trace) - 1) if len(trace) > 1 and last_s > 0 else 1.0


class Prompts:
    """Make prompts of exact lengths; no two begin alike, unless a trace says so.

    Args:
        seed: the same seed gives the same prompts.
        words: words to make texts from; empty for token ids.
    """

    def __init__(self, seed: str, words: Sequence[str] = ()) -> None:
        self._seed = seed
        self._words = words
        self._chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._pool = self._drawn(self._chance, _POOL)

    def _drawn(self, chance: random.Random, count: int) -> list[int]:
        return chance.choices(range(_FIRST_TOKEN, _VOCABULARY), k=count)

    def token_ids(self, lengths: Lengths) -> list[int]:
        """Return the token ids of one prompt; for texts, the indices of its words."""
        wanted = lengths.input_tokens
        if lengths.blocks:
            shared = [
                token
                for block in lengths.blocks
                for token in self._drawn(random.Random(f"block {block}"), BLOCK_TOKENS)  # noqa: S311 - likewise
            ][:wanted]
        else:
            shared = self._drawn(self._chance, min(_OWN_TOKENS, wanted))
        rest, begin = wanted - len(shared), self._chance.randrange(_POOL)
        tail = (self._pool[begin:] + self._pool * (rest // _POOL + 1))[:rest]
        return shared + tail

    def text(self, lengths: Lengths) -> str:
        """Return a prompt as text, with about one token per word."""
        words = self._words
        return " ".join(words[token % len(words)] for token in self.token_ids(lengths))
