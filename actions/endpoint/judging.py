"""Judge whether a rate holds within the limits, and compute standard errors: pure functions."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from actions.loadgen.in_environment.harness.tuning import drift
from agent.comparison.block_bootstrap import (
    LEAST_QUERIES,
    Query,
    block_length,
    error_of_mean,
    sampling_error,
)
from agent.core.records import Validity, Verdict
from parsers.endpoint_load.requests import TIMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.core.records import MetadataValue, Metric, ParsedOutput, Reason
    from parsers.endpoint_load.requests import Limits, Request

_HUNDRED = 100.0
_STEADY_S = 600.0
"""Time in seconds that a rate must hold: a growing wait is extrapolated to this time."""
_SEVERITY = (Validity.VALID, Validity.NOT_APPLICABLE, Validity.INVALID, Validity.FAILED)


def misses(requests: Sequence[Request], limits: Limits, *, percentile: float, share: float | None) -> str:
    """Explain why a rate does not hold; return an empty string if it holds.

    Args:
        requests: the requests of one run, in the order of their due times.
        limits: the latency limits.
        percentile: 0 to 100: of each limited time this percentile must be within its limit.
        share: share of requests that must meet all limits; if set, it replaces the percentile.
    """
    if share is not None:
        met = sum(map(limits.met_by, requests)) / len(requests)
        if met < share:
            return f"{met:.2%} of the requests meet the limits, {share:.2%} must"
    else:
        for name in TIMES:
            limit_s = getattr(limits, f"{name}_s")
            took_s = _percentile(requests, name, percentile)
            if limit_s is not None and took_s > limit_s:
                shown = "no answer" if math.isinf(took_s) else f"{took_s:.4g} s"
                return f"{name} p{percentile:g} is {shown}, the limit is {limit_s:g} s"
    return _growing(requests, limits)


def _percentile(requests: Sequence[Request], name: str, percentile: float) -> float:
    """Return the percentile of a time; a failed request counts as infinite, a single token has no TPOT."""
    values = []
    for request in requests:
        took_s = getattr(request, f"{name}_s")
        if request.completed_s is None:
            values.append(math.inf)
        elif took_s is not None:
            values.append(took_s)
    values.sort()
    return values[min(int(len(values) * percentile / _HUNDRED), len(values) - 1)] if values else 0.0


def _growing(requests: Sequence[Request], limits: Limits) -> str:
    """Report a wait that grows so fast that a limit would be missed later."""
    name = "ttft" if limits.ttft_s is not None else "latency"
    limit_s = getattr(limits, f"{name}_s")
    if limit_s is None:
        return ""
    waits = [
        (request.due_s, took_s)
        for request in requests
        if request.completed_s is not None and (took_s := getattr(request, f"{name}_s")) is not None
    ]
    growth = drift([due_s for due_s, _ in waits], [took_s for _, took_s in waits])
    if not growth or statistics.median(took_s for _, took_s in waits) + growth * _STEADY_S <= limit_s:
        return ""
    return f"{name} grows by {growth:.3g} s a second: the endpoint falls behind, and would miss {limit_s:g} s"


def with_errors(output: ParsedOutput, requests: Sequence[Request], limits: Limits) -> ParsedOutput:
    """Return the output of one run with standard errors computed from its requests (block bootstrap)."""
    answered = sorted(
        (
            Query(request.due_s, request.first_token_s, request.completed_s, request.tokens)
            for request in requests
            if request.completed_s is not None
        ),
        key=lambda query: query.completed_s,
    )
    return replace(
        output,
        metrics=tuple(
            _with_error(metric, _error(metric, answered, requests, limits)) for metric in output.metrics
        ),
    )


def _error(
    metric: Metric, answered: Sequence[Query], requests: Sequence[Request], limits: Limits
) -> float | None:
    """Return the standard error, in the metric's unit; None if the requests do not determine it."""
    if metric.name in {"goodput", "slo_attainment"}:
        if len(requests) < LEAST_QUERIES:
            return None
        met = [float(limits.met_by(request)) for request in requests]
        mean = statistics.fmean(met)
        if not 0 < mean < 1:  # all alike: the requests do not show how far the share may be off
            return None
        error = error_of_mean(met, block_length(met)[0])
        return error if metric.name == "slo_attainment" else metric.value / mean * error
    name = "queries_per_second" if metric.name == "requests_per_second" else metric.name
    found = sampling_error(name, metric.value, answered)
    return None if found is None else found.value * metric.value


def _with_error(metric: Metric, error: float | None) -> Metric:
    if error is None:
        return metric
    told: dict[str, MetadataValue] = {"standard_error": error, "spread_by": "block bootstrap"}
    return replace(metric, metadata={**metric.metadata, **told})


def combined(runs: Sequence[ParsedOutput]) -> ParsedOutput:
    """Return one output for all runs of a point: means, their spread, and the worst verdict."""
    if len(runs) == 1:
        return runs[0]
    by_run = [{metric.name: metric for metric in run.metrics} for run in runs]
    metrics = [
        _over_runs([of_one[name] for of_one in by_run])
        for name in by_run[0]
        if all(name in of_one for of_one in by_run)
    ]
    return replace(
        runs[0],
        metrics=tuple(metrics),
        verdict=_worst([run.verdict for run in runs if run.verdict]),
        details={**runs[0].details, "runs": len(runs)},
        sources=tuple(source for run in runs for source in run.sources),
    )


def _over_runs(metrics: Sequence[Metric]) -> Metric:
    values = [metric.value for metric in metrics]
    told: Mapping[str, MetadataValue] = {
        "standard_error": statistics.stdev(values) / math.sqrt(len(values)),
        "spread_by": f"{len(values)} runs",
        "runs": len(values),
        "minimum": min(values),
        "maximum": max(values),
    }
    return replace(metrics[0], value=statistics.fmean(values), metadata={**metrics[0].metadata, **told})


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    validity = max((verdict.validity for verdict in verdicts), key=_SEVERITY.index)
    codes = Counter(reason.code for verdict in verdicts for reason in verdict.reasons)
    reasons: dict[str, Reason] = {}
    for verdict in verdicts:
        for reason in verdict.reasons:
            in_runs = f"in {codes[reason.code]} of {len(verdicts)} runs: {reason.message}"
            reasons.setdefault(reason.code, replace(reason, message=in_runs))
    warnings = dict.fromkeys(warning for verdict in verdicts for warning in verdict.warnings)
    return Verdict(validity, tuple(reasons.values()), tuple(warnings))
