"""The table of what each version writes, compared with logs that are written without it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from parsers.loadgen.versions import LINES, RECORDS, SCENARIOS, Kind, Record, is_well_formed, read_version
from parsers.loadgen.whole import foreign_lines
from tests.parsers.loadgen.changed_runs import changed_run
from tests.parsers.loadgen.test_numbers import findings
from tests.parsers.loadgen.written_logs import RELEASES

KINDS = [
    (version, scenario, tokens)
    for version, scenario, tokens in product(RELEASES, sorted(SCENARIOS), (False, True))
    if not tokens or "tokens" in RELEASES[version]
]
IN_THE_DETAIL_LOG_ALONE = {
    "effective_min_sample_count",
    "effective_scenario",
    "effective_target_duration_ms",
    "effective_test_mode",
    "result_overlatency_query_count",
    "result_query_count",
    "result_token_throughput",
    "result_validity",
}


def run_of(version: str, scenario: str, *, tokens: bool) -> dict[str, Any]:
    return {"run": {"version": version, "scenario": scenario, "tokens": tokens}, "files": "both"}


@pytest.mark.parametrize(("version", "scenario", "tokens"), KINDS)
def test_a_summary_gives_each_number_under_the_key_of_the_detail_log(
    version: str, scenario: str, *, tokens: bool
) -> None:
    case = run_of(version, scenario, tokens=tokens)
    assert findings(case) == {}
    log, summary = changed_run(case)
    alone = set(IN_THE_DETAIL_LOG_ALONE)
    if scenario in {"Server", "Offline"} or version in {".5a1", "1.1"}:
        alone.add("effective_target_latency_percentile")
    if scenario == "Offline":
        alone |= {"early_stopping_result", "early_stopping_ttft_result", "early_stopping_tpot_result"}
    if scenario == "MultiStream":
        alone |= {key for key in log.values if "num_intervals" in key}
        alone |= {f"result_{name}_latency_ns" for name in ("min", "max", "mean")}
        alone |= {key for key in log.values if key.endswith("_percentile_latency_ns") and "first" not in key}
    if tokens:
        alone.add("effective_target_latency_ns")
        alone |= (
            {"result_completed_tokens_per_second"} if scenario in {"SingleStream", "MultiStream"} else set()
        )
    if scenario in {"Server", "MultiStream"}:
        alone.add("result_token_throughput_with_loadgen_overhead")
    logged = {key for key in log.values if key.startswith(("result_", "early_stopping_", "effective_"))}
    repeated = summary.numbers.keys() | summary.flags.keys() | summary.texts.keys()
    assert logged - alone <= repeated
    assert repeated - log.values.keys() <= {
        "requested_server_ttft_latency",
        "requested_server_tpot_latency",
        "result_completed_tokens_per_second",  # in the detail log since 4.1
    }
    limits = {key for key in repeated if key.startswith("requested_server_")}
    assert limits == ({"requested_server_ttft_latency", "requested_server_tpot_latency"} if tokens else set())


@pytest.mark.parametrize(
    ("version", "tokens", "other", "lost"),
    [
        ("6.0.17", True, "5.1.0", set()),
        ("5.0.22", True, "6.0.17", set()),
        ("6.0.17", False, "6.0.17", {"early stopping result", "target_latency (ns)"}),
        ("3.0", False, "6.0.17", {"early stopping result", "target_latency (ns)"}),
    ],
)
@pytest.mark.parametrize("scenario", ["SingleStream", "Server"])
def test_lines_that_another_version_alone_writes_are_foreign(
    version: str, other: str, scenario: str, lost: set[str], *, tokens: bool
) -> None:
    log, summary = changed_run(run_of(version, scenario, tokens=tokens))
    _, another = changed_run(run_of(other, scenario, tokens=True))
    foreign = another.names() - summary.names() if version != other else set()
    if not tokens:
        own = summary.said
        for name in another.names() - summary.names() - {"accuracy_sample_count"}:
            summary.said = own | {name: ["1"]}
            assert summary.token_latencies is ("#" not in name or "first token" in name), name
        summary.said = own
    summary.said |= another.said
    assert set(foreign_lines(summary, log.version_parts)) == foreign | lost


def test_each_row_of_the_table_is_whole() -> None:
    for row in (*RECORDS, *LINES):
        assert isinstance(row.kind, Kind)
        assert row.name == row.name.lower()
        assert row.scenarios <= SCENARIOS
        assert row.since[0] <= row.since[1] <= row.until[0] <= row.until[1]


@pytest.mark.parametrize(
    ("version", "may", "must"),
    [
        ((1, 9), False, False),
        ((2, 0), True, False),
        ((2, 9), True, False),
        ((3, 0), True, True),
        ((3, 9), True, True),
        ((4, 0), True, False),
        ((4, 9), True, False),
        ((5, 0), False, False),
    ],
)
def test_a_row_may_or_must_be_written_in_its_spans(
    version: tuple[int, ...], *, may: bool, must: bool
) -> None:
    row = Record("a", Kind.TEXT, tokens=True, since=((2, 0), (3, 0)), until=((4, 0), (5, 0)))
    assert row.may(version, "Server", tokens=True) is may
    assert row.must(version, "Server", tokens=True) is must
    for scenario, tokens in (("Server", False), ("Other", True)):
        assert not row.may(version, scenario, tokens=tokens)
        assert not row.must(version, scenario, tokens=tokens)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("6.0.10 @ NA", (6, 0, 10)),
        ("5.0 @ a @ b", (5, 0)),
        (" 4.1@c", (4, 1)),
        (".5a1 @ 6958607d52", (1, 0)),
        ("6", None),
        ("6.0.0.1", None),
        ("1234.0", None),
        ("6.x", None),
        ("", None),
    ],
)
def test_a_version_is_two_or_three_numbers(text: str, version: tuple[int, ...] | None) -> None:
    assert read_version(text) == version


@pytest.mark.parametrize(
    ("kind", "valid", "invalid"),
    [
        (Kind.FLAG, (True, False), (1, 0, "true", None)),
        (Kind.TEXT, ("", "a"), (1, None, True)),
        (Kind.VERDICT, ("VALID", "INVALID"), ("", "valid", None, True)),
        (Kind.COUNT, (0, 1, 5.0, 2**64 - 1), (-1, 0.5, 2**64, True, "1", None, float("nan"), float("inf"))),
        (Kind.RATE, (0, 0.5, 1e19), (-0.5, 2**64, True, "1", None, float("nan"), float("inf"))),
        (Kind.LATENCY, (0.5, 1, 2**63), (0, -1, 2**64, True, "1", None, float("nan"), float("inf"))),
        (Kind.ESTIMATE, (0, 1, 2**63), (-1, 0.5, 2**64, True, "1", None, float("nan"), float("inf"))),
    ],
)
def test_a_value_of_each_kind(kind: Kind, valid: tuple[object, ...], invalid: tuple[object, ...]) -> None:
    assert [value for value in valid if not is_well_formed(kind, value)] == []
    assert [value for value in invalid if is_well_formed(kind, value)] == []
