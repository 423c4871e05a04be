"""Selects the metrics to keep: VirtualClient's MetricFilters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.core.records import Metric

_VERBOSITY = re.compile(r"verbosity:\s*(\d+)", re.IGNORECASE)


def parse_filters(text: str) -> Callable[[Iterable[Metric]], list[Metric]]:
    """Return a function that keeps the metrics that pass the filters.

    Args:
        text: filters separated by commas: ``verbosity:N`` keeps metrics up to that verbosity, a regular
            expression keeps names in which it is found, ``-`` before one drops them. Case is ignored.

    Raises:
        ValueError: if an expression is not a regular expression.
    """
    most_verbose: int | None = None
    wanted: list[re.Pattern[str]] = []
    unwanted: list[re.Pattern[str]] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        if match := _VERBOSITY.fullmatch(item):
            most_verbose = int(match[1])
            continue
        try:
            pattern = re.compile(item.removeprefix("-"), re.IGNORECASE)
        except re.error as error:
            raise ValueError(f"{item!r} is not a regular expression: {error}") from error
        (unwanted if item.startswith("-") else wanted).append(pattern)

    def keep(metrics: Iterable[Metric]) -> list[Metric]:
        return [
            metric
            for metric in metrics
            if (most_verbose is None or metric.verbosity <= most_verbose)
            and (not wanted or any(pattern.search(metric.name) for pattern in wanted))
            and not any(pattern.search(metric.name) for pattern in unwanted)
        ]

    return keep
