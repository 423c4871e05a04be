"""Search for the highest rate within the limits: by bisection, confirmed by further runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.endpoint.point import Asked, Measured
from actions.loadgen.in_environment.harness.tuning import Search, Tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actions.endpoint.point import Run

_FIRST_SHARE = 0.7
"""First rate of the search, as a share of the highest throughput that a concurrency reached."""
_FIRST_RATE = 1.0
_HARDLY_MEET = 0.1
"""Share of the rate of sequential requests below which requests hardly ever overlap."""
_STEP_DOWN = 0.97
_MOST_FALLS = 3
"""Maximum number of lower rates to try after a rate that held once failed its confirmation."""


class RateSearch:
    """One search for the highest rate.

    Args:
        known: points measured already: their rates bracket the search, their throughput sets its first rate.
        precision: largest distance between the highest good and the lowest bad rate, as a share.
        most_trials: maximum number of rates to try.
        confirmations: further runs at the rate found.
        run: runs a rate once; takes the point and the number of the run, from 1.

    Attributes:
        tried: all rates that were tried, with their runs.
        found: the rate that held in all of its runs; None if there is none.
        lowest_bad: the lowest rate that did not hold, in requests/s; None if there is none.
    """

    def __init__(
        self,
        known: Sequence[Measured],
        *,
        precision: float,
        most_trials: int,
        confirmations: int,
        run: Callable[[Asked, int], Run],
    ) -> None:
        self._known = known
        self._precision = precision
        self._most_trials = most_trials
        self._confirmations = confirmations
        self._run = run
        self.tried: dict[float, Measured] = {}
        self.found: Measured | None = None
        self.lowest_bad: float | None = None

    def execute(self) -> None:
        """Run the search."""
        rates = [point for point in self._known if point.asked.rate is not None]
        tuning = Tuning(precision=self._precision, most_trials=self._most_trials + len(rates))
        search = Search(_start(self._known), tuning)
        for point in rates:
            assert point.asked.rate is not None  # noqa: S101 - as chosen
            search.tell(point.asked.rate, holds=_holds(point.runs))
        _drop_contradictions(search)
        least = _least(self._known)
        while (rate := search.next_rate()) is not None and rate >= least:
            search.tell(rate, holds=_holds(self._try(rate, 1).runs))
        self.lowest_bad = search.lowest_bad
        if search.highest_good is not None:
            self._confirm(search.highest_good)

    def _confirm(self, rate: float) -> None:
        """Repeat the rate; continue with a lower one if it fails."""
        for _ in range(_MOST_FALLS):
            measured = self._try(rate, 1)
            for number in range(2, 2 + self._confirmations):
                if not _holds(measured.runs):
                    break
                measured = self._try(rate, number)
            if _holds(measured.runs):
                self.found = measured
                return
            self.lowest_bad = rate
            rate = float(f"{rate * _STEP_DOWN:.4g}")

    def _try(self, rate: float, number: int) -> Measured:
        before = self.tried.get(rate, Measured(Asked(rate=rate), ()))
        if number > len(before.runs):
            before = Measured(before.asked, (*before.runs, self._run(before.asked, number)))
            self.tried[rate] = before
        return before


def _holds(runs: Iterable[Run]) -> bool:
    """Return True if all runs met the limits and neither the client nor the replies are in doubt."""
    return all(not run.missed and Measured(run.asked, (run,)).is_valid for run in runs)


def _start(known: Sequence[Measured]) -> float:
    """Return the rate to begin with, in requests/s."""
    reached = [
        point.metrics["requests_per_second"].value
        for point in known
        if point.asked.concurrency is not None and "requests_per_second" in point.metrics
    ]
    best = max(reached, default=0.0)
    return float(f"{_FIRST_SHARE * best:.4g}") if best > 0 else _FIRST_RATE


def _least(known: Sequence[Measured]) -> float:
    """Return the rate below which requests hardly ever overlap; a limit missed there is always missed."""
    alone = (point for point in known if point.asked.concurrency == 1)
    reached = (
        point.metrics["requests_per_second"].value
        for point in alone
        if "requests_per_second" in point.metrics
    )
    return _HARDLY_MEET * next(reached, 0.0)


def _drop_contradictions(search: Search) -> None:
    """Discard a rate that held above one that did not: only rates below the lowest bad one count."""
    good, bad = search.highest_good, search.lowest_bad
    if good is not None and bad is not None and good >= bad:
        search.highest_good = None
