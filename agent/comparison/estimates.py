"""How far two sides are apart, and how exactly that is known: pure functions of numbers.

Differences are of logarithms, so that they are shares: 0.03 is about 3 %. Where a value is 0 or negative,
they are shares of the first side's mean.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from agent.comparison.student_t import two_sided_p_value, two_sided_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Values = Sequence[float]

CONFIDENCE = 0.95
ASSUMED_NOISE = 0.05
"""The standard deviation between runs that is assumed where nothing tells it: a large one."""


class Method(str, Enum):
    """How a difference was judged."""

    REPEATS = "repeats"
    """Two-sample t test with Welch's degrees of freedom, host by host."""
    POOLED = "repeats, one noise for both sides"
    """Two-sample t test with one variance, which a side with one run or the history needs."""
    HOSTS = "pairs of hosts"
    """t test of the differences of hosts that both sides have."""
    HISTORY = "one run a side, noise from history"
    """Noise between runs from the history, and from the samples where there are some."""
    ASSUMED = "one run a side, noise unknown"
    """Nothing tells the noise between runs."""


@dataclass(frozen=True)
class Noise:
    """The standard deviation of single runs, as a share, with its degrees of freedom."""

    deviation: float
    degrees: float


@dataclass(frozen=True)
class Estimate:
    """A difference of two sides.

    Args:
        difference: second minus first, of logarithms or as a share of the first.
        error: its standard error; 0 where the repeats do not differ at all.
        degrees: degrees of freedom of the error.
        method: how that was found.
        in_logarithms: whether it is a difference of logarithms.
    """

    difference: float
    error: float
    degrees: float
    method: Method
    in_logarithms: bool = True

    @property
    def p_value(self) -> float:
        """How likely a difference at least as large is if there is none in truth."""
        if not self.error:
            return float(not self.difference)
        return two_sided_p_value(self.difference / self.error, self.degrees)

    @property
    def change(self) -> float:
        """The difference as a share of the first side: 0.03 is 3 % more."""
        return self._share(self.difference)

    @property
    def interval(self) -> tuple[float, float]:
        """The confidence interval of the change."""
        width = two_sided_quantile(CONFIDENCE, self.degrees) * self.error if self.error else 0.0
        return self._share(self.difference - width), self._share(self.difference + width)

    def _share(self, difference: float) -> float:
        if not self.in_logarithms:
            return difference
        try:
            return math.expm1(difference)
        except OverflowError:
            return math.inf


@dataclass(frozen=True)
class Block:
    """The values of one host, one for each independent repeat, of both sides."""

    before: Values
    after: Values

    @property
    def degrees(self) -> int:
        """How many degrees of freedom its repeats give."""
        return len(self.before) + len(self.after) - 2


def scaled(blocks: Sequence[Block]) -> tuple[list[Block], bool] | None:
    """Return the blocks on the scale on which they are compared, and whether these are logarithms.

    Returns None if no share can be told: the first side's mean is 0.
    """
    values = [value for block in blocks for side in (block.before, block.after) for value in side]
    if min(values) > 0:
        return [Block(*([math.log(v) for v in side] for side in (b.before, b.after))) for b in blocks], True
    mean = abs(statistics.fmean(value for block in blocks for value in block.before))
    if not mean:
        return (
            ([Block((0.0,) * len(b.before), (0.0,) * len(b.after)) for b in blocks], False)
            if not any(values)
            else None
        )
    return [Block(*([v / mean for v in side] for side in (b.before, b.after))) for b in blocks], False


def noise_between_runs(groups: Iterable[Values]) -> Noise | None:
    """Return the noise of single runs, from groups of runs that should be alike; None if no group has two."""
    squares, degrees = 0.0, 0
    for group in groups:
        one = scaled([Block(group, group)])
        if len(group) > 1 and one:
            values = one[0][0].before
            squares += statistics.variance(values) * (len(values) - 1)
            degrees += len(values) - 1
    return Noise(math.sqrt(squares / degrees), degrees) if degrees else None


def estimate(
    blocks: Sequence[Block],
    history: Noise | None = None,
    sampling_errors: tuple[float, float] | None = None,
) -> Estimate | None:
    """Estimate the difference of two sides.

    Args:
        blocks: the hosts of both sides, or one block; each side of a block has a value at least.
        history: the noise of single runs, as a share.
        sampling_errors: of the one run of each side, from its samples; used where nothing is repeated.

    Returns:
        None if the difference cannot be told as a share.
    """
    on_scale = scaled(blocks)
    if on_scale is None:
        return None
    of_blocks, in_logarithms = on_scale
    differences = [statistics.fmean(block.after) - statistics.fmean(block.before) for block in of_blocks]
    difference = statistics.fmean(differences)
    repeats = sum(block.degrees for block in of_blocks)
    if not repeats and len(of_blocks) == 1:
        sampling = math.hypot(*(sampling_errors or (0.0, 0.0)))
        return _of_single_runs(difference, sampling, history, in_logarithms=in_logarithms)
    if not repeats and history is None:
        error = statistics.stdev(differences) / math.sqrt(len(differences))
        return Estimate(difference, error, len(differences) - 1, Method.HOSTS, in_logarithms)
    if history or any(min(len(block.before), len(block.after)) < 2 for block in of_blocks):  # noqa: PLR2004
        return _pooled(difference, of_blocks, history, in_logarithms=in_logarithms)
    terms = [
        (statistics.variance(side) / len(side) / len(of_blocks) ** 2, len(side) - 1)
        for block in of_blocks
        for side in (block.before, block.after)
    ]
    error, degrees = _welch(terms)
    return Estimate(difference, error, degrees, Method.REPEATS, in_logarithms)


def _of_single_runs(
    difference: float, sampling: float, history: Noise | None, *, in_logarithms: bool
) -> Estimate:
    """One run a side: samples tell what is within a run; what is between runs, history or an assumption."""
    noise = history or Noise(ASSUMED_NOISE, math.inf)
    error, degrees = _welch([(sampling**2, math.inf), (2 * noise.deviation**2, noise.degrees)])
    method = Method.HISTORY if history else Method.ASSUMED
    return Estimate(difference, error, degrees, method, in_logarithms)


def _pooled(
    difference: float, blocks: Sequence[Block], history: Noise | None, *, in_logarithms: bool
) -> Estimate:
    """One variance for both sides, of their repeats and of the history, each by its degrees of freedom."""
    prior = history or Noise(0.0, 0.0)
    squares = prior.degrees * prior.deviation**2
    squares += sum(
        statistics.variance(side) * (len(side) - 1)
        for block in blocks
        for side in (block.before, block.after)
        if len(side) > 1
    )
    degrees = prior.degrees + sum(block.degrees for block in blocks)
    inverse = sum(1 / len(block.before) + 1 / len(block.after) for block in blocks) / len(blocks) ** 2
    return Estimate(difference, math.sqrt(squares / degrees * inverse), degrees, Method.POOLED, in_logarithms)


def _welch(terms: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The error of a sum of terms, each a variance with its degrees of freedom.

    Source: Welch, The Generalization of Student's Problem, Biometrika 34 (1947); Satterthwaite 1946.
    """
    variance = sum(value for value, _ in terms)
    if not variance:
        return 0.0, sum(degrees for _, degrees in terms)
    spread = sum(value**2 / degrees for value, degrees in terms)
    return math.sqrt(variance), variance**2 / spread if spread else math.inf
