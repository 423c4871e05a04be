"""Tokens per joule of a case."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from agent.core.records import Metric, ParsedOutput
from agent.report.headline import headline
from agent.run.efficiency import tokens_per_joule

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
RATE = Metric("tokens_per_second", 50, "tokens/s")


def case(*metrics: Metric, seconds: float | None = 20) -> ParsedOutput:
    end = None if seconds is None else START + timedelta(seconds=seconds)
    return ParsedOutput("", "tool", metrics=metrics, start=START, end=end)


def seen(joules: float, coverage: float = 1.0) -> list[ParsedOutput]:
    energy = Metric("gpu_energy", joules, "joules", metadata={"coverage": coverage})
    return [ParsedOutput("", "HostMonitor"), ParsedOutput("", "NvidiaSmiMonitor", metrics=(energy,))]


def test_tokens_by_energy_are_a_headline() -> None:
    metric = tokens_per_joule(case(RATE), seen(4000))
    assert metric is not None
    assert (metric.value, metric.unit, metric.verbosity) == (0.25, "tokens/J", 1)
    assert headline([RATE, metric]) == {"throughput": RATE, "efficiency": metric}


@pytest.mark.parametrize(
    ("output", "usage"),
    [
        (case(), seen(4000)),
        (case(RATE, seconds=None), seen(4000)),
        (case(RATE), []),
        (case(RATE), seen(0)),
        (case(RATE), seen(1121, coverage=0.9)),
    ],
)
def test_what_is_not_known_whole_gives_none(output: ParsedOutput, usage: list[ParsedOutput]) -> None:
    assert tokens_per_joule(output, usage) is None
