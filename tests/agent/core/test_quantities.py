from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.quantities import (
    format_duration,
    format_number,
    metric_text,
    quantity,
    scale_for,
    with_error,
    words,
)
from agent.core.records import Metric

FINITE = st.floats(-1e300, 1e300)
UNITS = st.sampled_from(
    ["seconds", "bytes", "bytes/s", "ratio", "tokens/s", "watts", "count", "hertz", "furlongs"]
)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.0052013, "seconds", "5.201\u00a0ms"),
        (0.000004, "seconds", "4\u00a0µs"),
        (0, "seconds", "0\u00a0s"),
        (2.997968316, "seconds", "2.998\u00a0s"),
        (8532.59, "tokens/s", "8,533\u00a0tokens/s"),
        (85520809984, "bytes", "79.65\u00a0GiB"),
        (1536, "bytes/s", "1.5\u00a0KiB/s"),
        (0.9734, "ratio", "97.34\u00a0%"),
        (24576, "count", "24,576"),
        (61, "celsius", "61\u00a0°C"),
        (3, "furlongs", "3\u00a0furlongs"),
    ],
)
def test_reads_well_in_a_fitting_unit(value: float, unit: str, shown: str) -> None:
    assert str(quantity(value, unit)) == shown


def test_keeps_the_exact_value_beside() -> None:
    assert quantity(0.868213459, "seconds").exact == "0.868213459 seconds"


def test_a_row_shares_the_unit_of_the_value_it_is_told() -> None:
    assert str(quantity(1.5, "seconds", like=0.3)) == "1,500\u00a0ms"


@given(FINITE)
def test_a_formatted_number_is_the_number_to_four_digits(value: float) -> None:
    assert math.isclose(float(format_number(value).replace(",", "")), value, rel_tol=6e-4, abs_tol=1e-300)


@given(FINITE, UNITS)
def test_a_quantity_is_the_value_in_its_unit(value: float, unit: str) -> None:
    shown = quantity(value, unit)
    scale = scale_for(unit, value)
    assert shown.unit == scale.unit
    scaled = value * scale.factor
    if math.isfinite(scaled):
        assert math.isclose(float(shown.number.replace(",", "")), scaled, rel_tol=6e-4, abs_tol=1e-300)


@given(st.floats(min_value=1e-9, max_value=1e15), st.sampled_from(["seconds", "bytes"]))
def test_the_unit_is_the_largest_that_gives_at_least_one(value: float, unit: str) -> None:
    scale = scale_for(unit, value)
    assert value * scale.factor >= 1 or scale.unit in {"ns", "B"}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (0.42, "420\u00a0ms"), (42, "42\u00a0s"), (723, "12 min 03 s"), (3725, "1 h 02 min")],
)  # fmt: skip
def test_lengths_of_time(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [("ttft_p99", "TTFT p99"), ("tokens_per_second", "Tokens per second"), ("p99", "p99"), ("", "")],
)
def test_names_as_words(name: str, shown: str) -> None:
    assert words(name) == shown


def test_a_line_shows_a_metric_as_the_table_does() -> None:
    metric = Metric("ttft_p99", 0.1152, "seconds")
    assert metric_text(metric) == "TTFT p99 115.2 ms"
    assert str(quantity(metric.value, metric.unit)) == "115.2\u00a0ms"


def test_a_value_and_its_error_share_a_unit_and_do_not_break() -> None:
    assert with_error(97.521, 5.63, "tokens/s") == "97.52\u00a0±\u00a05.6\u00a0tokens/s"
    assert with_error(0.65, 0.0764, "ratio") == "65\u00a0±\u00a07.6\u00a0%"
    assert with_error(12.61, 1.43, "perplexity") == "12.61\u00a0±\u00a01.4"
