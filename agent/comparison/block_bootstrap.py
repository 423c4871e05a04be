"""Estimates how exactly one run's samples determine its figures, by a block bootstrap over queries.

Queries of one run depend on each other: those that wait in the same queue are slow together. Blocks of
neighbouring queries are drawn instead of single ones, to preserve this dependence. One run's samples do not
show the differences between runs, so these errors do not include them.
"""

from __future__ import annotations

import math
import operator
import random
import re
import statistics
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESAMPLES = 400
LEAST_QUERIES = 100
_LEAST_IN_TAIL = 10
"""Least number of queries beyond a percentile to estimate its error: 1,000 queries for the 99th."""
_LOOKED_AT = 20_000
"""Number of queries from which the dependence is measured."""
_ALIKE = 0.02
"""Largest relative difference at which a figure from the samples still counts as the recorded one."""

_TIME = re.compile(r"(?:query_)?(?P<time>latency|ttft|tpot)_(?P<statistic>mean|p\d+(?:_\d+)?)")
_RATES = {"tokens_per_second": "tokens", "samples_per_second": "samples", "queries_per_second": "samples"}


class Query(NamedTuple):
    """One completed query; times in seconds since the start, None if the log does not have them."""

    issued_s: float
    first_token_s: float | None
    completed_s: float
    tokens: int


@dataclass(frozen=True)
class SamplingError:
    """The standard error of the logarithm of a figure.

    Args:
        value: the standard error: 0.01 is about 1 %.
        queries: the number of queries that it is based on.
        block: the number of neighbouring queries that were drawn together.
        is_short: whether the run is too short for the strength of its queries' dependence, so that the true
            error is larger.
    """

    value: float
    queries: int
    block: int
    is_short: bool = False


def sampling_error(metric: str, recorded: float, queries: Sequence[Query]) -> SamplingError | None:
    """Estimate how exactly a run's queries determine one of its figures.

    Args:
        metric: the metric's name, such as ``ttft_p99`` or ``tokens_per_second``.
        recorded: the recorded value, in seconds or per second.
        queries: the run's queries in order of their completion.

    Returns:
        None if the metric does not follow from the queries, or if there are too few queries.
    """
    if len(queries) < LEAST_QUERIES:
        return None
    if metric in _RATES:
        return _of_rate(recorded, queries, in_tokens=_RATES[metric] == "tokens")
    found = _TIME.fullmatch(metric)
    values = _times(found["time"], queries) if found else []
    if found is None or len(values) < LEAST_QUERIES:
        return None
    if found["statistic"] == "mean":
        return _of_mean(recorded, values)
    return _of_percentile(recorded, values, float(found["statistic"][1:].replace("_", ".")) / 100)


def _times(name: str, queries: Sequence[Query]) -> list[float]:
    if name == "latency":
        return [query.completed_s - query.issued_s for query in queries]
    with_first = [(query, query.first_token_s) for query in queries if query.first_token_s is not None]
    if name == "ttft":
        return [first_s - query.issued_s for query, first_s in with_first]
    return [
        (query.completed_s - first_s) / (query.tokens - 1)
        for query, first_s in with_first
        if query.tokens > 1
    ]


def _of_mean(recorded: float, values: Sequence[float]) -> SamplingError | None:
    mean = statistics.fmean(values)
    return _relative(mean, recorded, values, lambda error: error / mean)


def _of_rate(recorded: float, queries: Sequence[Query], *, in_tokens: bool) -> SamplingError | None:
    """Return the error of a sum divided by a sum of times, to first order.

    The wait for the first completion is part of the rate, but does not count as a random gap.
    """
    counts = [query.tokens if in_tokens else 1 for query in queries]
    gaps = [after.completed_s - before.completed_s for before, after in pairwise(queries)]
    duration_s = queries[-1].completed_s - min(query.issued_s for query in queries)
    if duration_s <= 0 or not sum(gaps) or not any(counts[1:]):
        return None
    between = sum(counts[1:]) / sum(gaps)
    influence = [count - between * gap for count, gap in zip(counts[1:], gaps, strict=True)]
    rate = sum(counts) / duration_s
    return _relative(rate, recorded, influence, lambda error: error / statistics.fmean(counts[1:]))


def _of_percentile(recorded: float, values: Sequence[float], share: float) -> SamplingError | None:
    """Return the error of a percentile, from the error of the share of queries below it.

    Source: Woodruff, Confidence Intervals for Medians and Other Position Measures, JASA 47 (1952).
    """
    ordered = sorted(values)
    count = len(ordered)
    if count * min(share, 1 - share) < _LEAST_IN_TAIL:
        return None

    def at(place: float) -> float:
        return ordered[min(max(math.floor(place * count), 0), count - 1)]

    here = at(share)
    if here <= 0:
        return None
    below = [float(value <= here) for value in values]

    def spread(error: float) -> float:
        low, high = at(share - error), at(share + error)
        return (math.log(high) - math.log(low)) / 2 if low > 0 else math.inf

    return _relative(here, recorded, below, spread)


def _relative(
    value: float, recorded: float, influence: Sequence[float], spread: Callable[[float], float]
) -> SamplingError | None:
    """Return the error of a figure; None if the figure is not the recorded one."""
    if value <= 0 or abs(value / recorded - 1 if recorded else math.inf) > _ALIKE:
        return None
    block, is_short = block_length(influence)
    error = spread(error_of_mean(influence, block))
    return SamplingError(error, len(influence), block, is_short) if math.isfinite(error) else None


def block_length(series: Sequence[float]) -> tuple[int, bool]:
    """Return the number of neighbours to draw together, and whether the series is too short for it.

    The number is five times the integrated autocorrelation time, but at least the cube root of the series'
    length and at most a tenth of it.
    """
    count = len(series)
    wanted = max(math.ceil(count ** (1 / 3)), math.ceil(5 * _dependence(series[:_LOOKED_AT])))
    most = max(1, count // 10)
    return min(wanted, most), wanted > most


def _dependence(series: Sequence[float]) -> float:
    """Return the integrated autocorrelation time, over the lags up to the first without correlation."""
    mean = statistics.fmean(series)
    centred = [value - mean for value in series]
    total = sum(map(operator.mul, centred, centred))
    time = 1.0
    if total <= 0:
        return time
    for lag in range(1, len(series) // 10):
        correlation = sum(map(operator.mul, centred, centred[lag:])) / total
        if correlation <= 0:
            break
        time += 2 * correlation
    return time


def error_of_mean(series: Sequence[float], block: int, resamples: int = RESAMPLES) -> float:
    """Return the standard error of a mean by a circular block bootstrap; equal series give equal results."""
    chance = random.Random(0)  # noqa: S311 - the same draws each time; nothing is secret
    count = len(series)
    block = min(block, count)
    sums = [0.0, *accumulate([*series, *series[:block]])]
    of_blocks = [sums[start + block] - sums[start] for start in range(count)]
    draws = max(1, round(count / block))
    means = [sum(chance.choices(of_blocks, k=draws)) / (draws * block) for _ in range(resamples)]
    return statistics.stdev(means)
