"""LoadGen's early stopping: the number of queries it needs for a number of queries over the limit.

This is the binomial test of loadgen/early_stopping.cc as called by loadgen/results.cc (EarlyStopping), with a
tolerance of 0 and a confidence of 0.99. Of n queries, t may be late if the following holds: with a share of
late queries of exactly 1 - percentile, the probability of at most t late ones is below 1 - confidence.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIDENCE = 0.99
REASONABLE_GROWTH = 4
"""A run may become this many times longer. Beyond that, less load is the better advice."""

_DEVIATIONS = 10  # below the mean; anything further is less than 1e-20 of the distribution


def late_allowed(queries: int, percentile: float) -> int:
    """Return how many of the queries may be over the limit; -1 if not even none is enough.

    Args:
        queries: at least 1.
        percentile: of the latency limit, between 0 and 1, such as 0.99.
    """
    share = 1 - percentile
    mean = queries * share
    late = max(0, int(mean - _DEVIATIONS * math.sqrt(mean * percentile)))
    probability = 0.0
    while True:
        choices = math.lgamma(queries + 1) - math.lgamma(late + 1) - math.lgamma(queries - late + 1)
        probability += math.exp(choices + late * math.log(share) + (queries - late) * math.log(percentile))
        if probability >= 1 - CONFIDENCE or late == queries:
            return late - 1
        late += 1


def queries_needed(late: int, percentile: float) -> int:
    """Return the queries needed with ``late`` of them over the limit: 459 at 0.99 with none, 662 with 1."""
    most = 1
    while late_allowed(most, percentile) < late:
        most *= 2
    return _first(lambda queries: late_allowed(queries, percentile) >= late, most // 2, most)


def queries_at_same_share(processed: int, late: int, percentile: float) -> int | None:
    """Return the queries needed if the share of late ones stays the same; None if no number is enough.

    LoadGen's own advice ("at least N more queries") holds only if none of the additional queries is late.

    Args:
        processed: number of queries of the run that was too short.
        late: number of these queries over the limit.
        percentile: percentile of the limit, between 0 and 1.
    """
    needed = queries_needed(late, percentile)
    if late == 0:
        return needed
    if not processed:
        return None
    most = REASONABLE_GROWTH * max(processed, queries_needed(0, percentile))

    def enough(queries: int) -> bool:
        return late_allowed(queries, percentile) >= math.ceil(queries * late / processed)

    return _first(enough, needed, most) if enough(most) else None


def _first(holds: Callable[[int], bool], below: int, most: int) -> int:
    """Return a number above ``below`` for which ``holds`` is true, but false for the one before."""
    while most - below > 1:
        middle = (below + most) // 2
        if holds(middle):
            most = middle
        else:
            below = middle
    return most
