"""Test whether two accuracies differ by more than noise."""

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
        p_value: p-value of the test: the probability of seeing this difference or a larger one if both scores
            come from the same true accuracy; 0 to 1.
        test: name of the statistical test.
    """

    value: float
    stderr: float
    p_value: float
    test: str


def paired(right: Sequence[bool], right_before: Sequence[bool]) -> Difference:
    """Return the difference of two runs over the same questions, by McNemar's test.

    Only questions that exactly one of the runs answered correctly count.

    Source: McNemar 1947; exact by the binomial distribution, two-sided. The standard error is that of a
    difference of paired proportions (Agresti, Categorical Data Analysis, 11.1).

    Raises:
        ValueError: if the runs do not have the same questions, or have none.
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
    """Return the difference of two runs for which only accuracies and standard errors are known.

    For runs over the same questions, the test is conservative: answers that both got right count as noise.
    """
    value, error = accuracy - accuracy_before, math.hypot(stderr, stderr_before)
    p_value = math.erfc(abs(value) / error / math.sqrt(2)) if error else float(value == 0)
    return Difference(value, error, p_value, UNPAIRED)


def _binomial_two_sided(fewer: int, count: int) -> float:
    """Return the probability that at most ``fewer`` of ``count`` fair coins show one side, or the other."""
    if not count:
        return 1.0
    tail = sum(math.comb(count, number) for number in range(fewer + 1)) / (1 << count)
    return min(1.0, 2 * float(tail))
