"""Choose the next rate in the search for the highest load, and extrapolate short trials to a long test."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST_STEP = 1.15
"""First factor between rates; small because a start that is known from elsewhere is close."""
_STEP = 2.0
_SIGNIFICANT = 4
_LEAST_SAMPLES = 30


@dataclass(frozen=True)
class Tuning:
    """Parameters of the search for a rate.

    Args:
        start_qps: the first rate to try, in queries/s; None for a share of the warm-up's rate.
        trial_s: minimum duration of a trial, in seconds.
        trial_queries: minimum queries of a trial: LoadGen's early stopping needs 459 if all are in time.
        precision: largest distance between the highest valid and the lowest invalid rate, as a share.
        most_trials: maximum number of trials.
        final_attempts: maximum number of full-length tests: an invalid one is repeated at a lower rate.
    """

    start_qps: float | None = None
    trial_s: float = 30.0
    trial_queries: int = 700
    precision: float = 0.02
    most_trials: int = 12
    final_attempts: int = 3

    def __post_init__(self) -> None:
        """Refuse values with which the search could not end."""
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
        is_valid: LoadGen's verdict.
        holds: True if a full-length test would be valid too.
        why: reason why it would not; empty if it holds.
        folder: folder of its logs, relative to the test's folder.
        is_final: True if it had the full length.
    """

    target_qps: float
    is_valid: bool
    holds: bool
    why: str
    folder: str
    is_final: bool = False


@dataclass
class Search:
    """Brackets the highest rate that holds, then halves the bracket on a logarithmic scale.

    Args:
        start: the first rate, in queries/s.
        tuning: the parameters.
        highest_good: the highest rate that held so far, in queries/s; None if there is none.
        lowest_bad: the lowest rate that did not hold; None if there is none.
        tried: every rate, in order.
    """

    start: float
    tuning: Tuning
    highest_good: float | None = None
    lowest_bad: float | None = None
    tried: list[float] = field(default_factory=list)

    def next_rate(self) -> float | None:
        """Return the rate to try next; None if the bracket is small enough or the trials are used up."""
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
        """Record the outcome of a trial."""
        self.tried.append(rate)
        if holds:
            self.highest_good = max(rate, self.highest_good or rate)
        else:
            self.lowest_bad = min(rate, self.lowest_bad or rate)

    def __str__(self) -> str:
        """Return the state, such as ``valid at 48, not at 52: 8.3% apart``."""
        good, bad = self.highest_good, self.lowest_bad
        if good is None:
            return "nothing tried" if bad is None else f"not valid at {bad:g}"
        if bad is None:
            return f"valid at {good:g}, no limit found"
        return f"valid at {good:g}, not at {bad:g}: {bad / good - 1:.1%} apart"


def drift(issued_s: Sequence[float], waited_s: Sequence[float]) -> float:
    """Return how fast the wait grows during the load, in seconds per second.

    Above its capacity a system falls behind steadily: a short trial may be valid although a long test will
    not be. The median of the last third is compared with that of the first; growth within the scatter counts
    as 0.

    Args:
        issued_s: issue time of each sample, in seconds, in ascending order.
        waited_s: each sample's wait for its first token, in seconds.
    """
    third = len(issued_s) // 3
    if third < _LEAST_SAMPLES:
        return 0.0
    first, last = waited_s[:third], waited_s[-third:]
    growth = median(last) - median(first)
    scatter = median(abs(value - median(first)) for value in first) / math.sqrt(third)
    between_s = median(issued_s[-third:]) - median(issued_s[:third])
    return growth / between_s if growth > _SIGNIFICANT * scatter and between_s > 0 else 0.0
