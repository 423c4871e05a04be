"""Verdicts on differences: changed, same or undecided, with one rate of false alarms for all metrics."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from agent.comparison.estimates import Estimate, Method

if TYPE_CHECKING:
    from collections.abc import Sequence

FALSE_ALARMS = 0.05
"""Largest probability that a comparison of sides without differences reports any change."""
BEYOND_PLAUSIBLE = 0.001
"""p value, with the assumed noise, below which a difference is real whatever the true noise is."""


class Outcome(str, Enum):
    """The verdict on whether two sides differ."""

    CHANGED = "changed"
    SAME = "same"
    UNDECIDED = "undecided"


def verdicts(estimates: Sequence[Estimate], threshold: float) -> list[Outcome]:
    """Judge several differences together.

    A difference is *changed* if it is more than noise and at least ``threshold``; *same* if its whole
    interval is within ``threshold``; else *undecided*.

    Args:
        estimates: the differences.
        threshold: the smallest change that matters, as a share.
    """
    known = [one.method is not Method.ASSUMED for one in estimates]
    limit = largest_true([one.p_value for one, is_known in zip(estimates, known, strict=True) if is_known])
    return [
        _verdict(one, threshold, limit if is_known else BEYOND_PLAUSIBLE)
        for one, is_known in zip(estimates, known, strict=True)
    ]


def _verdict(one: Estimate, threshold: float, limit: float) -> Outcome:
    if one.p_value <= limit and abs(one.change) >= threshold:
        return Outcome.CHANGED
    if one.method is not Method.ASSUMED and max(map(abs, one.interval)) < threshold:
        return Outcome.SAME
    return Outcome.UNDECIDED


def largest_true(p_values: Sequence[float], rate: float = FALSE_ALARMS) -> float:
    """Return the p value up to which differences count as real, at this rate of false discoveries.

    Source: Benjamini and Hochberg, Controlling the False Discovery Rate, JRSS B 57 (1995). If nothing
    differs, the chance that any difference is reported is at most ``rate``.

    Returns:
        A negative number if no difference counts as real.
    """
    count = len(p_values)
    passed = [p for place, p in enumerate(sorted(p_values), start=1) if p <= rate * place / count]
    return max(passed, default=-1.0)
