"""The settings to change after missed early stopping, or after a limit ended the test."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parsers.loadgen import parse_folder
from parsers.loadgen.early_stopping import late_allowed, queries_at_same_share, queries_needed

if TYPE_CHECKING:
    from agent.core.records import Reason

Edit = Callable[..., Path]


def reasons(folder: Path) -> dict[str, Reason]:
    verdict = parse_folder(folder).verdict
    assert verdict is not None
    return {reason.code: reason for reason in verdict.reasons}


def too_few(processed: int, more: int) -> dict[str, object]:
    """Return LoadGen's log of a Server run whose TPOT misses early stopping."""
    text = f" * Processed {processed} queries.  * Would need to run at least {more} more queries,"
    return {
        "result_validity": "INVALID",
        "early_stopping_met": False,
        "early_stopping_tpot_result": text,
        "early_stopping_ttft_result": "",
    }


@pytest.mark.parametrize(
    ("processed", "late", "setting", "value"),
    [
        (228, 0, "min_query_count", 459),
        (500, 1, "min_query_count", 838),  # 662 with one overrun, but then two are expected
        (2000, 12, "min_query_count", 3554),
        (1000, 8, "target_qps", 270),  # 0.8 %: 13500 queries
        (2000, 22, "target_qps", 270),  # 1.1 %: never enough
    ],
)
def test_early_stopping_counts_on_further_late_queries(
    edit: Edit, processed: int, late: int, setting: str, value: int
) -> None:
    missed = too_few(processed, queries_needed(late, 0.99) - processed)
    reason = reasons(edit("server_v6_0_valid", **missed))["early_stopping"]
    assert (reason.setting, reason.value) == (setting, value)
    if setting == "min_query_count":
        assert late_allowed(value, 0.99) >= value * late / processed
        assert (f"if none of them is over the limit, as {late} were" in reason.message) is (late > 0)
    else:
        assert f"with {late} of {processed} queries over the limit" in reason.remedy


def test_early_stopping_in_garbled_numbers_asks_for_less_load(edit: Edit) -> None:
    reason = reasons(edit("server_v6_0_valid", **too_few(0, 10**24)))["early_stopping"]
    assert reason.setting == "target_qps"


def ended_early(why: str) -> bytes:
    text = f"IssueQueryThread 0 Ending early: {why} 100"
    record = {"key": "error_runtime", "value": text, "time_ms": 1.0, "metadata": {"is_error": True}}
    return b":::MLLOG " + json.dumps(record).encode() + b"\n"


@pytest.mark.parametrize("case", ["server_v6_0_valid", "single_stream_v5_0_valid", "multi_stream_v6_0_valid"])
@pytest.mark.parametrize(
    ("why", "setting"),
    [
        ("Too many outstanding queries. issued 100 outstanding", "max_async_queries"),
        ("Max query count reached. query_count", "max_query_count"),
        ("Max test duration reached. duration_ns", "max_duration"),
    ],
)
def test_what_ended_a_test_early_is_the_remedy_in_every_scenario(
    edit: Edit, case: str, why: str, setting: str
) -> None:
    missed = ("result_min_duration_met", "result_min_queries_met", "early_stopping_met")
    folder = edit(case, result_validity="INVALID", **dict.fromkeys(missed, False))
    detail = folder / "mlperf_log_detail.txt"
    detail.write_bytes(ended_early(why) + detail.read_bytes())
    found = reasons(folder)
    assert f"remove {setting}" in found["errors"].remedy
    for code in ("min_duration", "min_queries"):
        assert (found[code].setting, found[code].value) == (setting, 0)
        assert f"remove {setting}" in found[code].remedy


def test_early_stopping_is_missed_because_of_what_ended_the_test(logs: Path, tmp_path: Path) -> None:
    content = (logs / "server_v5_1_early_stopping" / "mlperf_log_detail.txt").read_bytes()
    (tmp_path / "mlperf_log_detail.txt").write_bytes(ended_early("Max query count reached.") + content)
    reason = reasons(tmp_path)["early_stopping"]
    assert (reason.setting, reason.value) == ("max_query_count", 0)


def test_a_limit_far_from_reached_ended_nothing(edit: Edit) -> None:
    folder = edit("server_v6_0_valid", result_validity="INVALID", result_min_duration_met=False)
    detail = folder / "mlperf_log_detail.txt"
    line = next(
        line for line in detail.read_text().splitlines(keepends=True) if "effective_min_query" in line
    )
    limits = line.replace("min_query_count", "max_query_count").replace('"value": 100', '"value": 100000')
    detail.write_text(limits + detail.read_text())
    assert reasons(folder)["min_duration"].setting == "min_query_count"


@pytest.mark.parametrize(
    ("percentile", "late", "queries"),
    [(0.99, 0, 459), (0.99, 1, 662), (0.99, 10, 2010), (0.99, 100, 12571), (0.9, 0, 44), (0.9, 1, 64)],
)
def test_queries_needed_are_loadgens(percentile: float, late: int, queries: int) -> None:
    assert queries_needed(late, percentile) == queries
    assert late_allowed(queries, percentile) == late
    assert late_allowed(queries - 1, percentile) == late - 1


@pytest.mark.parametrize(
    ("processed", "late", "queries"),
    [
        (200, 0, 459),
        (200, 1, None),  # 4 * 459 queries, of which 10 are late, are not enough
        (500, 1, 838),
        (1000, 8, None),
        (5, 5, None),
        (0, 1, None),
    ],
)
def test_queries_at_the_same_share_of_late_ones(processed: int, late: int, queries: int | None) -> None:
    assert queries_at_same_share(processed, late, 0.99) == queries
