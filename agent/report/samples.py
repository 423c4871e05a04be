"""samples.csv: the times when each sample was issued, first answered and completed; distributions and rates.

The file is read as a stream. Up to ``VALUE_LIMIT`` values of each kind are kept, so that percentiles are
exact. From longer files, that many values are chosen uniformly at random, always the same ones.
"""

from __future__ import annotations

import math
import random
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from agent.store.sample_rows import read_rows

if TYPE_CHECKING:
    from pathlib import Path

VALUE_LIMIT = 200_000
INTERVAL_COUNT = 60


@dataclass(frozen=True)
class Distribution:
    """The distribution of a time over the samples.

    Args:
        count: the number of values.
        mean_s: their mean.
        minimum_s: the smallest value.
        maximum_s: the largest value.
        values_s: the values in order, or a random selection if ``exact`` is False.
        exact: whether ``values_s`` holds all values.
    """

    count: int
    mean_s: float
    minimum_s: float
    maximum_s: float
    values_s: array[float]
    exact: bool

    def percentile(self, percent: float) -> float:
        """Return the value that LoadGen calls this percentile: ``sorted[floor(count * percent / 100)]``.

        Source: mlcommons/inference, loadgen/results.cc, PerformanceSummary::ProcessLatencies.
        """
        place = math.floor(len(self.values_s) * percent / 100 + 1e-9)
        return self.values_s[min(place, len(self.values_s) - 1)]

    def bears(self, percent: float) -> bool:
        """Return True if at least one value is expected above this percentile."""
        return self.count * (100 - percent) >= 100 - 1e-6

    def share_at_most(self, value_s: float) -> float:
        """Return the share of the values, 0 to 1, that are at most ``value_s``."""
        return bisect_right(self.values_s, value_s) / len(self.values_s)

    def histogram(self, low_s: float, high_s: float, bins: int) -> list[float]:
        """Return the share of the values, 0 to 1, in each of ``bins`` equal parts of a closed range."""
        width = (high_s - low_s) / bins
        edges = [bisect_right(self.values_s, low_s + width * place) for place in range(1, bins)]
        first = bisect_right(self.values_s, math.nextafter(low_s, -math.inf))
        edges = [first, *edges, bisect_right(self.values_s, high_s)]
        return [(after - before) / len(self.values_s) for before, after in pairwise(edges)]


class Interval(NamedTuple):
    """The events within a part of the time, and the number of samples in flight at its end."""

    start_s: float
    end_s: float
    completed: int
    tokens: int
    in_flight: int

    @property
    def samples_per_s(self) -> float:
        """Completed samples per second."""
        return self.completed / (self.end_s - self.start_s)

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second; a sample's tokens count when it completes."""
        return self.tokens / (self.end_s - self.start_s)


@dataclass(frozen=True)
class SampleStatistics:
    """The content of a case's samples.csv.

    Args:
        issued: samples that were issued.
        completed: samples that completed.
        duration_s: the time from the start of the timed part to the last completion.
        latency: the time from issue to completion; None if nothing completed.
        ttft: the time from issue to the first token; None if the file does not contain it.
        tpot: the time per output token after the first; None if the file does not contain it.
        intervals: equal parts of the duration.
        unread_rows: rows that were cut short or could not be interpreted.
    """

    issued: int
    completed: int
    duration_s: float
    latency: Distribution | None
    ttft: Distribution | None
    tpot: Distribution | None
    intervals: tuple[Interval, ...]
    unread_rows: int

    @property
    def has_tokens(self) -> bool:
        """True if the file contains output tokens."""
        return any(interval.tokens for interval in self.intervals)


class _Reservoir:
    """A uniform random selection of at most ``limit`` values (algorithm R), and the moments of all values."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self.total = 0.0
        self.minimum = math.inf
        self.maximum = -math.inf
        self.values = array("d")
        self._random = random.Random(0)  # noqa: S311 - the same selection each time; nothing is secret

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.minimum = min(self.minimum, value)
        self.maximum = max(self.maximum, value)
        if len(self.values) < self.limit:
            self.values.append(value)
        elif (place := self._random.randrange(self.count)) < self.limit:
            self.values[place] = value

    def distribution(self) -> Distribution | None:
        if not self.count:
            return None
        return Distribution(
            count=self.count,
            mean_s=self.total / self.count,
            minimum_s=self.minimum,
            maximum_s=self.maximum,
            values_s=array("d", sorted(self.values)),
            exact=self.count <= self.limit,
        )


def _intervals(path: Path, duration_s: float, count: int) -> tuple[Interval, ...]:
    issued, completed, tokens = [0] * count, [0] * count, [0] * count

    def place(moment_s: float) -> int:
        return min(max(int(moment_s / duration_s * count), 0), count - 1)

    for sample in read_rows(path):
        if sample is None:
            continue
        if sample.issued_s <= duration_s:
            issued[place(sample.issued_s)] += 1
        if sample.completed_s is not None:
            completed[place(sample.completed_s)] += 1
            tokens[place(sample.completed_s)] += sample.tokens
    intervals, in_flight = [], 0
    for number in range(count):
        in_flight += issued[number] - completed[number]
        start_s, end_s = duration_s * number / count, duration_s * (number + 1) / count
        intervals.append(Interval(start_s, end_s, completed[number], tokens[number], in_flight))
    return tuple(intervals)


def read_samples(
    path: Path, *, value_limit: int = VALUE_LIMIT, interval_count: int = INTERVAL_COUNT
) -> SampleStatistics:
    """Read a case's samples in bounded memory.

    Args:
        path: a ``samples.csv``.
        value_limit: the number of values of each kind that are kept; percentiles are exact up to it.
        interval_count: the largest number of parts that the time is divided into; each holds a few samples.

    Raises:
        ParseError: if a required column is missing.
    """
    latency, ttft, tpot = (_Reservoir(value_limit) for _ in range(3))
    issued = unread = 0
    duration_s = 0.0
    for sample in read_rows(path):
        if sample is None:
            unread += 1
            continue
        issued += 1
        if sample.first_token_s is not None:
            ttft.add(sample.first_token_s - sample.issued_s)
        if sample.completed_s is None:
            continue
        duration_s = max(duration_s, sample.completed_s)
        latency.add(sample.completed_s - sample.issued_s)
        if sample.first_token_s is not None and sample.tokens > 1:
            tpot.add((sample.completed_s - sample.first_token_s) / (sample.tokens - 1))
    count = max(1, min(interval_count, latency.count // 3))
    return SampleStatistics(
        issued=issued,
        completed=latency.count,
        duration_s=duration_s,
        latency=latency.distribution(),
        ttft=ttft.distribution(),
        tpot=tpot.distribution(),
        intervals=_intervals(path, duration_s, count) if duration_s > 0 else (),
        unread_rows=unread,
    )
