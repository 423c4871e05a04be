"""Combine several runs of one command into one result: the mean of each metric and its spread."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Relativity

if TYPE_CHECKING:
    from collections.abc import Sequence


def combined(runs: Sequence[Sequence[ParsedOutput]]) -> list[ParsedOutput]:
    """Return one list of outputs for all runs; a single run is returned unchanged.

    Raises:
        ParseError: if the runs do not have the same metrics.
    """
    if len(runs) == 1:
        return list(runs[0])
    if len({len(run) for run in runs}) > 1:
        raise ParseError(
            f"the runs have {', '.join(str(len(run)) for run in runs)} results",
            remedy="see the logs of the runs",
        )
    return [_combined(outputs) for outputs in zip(*runs, strict=True)]


def _combined(outputs: Sequence[ParsedOutput]) -> ParsedOutput:
    of_each = [{(metric.scenario, metric.name): metric for metric in output.metrics} for output in outputs]
    everywhere = set(of_each[0]).union(*of_each[1:])
    for number, found in enumerate(of_each, 1):
        if missing := sorted(name for _, name in everywhere - set(found)):
            raise ParseError(
                f"run {number} of {len(outputs)} has no {', '.join(missing)}",
                remedy="see what this run wrote; every run must have the same metrics",
            )
    metrics = [metric for key in of_each[0] for metric in _spread([of_one[key] for of_one in of_each])]
    sources = tuple(dict.fromkeys(source for output in outputs for source in output.sources))
    verdicts = [output for output in outputs if output.verdict is not None]
    worst = next((output for output in verdicts if output.verdict and output.verdict.reasons), None)
    first = worst or (verdicts or list(outputs))[0]
    return replace(
        first,
        metrics=tuple(metrics),
        sources=sources,
        start=outputs[0].start,
        end=outputs[-1].end,
        complete=all(output.complete for output in outputs),
    )


def _spread(metrics: Sequence[Metric]) -> list[Metric]:
    """Return the mean, with minimum and maximum, and the standard deviation over the runs."""
    first, values = metrics[0], [metric.value for metric in metrics]
    seen = {"runs": len(values), "minimum": min(values), "maximum": max(values)}
    kept = {key: value for key, value in first.metadata.items() if key not in {"tool_value", "tool_unit"}}
    return [
        replace(first, value=statistics.fmean(values), metadata={**kept, **seen}),
        Metric(
            f"{first.name}_stddev",
            statistics.stdev(values),
            first.unit,
            Relativity.LOWER,
            f"standard deviation of {first.name} over {len(values)} runs",
            max(first.verbosity, 3),
            first.tags,
            {**kept, **seen},
            first.scenario,
        ),
    ]
