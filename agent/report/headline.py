"""Selects the metrics that represent a case: throughput, latency, time to first token, and so on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.core.records import Metric

HEADLINE_VERBOSITY = 1

_TTFT = re.compile(r"ttft|first_token", re.IGNORECASE)
_TPOT = re.compile(r"tpot|per_output_token|inter_token", re.IGNORECASE)
_LATENCY = re.compile(r"latency", re.IGNORECASE)
_WARM_UP = re.compile(r"warm_?up", re.IGNORECASE)
_OTHER = "result"
_ACCURACY = re.compile(r"accuracy|acc\b|rouge|exact_match|score", re.IGNORECASE)
_PERCENTILES = ("p99", "p90", "p95", "p97", "p99_9", "p50", "mean")
"""Statistics of a latency in order of preference: first the percentile of MLPerf's limits."""

_RATES = ("tokens/s", "samples/s", "queries/s")
"""Units of throughput in order of preference: language models are compared by tokens."""


def _is_throughput(metric: Metric) -> bool:
    return metric.unit.endswith("/s") and not metric.unit.lower().startswith("byte")


def _is_time(pattern: re.Pattern[str]) -> Callable[[Metric], bool]:
    return lambda metric: metric.unit == "seconds" and bool(pattern.search(metric.name))


def _is_latency(metric: Metric) -> bool:
    return _is_time(_LATENCY)(metric) and not _TTFT.search(metric.name) and not _TPOT.search(metric.name)


_KINDS: Mapping[str, Callable[[Metric], bool]] = {
    "throughput": _is_throughput,
    "latency": _is_latency,
    "ttft": _is_time(_TTFT),
    "tpot": _is_time(_TPOT),
    "accuracy": lambda metric: bool(_ACCURACY.search(metric.name)),
    "efficiency": lambda metric: metric.unit == "tokens/J",
}


def _rank(metric: Metric) -> tuple[int, bool, int]:
    is_estimate = metric.name.startswith("early_stopping")
    if metric.unit in _RATES:
        return metric.verbosity, is_estimate, _RATES.index(metric.unit)
    for place, percentile in enumerate(_PERCENTILES):
        if re.search(rf"(^|_){percentile}($|_(?!\d))", metric.name):
            return metric.verbosity, is_estimate, place
    return metric.verbosity, is_estimate, len(_PERCENTILES)


def headline(metrics: Iterable[Metric]) -> dict[str, Metric]:
    """Return the one metric of each kind that represents a case; kinds without a metric are left out.

    If a kind has several metrics, the lowest verbosity comes first, then tokens before samples and the 99th
    percentile before others, then the first metric. A metric of the warm-up is used only if the case has no
    other metrics. A case without any of these kinds has its first metric, as ``result``.
    """
    every = list(metrics)
    known = [metric for metric in every if not _WARM_UP.search(metric.name)] or every
    chosen: dict[str, Metric] = {}
    for kind, fits in _KINDS.items():
        if candidates := [metric for metric in known if fits(metric)]:
            chosen[kind] = min(candidates, key=_rank)
    if not chosen and known:
        chosen[_OTHER] = min(known, key=lambda metric: metric.verbosity)
    return chosen


def headline_metrics(metrics: Iterable[Metric]) -> list[Metric]:
    """Return the metrics to show at a glance: those of verbosity 1, or else the headline of each kind.

    The headline of each kind comes first: throughput, latency, TTFT, TPOT, accuracy, efficiency.
    """
    known = list(metrics)
    chosen = {metric.name: metric for metric in headline(known).values()}
    first = {metric.name: metric for metric in known if metric.verbosity <= HEADLINE_VERBOSITY}
    if not first:
        return list(chosen.values())
    names = [*(name for name in chosen if name in first), *(name for name in first if name not in chosen)]
    return [first[name] for name in names]


def headline_json(metrics: Iterable[Metric]) -> dict[str, Any]:
    """Return the headline by kind, for a summary that programs read."""
    return {
        kind: {"metric": metric.name, "value": metric.value, "unit": metric.unit}
        for kind, metric in headline(metrics).items()
    }
