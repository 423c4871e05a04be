from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.errors import ParseError
from agent.report.samples import read_samples
from agent.report.time_series import TimeSeries

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "sample_id,sample_index,issued_s,first_token_s,completed_s,output_tokens\n"


def written(tmp_path: Path, rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "samples.csv"
    path.write_text(header + rows, encoding="utf-8")
    return path


def test_latencies_are_those_of_the_definitions(tmp_path: Path) -> None:
    statistics = read_samples(written(tmp_path, "1,0,1.0,1.5,3.5,5\n2,1,2.0,2.25,4.0,8\n"))
    assert statistics.ttft
    assert statistics.tpot
    assert statistics.latency
    assert list(statistics.ttft.values_s) == [0.25, 0.5]
    assert list(statistics.tpot.values_s) == pytest.approx([0.25, 0.5])
    assert list(statistics.latency.values_s) == [2.0, 2.5]
    assert statistics.latency.mean_s == 2.25
    assert statistics.duration_s == 4.0


def test_percentiles_are_loadgens(tmp_path: Path) -> None:
    rows = "".join(f"{n},0,0,,{n},\n" for n in random.Random(3).sample(range(1, 1001), 1000))  # noqa: S311
    latency = read_samples(written(tmp_path, rows)).latency
    assert latency
    assert latency.exact
    assert [latency.percentile(p) for p in (0, 50, 90, 99, 99.9, 100)] == [1, 501, 901, 991, 1000, 1000]
    assert latency.share_at_most(250) == 0.25
    assert sum(latency.histogram(1, 1000, 7)) == pytest.approx(1)
    assert latency.histogram(0, 1000, 4) == [0.25] * 4


def test_absent_cells_are_absent_and_one_token_has_no_time_per_token(tmp_path: Path) -> None:
    statistics = read_samples(written(tmp_path, "1,0,0,,1,\n2,0,0,0.5,,\n3,0,0,0.5,1,1\n"))
    assert (statistics.issued, statistics.completed) == (3, 2)
    assert statistics.ttft
    assert statistics.ttft.count == 2
    assert statistics.tpot is None


def test_rates_add_up_to_what_completed(tmp_path: Path) -> None:
    rows = "".join(f"{n},0,{n / 10},,{n / 10 + 1},10\n" for n in range(100))
    statistics = read_samples(written(tmp_path, rows), interval_count=10)
    lengths = [part.end_s - part.start_s for part in statistics.intervals]
    samples = sum(
        part.samples_per_s * length for part, length in zip(statistics.intervals, lengths, strict=True)
    )
    tokens = sum(
        part.tokens_per_s * length for part, length in zip(statistics.intervals, lengths, strict=True)
    )
    assert len(lengths) == 10
    assert samples == pytest.approx(100)
    assert tokens == pytest.approx(1000)
    assert statistics.intervals[4].in_flight == pytest.approx(10, abs=1)
    assert statistics.intervals[-1].in_flight == 0


@pytest.mark.parametrize("row", ["1,0,5,,4,2", "1,0,,,4,2", "1,0,nan,,4,2", "1,0,x,,4,2", "1", "1,0,0,,1,-3"])
def test_a_row_that_makes_no_sense_is_counted_and_left_out(tmp_path: Path, row: str) -> None:
    statistics = read_samples(written(tmp_path, f"1,0,0,,1,1\n{row}\n"))
    assert (statistics.completed, statistics.unread_rows) == (1, 1)


def test_a_file_without_samples_has_no_distributions(tmp_path: Path) -> None:
    statistics = read_samples(written(tmp_path, ""))
    assert statistics.latency is None
    assert statistics.intervals == ()


def test_a_file_without_its_columns_is_an_error_that_names_them(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="no column completed_s"):
        read_samples(written(tmp_path, "1,2\n", header="issued_s,b\n"))


def test_a_long_file_is_read_in_bounded_memory(tmp_path: Path) -> None:
    rows = "".join(f"{n},0,0,,{n % 1000 + 1},\n" for n in range(20_000))
    latency = read_samples(written(tmp_path, rows), value_limit=2000).latency
    assert latency
    assert not latency.exact
    assert len(latency.values_s) == 2000
    assert (latency.count, latency.minimum_s, latency.maximum_s, latency.mean_s) == (20_000, 1, 1000, 500.5)
    assert latency.percentile(50) == pytest.approx(500, abs=50)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=300))
def test_a_series_keeps_its_bounds_and_the_sum(measured: list[tuple[float, float]]) -> None:
    series = TimeSeries(limit=16)
    for at_s, value in measured:
        series.add(at_s, value)
    points = series.points(count=8)
    assert 1 <= len(points) <= 9
    values = [value for _, value in measured]
    assert all(min(values) - 1e-6 <= value <= max(values) + 1e-6 for _, value in points)
    assert [at_s for at_s, _ in points] == sorted(at_s for at_s, _ in points)


def test_a_series_shows_the_span_that_is_asked_for() -> None:
    series = TimeSeries()
    for second in range(100):
        series.add(second, second)
    assert series.points(10, 12) == [(10.5, 10), (11.5, 11), (12.5, 12)]
    assert series.points(200, 300) == []
