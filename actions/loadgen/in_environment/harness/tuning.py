"""The highest load that holds: which rate to try next, and what a short trial says of a long test."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST_STEP = 1.15
"""A start that is known from elsewhere is near."""
_STEP = 2.0
_SIGNIFICANT = 4
_LEAST_SAMPLES = 30


@dataclass(frozen=True)
class Tuning:
    """How the rate is looked for.

    Args:
        start_qps: the first rate to try, in queries/s; None for a share of what the warm-up reaches.
        trial_s: seconds that a trial lasts at least.
        trial_queries: queries of a trial, at least: LoadGen's early stopping needs 459 if all are in time.
        precision: how far the highest valid and the lowest invalid rate may be apart, as a share.
        most_trials: trials at most.
        final_attempts: full-length tests at most: one that is invalid is repeated at a lower rate.
    """

    start_qps: float | None = None
    trial_s: float = 30.0
    trial_queries: int = 700
    precision: float = 0.02
    most_trials: int = 12
    final_attempts: int = 3

    def __post_init__(self) -> None:
        """Refuse what could not end."""
        for name in ("trial_s", "trial_queries", "most_trials", "final_attempts"):
            if getattr(self, name) <= 0:
                raise ValueError(f"tuning: {name} is {getattr(self, name)}; it must be above 0")
        if self.start_qps is not None and self.start_qps <= 0:
            raise ValueError(f"tuning: start_qps is {self.start_qps}; it must be above 0")
        if not 0 < self.precision < 1:
            raise ValueError(f"tuning: precision is {self.precision}; it must be between 0 and 1")


@dataclass(frozen=True)
class Trial:
    """One test of the search.

    Args:
        target_qps: the rate, in queries/s.
        is_valid: what LoadGen said of it.
        holds: whether a test of full length would be valid too.
        why: why not, in words; empty where it holds.
        folder: where its logs are, relative to the test's folder.
        is_final: whether it had the full length.
    """

    target_qps: float
    is_valid: bool
    holds: bool
    why: str
    folder: str
    is_final: bool = False


@dataclass
class Search:
    """Brackets the highest rate that holds, then halves the bracket in logarithms.

    Args:
        start: the first rate, in queries/s.
        tuning: when to end.
        highest_good: the highest rate that holds so far, in queries/s; None where none was found.
        lowest_bad: the lowest that does not.
        tried: every rate, in order.
    """

    start: float
    tuning: Tuning
    highest_good: float | None = None
    lowest_bad: float | None = None
    tried: list[float] = field(default_factory=list)

    def next_rate(self) -> float | None:
        """The rate to try next; None when the answer is known well enough or trials are used up."""
        good, bad = self.highest_good, self.lowest_bad
        if len(self.tried) >= self.tuning.most_trials:
            return None
        step = _FIRST_STEP if len(self.tried) == 1 else _STEP
        if good is not None and bad is not None:
            if bad / good <= 1 + self.tuning.precision:
                return None
            rate = math.sqrt(good * bad)
        elif good is not None:
            rate = good * step
        else:
            rate = self.start if bad is None else bad / step
        return float(f"{rate:.4g}")

    def tell(self, rate: float, *, holds: bool) -> None:
        """Take the outcome of a trial."""
        self.tried.append(rate)
        if holds:
            self.highest_good = max(rate, self.highest_good or rate)
        else:
            self.lowest_bad = min(rate, self.lowest_bad or rate)

    def __str__(self) -> str:
        """What is known: ``valid at 48, not at 52: 8.3% apart``."""
        good, bad = self.highest_good, self.lowest_bad
        if good is None:
            return "nothing tried" if bad is None else f"not valid at {bad:g}"
        if bad is None:
            return f"valid at {good:g}, no limit found"
        return f"valid at {good:g}, not at {bad:g}: {bad / good - 1:.1%} apart"


def drift(issued_s: Sequence[float], waited_s: Sequence[float]) -> float:
    """How fast the wait grows while the load goes on, in seconds a second.

    Above its capacity a system falls behind steadily: a short trial may be valid where a long test will not
    be. The median of the last third is compared with that of the first; growth within the scatter is none.

    Args:
        issued_s: when each sample was issued, in seconds, in that order.
        waited_s: how long each waited for its first token.
    """
    third = len(issued_s) // 3
    if third < _LEAST_SAMPLES:
        return 0.0
    first, last = waited_s[:third], waited_s[-third:]
    growth = median(last) - median(first)
    scatter = median(abs(value - median(first)) for value in first) / math.sqrt(third)
    between_s = median(issued_s[-third:]) - median(issued_s[:third])
    return growth / between_s if growth > _SIGNIFICANT * scatter and between_s > 0 else 0.0
