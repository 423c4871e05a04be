"""How far a value is from the middle of its like, in a measure that outliers do not spoil."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_NORMAL = 0.6745
"""The MAD of a normal distribution in units of its standard deviation."""

_FAR = 3.5
"""Beyond this modified z-score a value is an outlier (Iglewicz and Hoaglin, How to Detect and Handle
Outliers, 1993)."""

_LEAST_SHARE = 0.02
"""What is nearer to the median than this share of it is no outlier, however alike the others are."""


def median_and_mad(values: Collection[float]) -> tuple[float, float]:
    """The median, and the median of the distances from it, of at least one value."""
    median = statistics.median(values)
    return median, statistics.median(abs(value - median) for value in values)


def modified_z_score(value: float, median: float, mad: float) -> float:
    """The distance from the median in standard deviations told from the MAD; infinite where that is 0."""
    distance = value - median
    if mad:
        return _NORMAL * distance / mad
    return math.copysign(math.inf, distance) if distance else 0.0


def stands_apart(value: float, median: float, mad: float) -> bool:
    """Whether a value is no more of the kind of the others."""
    is_near = abs(value - median) <= _LEAST_SHARE * abs(median)
    return not is_near and abs(modified_z_score(value, median, mad)) > _FAR
