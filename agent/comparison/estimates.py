"""Estimates the difference between two sides and its uncertainty: pure functions of numbers.

Differences are differences of logarithms, so that they are shares: 0.03 is about 3 %. If a value is 0 or
negative, they are shares of the first side's mean.
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
"""Standard deviation between runs that is assumed if it is unknown; a large value."""


class Method(str, Enum):
    """The method by which a difference was judged."""

    REPEATS = "repeats"
    """Two-sample t test with Welch's degrees of freedom, host by host."""
    POOLED = "repeats, one noise for both sides"
    """Two-sample t test with one variance, needed if a side has one run or if the history is used."""
    HOSTS = "pairs of hosts"
    """t test of the differences on the hosts that both sides have."""
    HISTORY = "one run a side, noise from history"
    """Noise between runs from the history, and noise within runs from the samples, if any."""
    ASSUMED = "one run a side, noise unknown"
    """The noise between runs is unknown."""


@dataclass(frozen=True)
class Noise:
    """The standard deviation of single runs, as a share, with its degrees of freedom."""

    deviation: float
    degrees: float


@dataclass(frozen=True)
class Estimate:
    """A difference between two sides.

    Args:
        difference: second side minus first side, of logarithms or as a share of the first side.
        error: its standard error; 0 if the repeats do not differ at all.
        degrees: degrees of freedom of the error.
        method: the method of the estimate.
        in_logarithms: whether it is a difference of logarithms.
    """

    difference: float
    error: float
    degrees: float
    method: Method
    in_logarithms: bool = True

    @property
    def p_value(self) -> float:
        """The probability of a difference at least as large if the sides do not truly differ."""
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
    """The values of one host on both sides, one value for each independent repeat."""

    before: Values
    after: Values

    @property
    def degrees(self) -> int:
        """Degrees of freedom of its repeats."""
        return len(self.before) + len(self.after) - 2


def scaled(blocks: Sequence[Block]) -> tuple[list[Block], bool] | None:
    """Return the blocks on the scale of the comparison, and whether that scale is logarithmic.

    Returns None if no share can be calculated, because the first side's mean is 0.
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
    """Return the noise of single runs, from groups of like runs; None if no group has two runs."""
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
    """Estimate the difference between two sides.

    Args:
        blocks: one block for each host of both sides, or one block; each side of a block has a value.
        history: the noise of single runs, as a share.
        sampling_errors: the errors of the one run of each side, from its samples; used without repeats.

    Returns:
        None if the difference cannot be expressed as a share.
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
    """Estimate from one run per side: noise within runs from samples, between runs known or assumed."""
    noise = history or Noise(ASSUMED_NOISE, math.inf)
    error, degrees = _welch([(sampling**2, math.inf), (2 * noise.deviation**2, noise.degrees)])
    method = Method.HISTORY if history else Method.ASSUMED
    return Estimate(difference, error, degrees, method, in_logarithms)


def _pooled(
    difference: float, blocks: Sequence[Block], history: Noise | None, *, in_logarithms: bool
) -> Estimate:
    """Use one variance for both sides, from repeats and history, weighted by degrees of freedom."""
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
    """Return the error of a sum of terms, each a variance with its degrees of freedom.

    Source: Welch, The Generalization of Student's Problem, Biometrika 34 (1947); Satterthwaite 1946.
    """
    variance = sum(value for value, _ in terms)
    if not variance:
        return 0.0, sum(degrees for _, degrees in terms)
    spread = sum(value**2 / degrees for value, degrees in terms)
    return math.sqrt(variance), variance**2 / spread if spread else math.inf
