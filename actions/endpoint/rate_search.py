"""Looks for the highest rate that holds within the limits: by bisection, then confirmed by further runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.endpoint.point import Asked, Measured
from actions.loadgen.in_environment.harness.tuning import Search, Tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actions.endpoint.point import Run

_FIRST_SHARE = 0.7
"""Where the search begins, as a share of the highest throughput that a concurrency reached."""
_FIRST_RATE = 1.0
_HARDLY_MEET = 0.1
"""The share of the rate of one request after the other below which requests hardly ever meet."""
_STEP_DOWN = 0.97
_MOST_FALLS = 3
"""Rates that are tried again after one that held once did not hold again."""


class RateSearch:
    """One search.

    Args:
        known: points that are measured already: their rates bracket the search, their throughput starts it.
        precision: how far the highest good and the lowest bad rate may be apart, as a share.
        most_trials: rates to try at most.
        confirmations: further runs at the rate found.
        run: runs a rate once; its arguments are the point and the number of the run, from 1.

    Attributes:
        tried: every rate that was tried, with its runs.
        found: the rate that held in all of its runs; None for none.
        lowest_bad: the lowest rate that did not hold, in requests/s; None for none.
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
        """Search to the end."""
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
        """Run the rate again and again; a lower one where it fails."""
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
    """Return True if all runs met the limits, with no doubt about the client or the replies."""
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
    """Return the rate below which requests hardly ever meet: a limit missed there is missed at any rate."""
    alone = (point for point in known if point.asked.concurrency == 1)
    reached = (
        point.metrics["requests_per_second"].value
        for point in alone
        if "requests_per_second" in point.metrics
    )
    return _HARDLY_MEET * next(reached, 0.0)


def _drop_contradictions(search: Search) -> None:
    """Forget a rate that held above one that did not: only rates below the lowest bad one are believed."""
    good, bad = search.highest_good, search.lowest_bad
    if good is not None and bad is not None and good >= bad:
        search.highest_good = None
