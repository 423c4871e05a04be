"""Whether two accuracies differ by more than the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PAIRED = "McNemar's exact test, question by question"
UNPAIRED = "two-proportion z test"


@dataclass(frozen=True)
class Difference:
    """One accuracy minus another.

    Args:
        value: the difference, a ratio.
        stderr: its standard error.
        p_value: how likely a difference at least as large is if there is none in truth.
        test: how that was found.
    """

    value: float
    stderr: float
    p_value: float
    test: str


def paired(right: Sequence[bool], right_before: Sequence[bool]) -> Difference:
    """The difference of two runs over the same questions: only those that one of them alone got right tell.

    Source: McNemar 1947; exact by the binomial distribution, two-sided. The standard error is that of a
    difference of paired proportions (Agresti, Categorical Data Analysis, 11.1).

    Raises:
        ValueError: if they are not of the same questions, or there are none.
    """
    count = len(right)
    if not count or len(right_before) != count:
        raise ValueError(f"{count} answers cannot be paired with {len(right_before)}")
    gained = sum(now and not before for now, before in zip(right, right_before, strict=True))
    lost = sum(before and not now for now, before in zip(right, right_before, strict=True))
    value = (gained - lost) / count
    stderr = math.sqrt(max(gained + lost - (gained - lost) ** 2 / count, 0.0)) / count
    return Difference(value, stderr, _binomial_two_sided(min(gained, lost), gained + lost), PAIRED)


def unpaired(accuracy: float, stderr: float, accuracy_before: float, stderr_before: float) -> Difference:
    """The difference of two runs of which only accuracies and standard errors are known.

    Over the same questions it is too careful: what both get right is counted as noise of both.
    """
    value, error = accuracy - accuracy_before, math.hypot(stderr, stderr_before)
    p_value = math.erfc(abs(value) / error / math.sqrt(2)) if error else float(value == 0)
    return Difference(value, error, p_value, UNPAIRED)


def _binomial_two_sided(fewer: int, count: int) -> float:
    """How likely ``fewer`` or less of ``count`` fair coins show one side, or as few the other."""
    if not count:
        return 1.0
    tail = sum(math.comb(count, number) for number in range(fewer + 1)) / (1 << count)
    return min(1.0, 2 * float(tail))
