"""VirtualClient's MetricFilters."""

import pytest

from agent.core.metric_filters import parse_filters
from agent.core.records import Metric

METRICS = [
    Metric("ttft_p99", 1, "seconds", verbosity=1),
    Metric("ttft_p50", 1, "seconds", verbosity=2),
    Metric("tokens_per_second", 1, "tokens/s", verbosity=1),
    Metric("debug_count", 1, "count", verbosity=3),
]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ["ttft_p99", "ttft_p50", "tokens_per_second", "debug_count"]),
        ("verbosity:1", ["ttft_p99", "tokens_per_second"]),
        ("verbosity:2,-p50", ["ttft_p99", "tokens_per_second"]),
        ("TTFT", ["ttft_p99", "ttft_p50"]),
        ("^ttft,^debug", ["ttft_p99", "ttft_p50", "debug_count"]),
        ("-^ttft", ["tokens_per_second", "debug_count"]),
        ("ttft,-p99$", ["ttft_p50"]),
    ],
)
def test_filters_keep(text: str, kept: list[str]) -> None:
    assert [metric.name for metric in parse_filters(text)(METRICS)] == kept


def test_a_broken_expression_is_named() -> None:
    with pytest.raises(ValueError, match=r"'\(' is not a regular expression"):
        parse_filters("a,(")
