"""Statistics of a metric over hosts: outliers, chance, two humps. Sources are named at each formula."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_NORMAL = 0.6745
"""The MAD of a normal distribution in units of its standard deviation."""

ALPHA = 0.03
"""The chance below which the default rules name a host, over all values judged. Dropping outliers first adds
a little to the rate of false alarms; benchmarks/diagnosis_error_rates.py measures 5 % within its error."""

_APART = 0.01
"""The chance below which a value is dropped from a baseline, over the values of a metric."""

_LEAST_SHARE = 0.02
"""A smaller distance, as a share of the median, is not an outlier."""

_LEAST_BETWEEN = 0.03
"""Two centres that are nearer, as a share of the median, do not count as two humps."""

_MOST_APART = 4
"""At most one of this many hosts may be an outlier: with more, the healthy ones are unknown."""

_HUMPS = {
    4: 0.003, 5: 0.0136, 6: 0.0281, 7: 0.0487, 8: 0.0621,
    10: 0.094, 12: 0.1146, 16: 0.146, 24: 0.1856, 32: 0.2,
}  # fmt: skip
"""By number of hosts: 99 % of samples of a normal distribution have a larger cluster index (5,000 samples
or more). Of more hosts 0.2 is the limit: two humps 4 standard deviations apart."""

_TAIL_INDEX = 3
"""The heaviest tail that noise is assumed to have, that of Student's t with 3 degrees of freedom: far out,
twice the distance is 2**3 times as rare."""

_TAIL_INDEX_OF_ONE = 2.5
"""The tail index for a host with a single run: a heavier tail than any that
benchmarks/diagnosis_error_rates.py simulates. A single run shows nothing but its distance, and near the
centre noise falls off more slowly than far out."""

_FEW = 6
"""Few values do not show how far noise reaches: of this number, the furthest counts as twice as far off.
benchmarks/diagnosis_error_rates.py measures that this holds the rate of false alarms at 4 hosts, too."""

_EXACT_FREEDOM = 100
_LEAST_TO_SPREAD = 2


def median_and_mad(values: Collection[float]) -> tuple[float, float]:
    """Return the median, and the median of the distances from it, of at least one value."""
    median = statistics.median(values)
    return median, statistics.median(abs(value - median) for value in values)


def modified_z_score(value: float, median: float, mad: float) -> float:
    """Return the distance from the median in standard deviations estimated from the MAD.

    It is infinite if the MAD is 0.
    """
    distance = value - median
    if mad:
        return _NORMAL * distance / mad
    return math.copysign(math.inf, distance) if distance else 0.0


def t_tail(t: float, freedom: int) -> float:
    """Return the probability that Student's t is greater than a value.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4; above 100 degrees
    of freedom the approximation of Wallace (Annals of Mathematical Statistics 30, 1959).
    """
    if t < 0:
        return 1 - t_tail(-t, freedom)
    if math.isinf(t):
        return 0.0
    if freedom > _EXACT_FREEDOM:
        z = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))
        return math.erfc(z / math.sqrt(2)) / 2
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2
    term = total = (cosine if is_odd else 1.0) if freedom > 1 else 0.0
    for number in range(2 + is_odd, freedom, 2):
        term *= cosine**2 * (number - 1) / number
        total += term
    inside = 2 / math.pi * (angle + sine * total) if is_odd else sine * total
    return max(0.0, (1 - inside) / 2)


@lru_cache(maxsize=1024)
def t_limit(tail: float, freedom: int) -> float:
    """Return the value that Student's t exceeds with a given probability below one half."""
    low, high = 0.0, 1.0
    while t_tail(high, freedom) > tail:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, freedom) > tail else (low, middle)
    return high


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of the healthy hosts.

    Args:
        mean: their mean.
        deviation: their standard deviation (n - 1).
        hosts: the number of hosts. The runs of one host are not independent of each other.
        count: the number of values.
        least: the least value; None if unknown.
        greatest: the greatest value; None if unknown.
        values: the values of each host, if the hosts that are judged are among them.
    """

    mean: float
    deviation: float
    hosts: int
    count: int = 0
    least: float | None = None
    greatest: float | None = None
    values: Mapping[str, Sequence[float]] = field(default_factory=dict, compare=False)

    def tail(self, value: float, host: str, sign: int) -> float | None:
        """Return the probability that a healthy host has a value this far off or further.

        The host's own values are left out of the mean and the deviation.

        Args:
            value: the value.
            host: its host.
            sign: 1 if greater is worse, -1 if less is worse, 0 for a distance on either side.

        Returns:
            The probability; None if there are fewer than two other hosts.
        """
        mean, deviation, hosts = self._without(host)
        if hosts < _LEAST_TO_SPREAD:
            return None
        distance = value - mean
        scale = deviation * math.sqrt(1 + 1 / hosts)
        t = distance / scale if scale else math.copysign(math.inf, distance) if distance else 0.0
        return t_tail(sign * t, hosts - 1) if sign else 2 * t_tail(abs(t), hosts - 1)

    def noise_tail(self, runs: Sequence[float], host: str, sign: int, centre: float) -> float | None:
        """Return the probability that noise of any shape makes most runs of a host this bad.

        If runs differ by noise alone, the runs of a host have random places among those of all hosts. The
        probability is that of finding all of its runs, or just over half of them, at places as bad as these
        (hypergeometric). If all are further off than the noise of the other hosts reaches, the probability of
        this gap is a factor: that of a power law, with a tail index of 3 for each of several runs, and of 2.5
        for a single one (Renyi, Acta Mathematica Hungarica 4, 1953: the logarithms of such gaps are
        exponential).

        Args:
            runs: the values of the host, at least one.
            host: its name. Its own values in the sample are left out.
            sign: 1 if greater is worse, -1 if less is worse.
            centre: the normal value.

        Returns:
            The probability; None if there are fewer than two other values, or the least and the greatest are
            unknown.
        """
        others = [value for other, own in self.values.items() if other != host for value in own]
        least, greatest = (min(others), max(others)) if others else (self.least, self.greatest)
        count = len(others) or self.count
        if count < _LEAST_TO_SPREAD or least is None or greatest is None:
            return None
        furthest = max(abs(least - centre), abs(greatest - centre)) * (1 + (_FEW / count) ** 2)
        worst_other = max(sign * (least - centre), sign * (greatest - centre))
        distances = sorted((sign * (value - centre) for value in runs), reverse=True)
        found = [1.0]
        numbers = {len(runs) // 2 + 1, len(runs)}
        index = _TAIL_INDEX if len(runs) > 1 else _TAIL_INDEX_OF_ONE
        for number in numbers:
            distance = distances[number - 1]
            if distance <= 0:
                continue
            if others:
                worse = sum(sign * (value - centre) >= distance for value in others)
            else:
                worse = 0 if distance > worst_other else count
            tail = _hypergeometric_tail(number, len(runs), number + worse, len(runs) + count)
            if number == len(runs):
                tail *= min(1.0, furthest / distance) ** (index * number)
            found.append(tail * len(numbers))
        return min(found)

    def least_distance(self, runs: Sequence[float], host: str, sign: int, tail: float) -> float | None:
        """Return the distance of a host from the other hosts that noise between runs cannot explain.

        It is the lower confidence limit of the difference between the mean of the host's runs and the mean of
        the other hosts' means. Only the spread between the runs of a host counts (pooled over all hosts), so
        a few hosts suffice; but the spread between healthy hosts is not taken into account.

        Args:
            runs: the values of the host, at least one.
            host: its name. Its own values in the sample are left out.
            sign: 1 if greater is worse, -1 if less is worse.
            tail: the probability that the true distance is smaller than the limit.

        Returns:
            The limit; below 0 for a host that may be better. None if no host has two runs, or there are
            fewer than two other hosts.
        """
        others = [own for other, own in self.values.items() if other != host]
        freedom = sum(len(own) - 1 for own in (runs, *others))
        if len(others) < _LEAST_TO_SPREAD or not freedom:
            return None
        means = [statistics.fmean(own) for own in others]
        squares = sum(map(_squares, (runs, *others)))
        shares = 1 / len(runs) + sum(1 / len(own) for own in others) / len(others) ** 2
        distance = sign * (statistics.fmean(runs) - statistics.fmean(means))
        return distance - t_limit(tail, freedom) * math.sqrt(squares / freedom * shares)

    def least_seen(self, host: str, tail: float) -> float | None:
        """Return the distance from the mean from which on the tail is below a limit; None if unknown."""
        _, deviation, hosts = self._without(host)
        return (
            t_limit(tail, hosts - 1) * deviation * math.sqrt(1 + 1 / hosts)
            if hosts >= _LEAST_TO_SPREAD
            else None
        )

    def _without(self, host: str) -> tuple[float, float, int]:
        own = self.values.get(host)
        if not own:
            return self.mean, self.deviation, self.hosts
        count = sum(map(len, self.values.values()))
        others = count - len(own)
        if others < _LEAST_TO_SPREAD:
            return self.mean, 0.0, self.hosts - 1
        shift = sum(value - self.mean for value in own)
        squares = self.deviation**2 * (count - 1) - sum((value - self.mean) ** 2 for value in own)
        variance = max(0.0, squares - shift**2 / others) / (others - 1)
        return self.mean - shift / others, math.sqrt(variance), self.hosts - 1


def sample_of(values: Mapping[str, Sequence[float]]) -> Sample:
    """Return the sample of the values of at least one host."""
    every = [value for own in values.values() for value in own]
    deviation = statistics.stdev(every) if len(every) > 1 else 0.0
    return Sample(statistics.fmean(every), deviation, len(values), len(every), min(every), max(every), values)


def _squares(values: Sequence[float]) -> float:
    """Return the sum of the squares of the distances from the mean."""
    mean = statistics.fmean(values)
    return sum((value - mean) ** 2 for value in values)


def _hypergeometric_tail(found: int, drawn: int, marked: int, count: int) -> float:
    """Return the probability that at least ``found`` of the values drawn from ``count`` are marked ones."""
    ways = sum(
        math.comb(marked, number) * math.comb(count - marked, drawn - number)
        for number in range(found, min(drawn, marked) + 1)
    )
    return ways / math.comb(count, drawn)


def outliers(values: Collection[float], hosts: int) -> list[float]:
    """Return the outliers among the values, at most a quarter of them.

    This is the generalized extreme studentized deviate test (Rosner, Technometrics 25, 1983): the value
    furthest from the median is removed repeatedly; the last one that is too far from the rest, and
    all removed before it, are outliers. Outliers therefore do not hide each other.

    Args:
        values: the values.
        hosts: the number of hosts that they come from.
    """
    left = sorted(values)
    if not left:
        return []
    centre = statistics.median(left)
    total, squares = sum(value - centre for value in left), sum((value - centre) ** 2 for value in left)
    taken: list[float] = []
    apart = 0
    for _ in range(len(left) // _MOST_APART):
        median = statistics.median(left)
        at = 0 if median - left[0] > left[-1] - median else -1
        value = left.pop(at)
        taken.append(value)
        total, squares = total - (value - centre), squares - (value - centre) ** 2
        count = len(left)
        variance = max(0.0, squares - total**2 / count) / (count - 1)
        distance = abs(value - centre - total / count)
        scale = math.sqrt(variance * (1 + 1 / count))
        freedom = max(1, min(count, hosts) - 1)
        is_far = abs(value - median) > _LEAST_SHARE * abs(median)
        if is_far and t_tail(distance / scale if scale else math.inf, freedom) < _APART / (count + 1):
            apart = len(taken)
    return taken[:apart]


def two_humps(values: Collection[float]) -> tuple[list[float], list[float]] | None:
    """Return the lower and the upper values if they lie around two centres, else None.

    The values are parted in two so that the squares within the parts are least; their share of all squares
    is the cluster index (Liu and others, Journal of the American Statistical Association 103, 2008).
    """
    ordered = sorted(values)
    count = len(ordered)
    if count < min(_HUMPS):
        return None
    mean, total = statistics.fmean(ordered), _squares(ordered)
    if not total:
        return None
    running = accumulate(value - mean for value in ordered[:-1])
    best, at = max(
        (distance**2 / number + distance**2 / (count - number), number)
        for number, distance in enumerate(running, 1)
    )
    lower, upper = ordered[:at], ordered[at:]
    between_centres = statistics.fmean(upper) - statistics.fmean(lower)
    is_wide = between_centres > _LEAST_BETWEEN * abs(statistics.median(ordered))
    return (lower, upper) if is_wide and 1 - best / total < _humps_limit(count) else None


def _humps_limit(count: int) -> float:
    """Return the limit of the cluster index, between two known numbers of hosts on a straight line."""
    known, limits = list(_HUMPS), list(_HUMPS.values())
    count = min(count, known[-1])
    after = bisect_left(known, count)
    if known[after] == count:
        return limits[after]
    share = (count - known[after - 1]) / (known[after] - known[after - 1])
    return limits[after - 1] + share * (limits[after] - limits[after - 1])
