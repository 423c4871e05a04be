"""LoadGen's early stopping: how many queries it needs, with how many of them over the limit.

The binomial test of loadgen/early_stopping.cc as loadgen/results.cc (EarlyStopping) calls it, with a
tolerance of 0 and a confidence of 0.99: of n queries at most t may be late, if with a share of late ones of
just 1 - percentile so few were seen with a probability below 1 - confidence.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIDENCE = 0.99
REASONABLE_GROWTH = 4
"""How many times longer a run may become before less load is the better advice."""

_DEVIATIONS = 10  # below the mean; what lies further is less than 1e-20 of the distribution


def late_allowed(queries: int, percentile: float) -> int:
    """How many of so many queries may be over the limit; -1 where even none is not enough.

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
    """How many queries are enough with so many of them over the limit: 459 at 0.99 with none, 662 with 1."""
    most = 1
    while late_allowed(most, percentile) < late:
        most *= 2
    return _first(lambda queries: late_allowed(queries, percentile) >= late, most // 2, most)


def queries_at_same_share(processed: int, late: int, percentile: float) -> int | None:
    """How many queries are enough if the share of late ones stays as it is; None where that is no way.

    LoadGen's own advice ("at least N more queries") holds only if none of the further ones is late.

    Args:
        processed: the queries of the run that was too short.
        late: those of them over the limit.
        percentile: of the limit, between 0 and 1.
    """
    needed = queries_needed(late, percentile)
    if late == 0:
        return needed
    if late >= processed:
        return None
    most = REASONABLE_GROWTH * max(processed, queries_needed(0, percentile))

    def enough(queries: int) -> bool:
        return late_allowed(queries, percentile) >= math.ceil(queries * late / processed)

    return _first(enough, needed - 1, most) if most >= needed and enough(most) else None


def _first(holds: Callable[[int], bool], below: int, most: int) -> int:
    """A number above ``below`` that it holds for, and not for the one before; it holds for ``most``."""
    while most - below > 1:
        middle = (below + most) // 2
        if holds(middle):
            most = middle
        else:
            below = middle
    return most
