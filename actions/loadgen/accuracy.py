"""Define the result of an accuracy run, common to all scorers."""

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
        verdict: the verdict; NOT_APPLICABLE if there is nothing to compare the scores with.
        metrics: the scores, the bars they are compared with, and explanations.
    """

    verdict: Verdict
    metrics: tuple[Metric, ...] = ()


def not_judged(why: str, *metrics: Metric) -> Accuracy:
    """Return scores that are recorded but not judged, with the reason."""
    return Accuracy(Verdict(Validity.NOT_APPLICABLE, warnings=(why,)), metrics)
