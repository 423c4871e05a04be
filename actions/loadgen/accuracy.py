"""What an accuracy run is worth: the form in which every scorer says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.records import Validity, Verdict

if TYPE_CHECKING:
    from agent.core.records import Metric


@dataclass(frozen=True)
class Accuracy:
    """The scores of an accuracy run, and the verdict on them.

    Args:
        verdict: NOT_APPLICABLE where there is nothing to judge them by.
        metrics: the scores, what they are judged by, and what explains them.
    """

    verdict: Verdict
    metrics: tuple[Metric, ...] = ()


def not_judged(why: str, *metrics: Metric) -> Accuracy:
    """Scores that are recorded, and why they are not judged."""
    return Accuracy(Verdict(Validity.NOT_APPLICABLE, warnings=(why,)), metrics)
