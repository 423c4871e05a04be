"""The requests of one point: when each is due, and how long its prompt and its answer are."""

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
"""Token ids that every common model has; below are usually control tokens."""
_OWN_TOKENS = 8
"""Tokens at the beginning of a prompt that no other prompt of the run begins with."""
_POOL = 1 << 16


@dataclass(frozen=True)
class Lengths:
    """A request's lengths, in tokens; ``blocks`` as of ``TracedRequest``."""

    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True)
class PointLoad:
    """The load of one point.

    Args:
        lengths: of each request.
        arrivals_s: when each is due, in seconds; empty for a concurrency.
    """

    lengths: Sequence[Lengths]
    arrivals_s: Sequence[float] = field(default=())


def poisson_arrivals(rate: float, count: int, seed: str) -> list[float]:
    """Return the moments of a Poisson process with this rate, given its number of requests.

    Then they are independent and uniform (Kingman, Poisson Processes, 1993, section 2.4), and the mean rate
    is exactly the one asked for: two runs differ by their bursts alone.
    """
    chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
    span_s = count / rate
    return sorted(round(chance.random() * span_s, 6) for _ in range(count))


def traced_arrivals(trace: Sequence[TracedRequest], rate: float | None, count: int) -> list[float]:
    """Return moments as in the trace, stretched so that they come at a mean rate; its own if None.

    A trace with fewer requests is repeated.
    """
    span_s = trace_span_s(trace)
    stretch = 1.0 if rate is None else len(trace) / span_s / rate
    rounds = math.ceil(count / len(trace))
    moments = (turn * span_s + request.offset_s for turn in range(rounds) for request in trace)
    return [round(moment_s * stretch, 6) for moment_s, _ in zip(moments, range(count), strict=False)]


def trace_span_s(trace: Sequence[TracedRequest]) -> float:
    """Return the seconds that a trace lasts, the mean pause behind its last request included."""
    last_s = trace[-1].offset_s
    return last_s * len(trace) / (len(trace) - 1) if len(trace) > 1 and last_s > 0 else 1.0


class Prompts:
    """Makes prompts of exact lengths; no two begin alike, except where a trace says so.

    Args:
        seed: the same seed gives the same prompts.
        words: words to make texts of; empty for token ids.
    """

    def __init__(self, seed: str, words: Sequence[str] = ()) -> None:
        self._seed = seed
        self._words = words
        self._chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._pool = self._drawn(self._chance, _POOL)

    def _drawn(self, chance: random.Random, count: int) -> list[int]:
        return chance.choices(range(_FIRST_TOKEN, _VOCABULARY), k=count)

    def token_ids(self, lengths: Lengths) -> list[int]:
        """Return the token ids of one prompt; for texts, the places of its words."""
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
        """Return a prompt as text: about a token a word."""
        words = self._words
        return " ".join(words[token % len(words)] for token in self.token_ids(lengths))
