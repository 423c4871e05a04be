"""A detail log in full: each field that its lines give."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from agent.core.errors import ParseError
from parsers.loadgen import DetailLog, read_detail
from parsers.loadgen.detail import Messages, is_before_1_0


def record(
    key: str, value: str, time: str = "1.5", meta: str = '"is_error": false, "is_warning": false'
) -> str:
    return f':::MLLOG {{"key": "{key}", "value": {value}, "time_ms": {time}, "metadata": {{{meta}}}}}\n'


ERROR, WARNING = '"is_error": true', '"is_warning": true'
OLD = '"pid": 1, "tid": 2, "ts": -3ns : version : .5a1\n'
LONG = "7" * (1 << 16)

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "a record of each kind": (
        record("loadgen_version", '"6.0.17 @ NA"')
        + record("result_min_latency_ns", "5", "7.0")
        + record("result_query_count", '"12"')
        + record("result_max_latency_ns", "NaN")
        + record("result_mean_latency_ns", "-inf")
        + record("result_min_duration_met", "true")
        + record("generic_message", '"a"')
        + record("effective_b", "[1]")
        + record("result_perf_constraints_met", "tru"),
        {
            "values": {
                "loadgen_version": "6.0.17 @ NA",
                "result_min_latency_ns": 5,
                "result_query_count": 12,
                "result_min_duration_met": True,
            },
            "not_finite": {"result_max_latency_ns", "result_mean_latency_ns"},
            "records": 9,
            "broken_lines": 1,
            "counts": {
                "loadgen_version": 1,
                "result_min_latency_ns": 1,
                "result_query_count": 1,
                "result_max_latency_ns": 1,
                "result_mean_latency_ns": 1,
                "result_min_duration_met": 1,
                "effective_b": 1,
                "result_perf_constraints_met": 1,
            },
            "last_time_ms": 7.0,
        },
    ),
    "records that count in full": (
        record("generated_query_count", "3")
        + record("generated_samples_per_query", "20")
        + record("generated_samples_per_query", "4")
        + record("loaded_qsl_set", "[1,2,3]")
        + record("loaded_qsl_set", "[4]")
        + record("power_end", '"a"', "4.0")
        + record("power_end", '"b"', "1e12")
        + record("result_validity", '"VALID"')
        + record("result_validity", '"VALID"')
        + record("result_validity", '"INVALID"', "-1.0"),
        {
            "values": {
                "generated_query_count": 3,
                "generated_samples_per_query": 4,
                "power_end": "b",
                "result_validity": "INVALID",
            },
            "validities": ["VALID", "INVALID"],
            "records": 10,
            "sample_sets": 2,
            "samples_loaded": 4,
            "rounds_ended": 2,
            "counts": {
                "generated_query_count": 1,
                "generated_samples_per_query": 2,
                "power_end": 2,
                "result_validity": 3,
            },
            "samples_generated": 72,
            "last_time_ms": 4.0,
        },
    ),
    "errors and warnings": (
        record("error_runtime", '"no 1"', meta="")
        + record("other", '"no 2"', meta=ERROR)
        + record("error_invalid_config", '""', meta=ERROR)
        + record("warning_a", '"b"', meta=WARNING)
        + record("result_b", "true")
        + 'a line with "is_error": true \n'
        + "another line\n\n",
        {
            "values": {"result_b": True},
            "errors": Messages(4, {"no 1": 2, "error_invalid_config": 1, 'a line with "is_error": true': 1}),
            "warnings": Messages(1, {"b": 1}),
            "records": 5,
            "broken_lines": 2,
            "counts": {"result_b": 1},
            "last_time_ms": 1.5,
        },
    ),
    "records on one line": (
        record("result_a", "1").rstrip("\n")
        + record("result_a", "2", "9.0")
        + record("result_a", "3", "1.0"),
        {
            "values": {"result_a": 3},
            "records": 3,
            "counts": {"result_a": 3},
            "last_time_ms": 9.0,
        },
    ),
    "a line that is cut": (
        record("result_a", "1") + ':::MLLOG {"key": "result_a", "value": 2',
        {
            "values": {"result_a": 1},
            "records": 2,
            "broken_lines": 1,
            "cut": True,
            "counts": {"result_a": 2},
            "last_time_ms": 1.5,
        },
    ),
    "a last line without its end": (
        record("result_a", "1") + record("result_a", "2").rstrip("\n"),
        {
            "values": {"result_a": 2},
            "records": 2,
            "counts": {"result_a": 2},
            "last_time_ms": 1.5,
        },
    ),
    "a set of samples that is longer than a line may be": (
        record("loaded_qsl_set", f"[1,{LONG},2]") + record("loaded_qsl_set", "5") + record("result_a", "1"),
        {
            "values": {"result_a": 1},
            "records": 3,
            "sample_sets": 2,
            "samples_loaded": 3,
            "counts": {"result_a": 1},
            "last_time_ms": 1.5,
        },
    ),
    "keys and texts that are not ASCII": (
        record("result_\udcff", "1")
        + record("result_b\udcff", "2", meta=WARNING)
        + 'x\udcff "is_error": true\n',
        {
            "values": {"result_\ufffd": 1, "result_b\ufffd": 2},
            "errors": Messages(1, {'x\ufffd "is_error": true': 1}),
            "warnings": Messages(1, {"2.0": 1}),
            "records": 2,
            "broken_lines": 1,
            "counts": {"result_\ufffd": 1, "result_b\ufffd": 1},
            "last_time_ms": 1.5,
        },
    ),
    "the same message several times": (
        record("error_a", '"b"', "1.0") * 2
        + record("error_a", '"b"', "2.0")
        + record("error_a", '"b "time_ms" c"')
        + record("error_a", '"b "time_ms" d"')
        + record("warning_e", '""', meta=WARNING),
        {
            "errors": Messages(5, {"b": 3, 'b "time_ms" c': 1, 'b "time_ms" d': 1}),
            "warnings": Messages(1, {"warning_e": 1}),
            "records": 6,
        },
    ),
    "lines that are not whole": (
        " "
        + record("result_a", "1")
        + record("result_a", "2")
        + record("result_a", "3")
        + ":::MLLOG a\n:::MLLOG b\n"
        + ':::MLLOG {"key": "result_b", "value": c}\n:::MLLOG {"key": "result_b", "value": d}\n'
        + ':::MLLOG {"key": "result_e", "value": "f "g"", "time_ms": 3.0',
        {
            "values": {"result_a": 3},
            "records": 6,
            "broken_lines": 4,
            "cut": True,
            "counts": {"result_a": 3, "result_b": 2, "result_e": 1},
            "last_time_ms": 1.5,
        },
    ),
    "sets beside other lists": (
        record("loaded_qsl_set", "[1,2,3]", meta='"a": [4]')
        + record("power_end", f'"{LONG},5,6]"', "7.0")
        + record("power_end", '"b"', "8.0"),
        {
            "values": {"power_end": "b"},
            "records": 3,
            "sample_sets": 1,
            "samples_loaded": 3,
            "broken_lines": 1,
            "rounds_ended": 1,
            "round_ended_ms": 8.0,
            "counts": {"power_end": 2},
            "last_time_ms": 8.0,
        },
    ),
    "a time of 0": (
        record("a", "1") + record("sut_name", '"12"', "0.0"),
        {
            "values": {"sut_name": "12"},
            "records": 2,
            "counts": {"sut_name": 1},
            "last_time_ms": 0.0,
        },
    ),
    "a time below a millisecond": (
        record("num_errors", "0", "0.5"),
        {
            "values": {"num_errors": 0},
            "records": 1,
            "counts": {"num_errors": 1},
            "last_time_ms": 0.5,
        },
    ),
    "samples without a number of queries": (
        record("generated_samples_per_query", "20"),
        {
            "values": {"generated_samples_per_query": 20},
            "records": 1,
            "counts": {"generated_samples_per_query": 1},
            "last_time_ms": 1.5,
        },
    ),
    "queries without a number of samples": (
        record("generated_query_count", "3") + record("generated_samples_per_query", '"a"'),
        {
            "values": {"generated_query_count": 3, "generated_samples_per_query": "a"},
            "records": 2,
            "counts": {"generated_query_count": 1, "generated_samples_per_query": 1},
            "last_time_ms": 1.5,
        },
    ),
    "more verdicts than are kept": (
        "".join(record("result_validity", f'"{value}"') for value in "abcdeef"),
        {
            "values": {"result_validity": "f"},
            "validities": ["a", "b", "c", "d"],
            "records": 7,
            "counts": {"result_validity": 7},
            "last_time_ms": 1.5,
        },
    ),
    "text that is not escaped": (
        record("result_invalid_reason", '"a "b" c"') + record("sut_name", '"x\ty"', "x"),
        {
            "values": {"result_invalid_reason": 'a "b" c', "sut_name": "x\ty"},
            "records": 2,
            "counts": {"result_invalid_reason": 1, "sut_name": 1},
            "last_time_ms": 1.5,
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_detail_log_is_read_in_full(tmp_path: Path, name: str) -> None:
    text, expected = CASES[name]
    path = tmp_path / "detail.txt"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    log, empty = read_detail(path), DetailLog(path)
    for messages in (log.errors, log.warnings):
        messages._first, messages._raw = {}, {}
    read = {field.name: getattr(log, field.name) for field in fields(log)}
    assert {key: value for key, value in read.items() if value != getattr(empty, key)} == expected


@pytest.mark.parametrize("meta", ["", WARNING])
def test_keys_are_kept_up_to_a_bound(tmp_path: Path, meta: str) -> None:
    path = tmp_path / "detail.txt"
    numbers = [*range(2002), 0, 2001]
    path.write_text("".join(record(f"result_{at}", str(row), meta=meta) for row, at in enumerate(numbers)))
    log = read_detail(path)
    assert log.values == {f"result_{at}": at or 2002 for at in range(2000)}
    assert log.counts == {f"result_{at}": 1 if at else 2 for at in range(2000)}
    assert log.records == 2004


NONE = "holds no LoadGen record (a line that starts with :::MLLOG)"


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("a\n", NONE, "name the folder that LoadGen wrote to; an empty log means that the run never started"),
        (OLD, "it was written by LoadGen 0.5 or 0.7, which is too old: they write no :::MLLOG records",
         "run the test again with LoadGen 1.0 or later"),
        (None, "cannot read the log: Is a directory", None),
    ],
)  # fmt: skip
def test_a_detail_log_that_cannot_be_read(
    tmp_path: Path, text: str | None, message: str, remedy: str | None
) -> None:
    path = tmp_path
    if text is not None:
        path = tmp_path / "detail.txt"
        path.write_text(text)
    with pytest.raises(ParseError) as caught:
        read_detail(path)
    assert (caught.value.message, caught.value.where, caught.value.remedy) == (message, str(path), remedy)


def test_a_log_before_1_0_begins_with_its_process(tmp_path: Path) -> None:
    (tmp_path / "old").write_text(OLD)
    (tmp_path / "new").write_text(f"a\n{OLD}")
    assert [is_before_1_0(tmp_path / name) for name in ("old", "new", "absent")] == [True, False, False]


def test_messages_are_kept_up_to_a_bound() -> None:
    messages = Messages()
    kinds = [f"{'a' * kind} {kind}" for kind in range(1, 24)]
    assert [messages.add(text) for text in kinds] == [*kinds[:20], *["other messages"] * 3]
    assert messages.add("a 99") == "a 1"
    assert messages.add("b" * 301) == "other messages"
    assert messages.count == 25
    assert messages.distinct == {**dict.fromkeys(kinds[:20], 1), "a 1": 2, "other messages": 4}
    assert Messages().add("b" * 301) == "b" * 300


def test_values_are_numbers_flags_and_texts() -> None:
    values: dict[str, Any] = {
        "zero": 0, "one": 1, "half": 0.5, "large": 1e25, "larger": 1e26, "small": 1.5e-25,
        "smaller": 1 / 1e25, "flag": True, "text": "a", "digits": "1",
    }  # fmt: skip
    log = DetailLog(Path(), values=values)
    numbers = {key: log.number(key) for key in (*values, "absent")}
    assert {key: number for key, number in numbers.items() if number is not None} == {
        "zero": 0.0, "one": 1.0, "half": 0.5, "large": 1e25, "small": 1.5e-25, "smaller": 0.0,
    }  # fmt: skip
    assert isinstance(numbers["one"], float)
    assert [log.flag(key) for key in ("flag", "one", "text", "absent")] == [True, None, None, None]
    assert [log.text(key) for key in ("flag", "one", "text", "absent")] == ["True", "1", "a", ""]


def test_keys_that_occur_twice_are_several_runs() -> None:
    assert (DetailLog(Path()).runs, DetailLog(Path(), counts={"result_a": 1}).runs) == (1, 1)
    once = ("result_a", "effective_a", "requested_a", "num_errors", "test_datetime", "loadgen_version")
    log = DetailLog(Path(), counts={**dict.fromkeys(once, 2), "power_begin": 5, "result_b": 3, "result_c": 1})
    assert log.repeated() == {**dict.fromkeys(once, 2), "result_b": 3}
    assert log.runs == 3


@pytest.mark.parametrize(
    ("text", "version", "parts"),
    [("6.0.10 @ NA", "6.0.10", (6, 0, 10)), (".5a1 @ 6", "1.0", (1, 0)), ("x @ y @ z", "x", (4, 1))],
)
def test_the_version_of_a_log(text: str, version: str, parts: tuple[int, ...]) -> None:
    log = DetailLog(Path(), values={"loadgen_version": text}, assumed_version=(4, 1))
    assert (log.version, log.version_parts) == (version, parts)


def test_scenario_and_mode_are_the_effective_ones() -> None:
    log = DetailLog(Path(), values={"requested_scenario": "Server", "requested_test_mode": "AccuracyOnly"})
    assert (log.scenario, log.mode, log.token_latencies) == ("Server", "AccuracyOnly", False)
    log.values |= {"effective_scenario": "Offline", "effective_test_mode": "PerformanceOnly"}
    log.values["requested_use_token_latencies"] = True
    assert (log.scenario, log.mode, log.token_latencies) == ("Offline", "PerformanceOnly", True)
    assert log.settings() == {"scenario": "Offline", "test_mode": "PerformanceOnly"}
