"""Keep a monitor's recent measurements, and summarise any time span of them."""

from __future__ import annotations

import bisect
import math
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROW_LIMIT = 86_400
"""Maximum number of rows: one day at one per second. Eight bytes per value: 50 MB for 8 GPUs after a day."""
_MOSTLY = 0.5
"""Share of a row that must be within a span, and of an interval that a row must last, for a maximum."""


@dataclass(frozen=True)
class Statistic:
    """A value over a time span.

    Args:
        mean: mean over the time for which the value is known.
        maximum: maximum of the rows that are mostly within the span and, if it was counted, not cut short;
            if none is, the maximum of all rows.
        covered_s: seconds of the span for which the value is known.
    """

    mean: float
    maximum: float
    covered_s: float


@dataclass(frozen=True)
class Total:
    """A sum over a time span.

    Args:
        value: the sum.
        covered_s: seconds of the span covered by the sum.
    """

    value: float
    covered_s: float


class History:
    """Rows of values, each for the time since the previous row; the oldest are dropped at the limit.

    Times are seconds of one clock. A value that was not measured is absent, in one row or in all.

    Args:
        limit: maximum number of rows.
        interval_s: seconds that a row lasts, unless it is cut short.
    """

    def __init__(self, limit: int = ROW_LIMIT, interval_s: float = 0.0) -> None:
        self.limit = limit
        self._interval_s = interval_s
        self._starts = array("d")
        self._ends = array("d")
        self._columns: dict[str, array[float]] = {}

    def add(self, start_s: float, end_s: float, values: Mapping[str, float]) -> None:
        """Add a row: values that held, or were counted, during a time span."""
        if end_s <= start_s:
            return
        for name in values.keys() - self._columns.keys():
            self._columns[name] = array("d", [math.nan]) * len(self._ends)
        self._starts.append(start_s)
        self._ends.append(end_s)
        for name, column in self._columns.items():
            column.append(values.get(name, math.nan))
        if len(self._ends) > self.limit:
            for column in (self._starts, self._ends, *self._columns.values()):
                del column[: self.limit // 10]

    def covered_s(self, start_s: float, end_s: float) -> float:
        """Return the seconds of a time span that are covered by rows."""
        return sum(within_s for _, within_s, _ in self._rows(start_s, end_s))

    def names(self) -> list[str]:
        """Return the names of all values measured so far, in the order of their first appearance."""
        return list(self._columns)

    def statistic(
        self, name: str, start_s: float, end_s: float, *, is_counted: bool = False
    ) -> Statistic | None:
        """Return mean and maximum of a value over a time span; None if it was not measured.

        ``is_counted`` says that the value is a rate or share over each row, not a reading at its end. The end
        of a case cuts a row short; the rate over milliseconds is that of one burst, and no maximum.
        """
        shortest_s = _MOSTLY * self._interval_s if is_counted else 0.0
        total = covered_s = 0.0
        highest = highest_of_all = -math.inf
        for value, within_s, whole_s in self._values(name, start_s, end_s):
            total += value * within_s
            covered_s += within_s
            highest_of_all = max(highest_of_all, value)
            if within_s >= _MOSTLY * whole_s and whole_s >= shortest_s:
                highest = max(highest, value)
        if not covered_s:
            return None
        return Statistic(total / covered_s, highest if highest > -math.inf else highest_of_all, covered_s)

    def total(self, name: str, start_s: float, end_s: float) -> Total | None:
        """Return the sum of a counted value over a span, with partial rows by share; None if not measured."""
        total = covered_s = 0.0
        for value, within_s, whole_s in self._values(name, start_s, end_s):
            total += value * within_s / whole_s
            covered_s += within_s
        return Total(total, covered_s) if covered_s else None

    def mean_while(self, name: str, bit: int, bits: str, start_s: float, end_s: float) -> float | None:
        """Return the mean of a value over the rows of a span in which a bit of another value was set."""
        column, masks = self._columns.get(name), self._columns.get(bits)
        if column is None or masks is None:
            return None
        total = covered_s = 0.0
        for row, within_s, _ in self._rows(start_s, end_s):
            if not math.isnan(column[row] + masks[row]) and int(masks[row]) & bit:
                total += column[row] * within_s
                covered_s += within_s
        return total / covered_s if covered_s else None

    def bits(self, name: str, start_s: float, end_s: float) -> dict[int, float]:
        """Return the share of the known time for which each bit of a bit set was set."""
        set_s: dict[int, float] = {}
        covered_s = 0.0
        for value, within_s, _ in self._values(name, start_s, end_s):
            covered_s += within_s
            mask = int(value)
            while mask:
                bit = mask & -mask
                set_s[bit] = set_s.get(bit, 0.0) + within_s
                mask ^= bit
        return {bit: seconds / covered_s for bit, seconds in set_s.items()}

    def _values(self, name: str, start_s: float, end_s: float) -> Iterator[tuple[float, float, float]]:
        column = self._columns.get(name)
        if column is None:
            return
        for row, within_s, whole_s in self._rows(start_s, end_s):
            if not math.isnan(column[row]):
                yield column[row], within_s, whole_s

    def _rows(self, start_s: float, end_s: float) -> Iterator[tuple[int, float, float]]:
        """Yield rows that overlap a time span: index, seconds within the span, total seconds."""
        for row in range(bisect.bisect_right(self._ends, start_s), len(self._ends)):
            if self._starts[row] >= end_s:
                return
            within_s = min(end_s, self._ends[row]) - max(start_s, self._starts[row])
            yield row, within_s, self._ends[row] - self._starts[row]
