"""Logs that are cut, garbled, spaced differently, or huge."""

from __future__ import annotations

import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Validity
from parsers.loadgen import parse_folder, read_detail

LOGS = Path(__file__).parent / "logs"
CASES = (
    "server_v6_0_valid",
    "server_v3_1_valid",
    "offline_v4_1_valid",
    "single_stream_v5_0_valid",
    "accuracy_v6_0",
)
DETAIL = {case: (LOGS / case / "mlperf_log_detail.txt").read_bytes() for case in CASES}
WHOLE = {case: {m.name: m.value for m in parse_folder(LOGS / case).metrics} for case in CASES}
COUNTED = {"error_count", "warning_count", "sample_count"}  # counts over the log, smaller if it is cut


def parse_bytes(content: bytes) -> ParsedOutput:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mlperf_log_detail.txt").write_bytes(content)
        return parse_folder(Path(folder))


@settings(max_examples=300)
@given(case=st.sampled_from(CASES), data=st.data())
def test_a_log_cut_at_any_byte_is_an_error_or_incomplete(case: str, data: st.DataObject) -> None:
    content = DETAIL[case]
    # without one byte the last line end is missing, without two also its closing brace
    cut = data.draw(st.integers(min_value=0, max_value=len(content) - 2))
    try:
        output = parse_bytes(content[:cut])
    except ParseError as error:
        assert error.message  # noqa: PT017 (either outcome is right)
        return
    assert output.verdict is not None
    assert not output.complete
    assert output.verdict.validity is Validity.FAILED
    assert output.verdict.reasons[0].code == "incomplete_log"
    for metric in output.metrics:
        assert metric.name in COUNTED or metric.value == WHOLE[case][metric.name]


@pytest.mark.parametrize("case", CASES)
def test_a_log_cut_at_any_line_is_an_error_or_incomplete(case: str) -> None:
    lines = DETAIL[case].splitlines(keepends=True)
    for count in range(len(lines)):
        try:
            output = parse_bytes(b"".join(lines[:count]))
        except ParseError:
            continue
        assert output.verdict is not None
        assert (output.complete, output.verdict.validity) == (False, Validity.FAILED), lines[count]


def test_a_missing_last_line_end_cuts_nothing() -> None:
    assert parse_bytes(DETAIL["server_v6_0_valid"].rstrip(b"\n")).complete


@settings(max_examples=150)
@given(garbage=st.lists(st.binary(max_size=80), min_size=1, max_size=6), data=st.data())
def test_garbage_between_the_lines_changes_no_number(garbage: list[bytes], data: st.DataObject) -> None:
    lines = DETAIL["server_v6_0_valid"].splitlines()
    for junk in garbage:
        if b"is_error" in junk or b"MLLOG" in junk:
            continue
        lines.insert(data.draw(st.integers(0, len(lines))), junk)
    output = parse_bytes(b"\n".join(lines) + b"\n")
    assert {metric.name: metric.value for metric in output.metrics} == WHOLE["server_v6_0_valid"]
    assert output.verdict is not None
    assert output.verdict.validity is Validity.VALID


@settings(max_examples=150)
@given(data=st.data())
def test_a_changed_byte_never_ends_in_a_traceback(data: st.DataObject) -> None:
    content = bytearray(DETAIL["server_v6_0_valid"])
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        output = parse_bytes(bytes(content))
    except ParseError:
        return
    assert output.verdict is not None


ODD = (
    b"nan",
    b"-inf",
    b"-1",
    b"0",
    b"1e999",
    b"9" * 400,
    b"5e-324",
    b"1e300",
    b'""',
    b'"x"',
    b"{}",
    b"null",
    b"true",
)


@settings(max_examples=150)
@given(data=st.data())
def test_an_odd_value_or_key_never_ends_in_a_traceback(data: st.DataObject) -> None:
    lines = DETAIL[data.draw(st.sampled_from(CASES))].splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 4))):
        number = data.draw(st.integers(0, len(lines) - 1))
        before, _, after = lines[number].partition(b'"value": ')
        lines[number] = (
            before + b'"value": ' + data.draw(st.sampled_from(ODD)) + after[after.find(b', "time_ms"') :]
        )
    for key in (b"result_", b"result_{", b"result_._ns", b"early_stopping_latency_", b"logger_ {}"):
        lines.append(b':::MLLOG {"key": "' + key + b'", "value": 1, "time_ms": 1.0, "metadata": {}}\n')
    try:
        output = parse_bytes(b"".join(lines))
    except ParseError:
        return
    assert output.verdict is not None


@settings(max_examples=100)
@given(content=st.binary(max_size=400))
def test_any_bytes_are_an_error_of_ours(content: bytes) -> None:
    with pytest.raises(ParseError):
        parse_bytes(content)


def test_other_spacing_and_line_ends_are_read_alike() -> None:
    content = DETAIL["server_v6_0_valid"]
    spaced = content.replace(b'": ', b'" :  ').replace(b"MLLOG {", b"MLLOG  { ").replace(b"\n", b"\r\n")
    dense = content.replace(b'": ', b'":').replace(b", ", b",")
    for changed in (spaced, dense):
        assert changed != content
        output = parse_bytes(changed)
        assert {metric.name: metric.value for metric in output.metrics} == WHOLE["server_v6_0_valid"]


def test_two_records_on_a_line_are_two_records() -> None:
    content = DETAIL["server_v6_0_valid"]
    assert {m.name: m.value for m in parse_bytes(content.replace(b"\n:::MLLOG", b":::MLLOG")).metrics} == (
        WHOLE["server_v6_0_valid"]
    )


def test_quotes_that_loadgen_does_not_escape() -> None:
    content = DETAIL["server_v6_0_valid"].replace(b'"PySUT"', b'"my "fast" \\ SUT"')
    output = parse_bytes(content)
    assert output.details["sut_name"] == 'my "fast" \\ SUT'
    assert output.complete


def test_an_error_of_any_spelling_counts() -> None:
    content = DETAIL["server_v6_0_valid"]
    for error in (
        b':::MLLOG {"key": "error_x", "value": "a "b" c", "time_ms": 1, "metadata": {"is_error":true}}\n',
        b':::MLLOG {"key": "anything", "value": 1, "time_ms": 1.0, "metadata": {"is_error" : true}}\n',
        b':::MLLOG {"key": "error_runtime", "value": "half a li\n',
    ):
        output = parse_bytes(error + content)
        assert output.verdict is not None
        assert output.verdict.validity is Validity.INVALID, error
        assert [reason.code for reason in output.verdict.reasons] == ["errors"]


def test_many_different_errors_are_counted_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "mlperf_log_detail.txt"
    record = ':::MLLOG {{"key": "error_x", "value": "{}", "time_ms": 1, "metadata": {{"is_error": true}}}}\n'
    with path.open("w") as file:
        for number in range(3000):
            file.write(record.format(f"sample {number} {'x' * 1000}"))
            file.write(record.format("abcdefghijklmnopqrstuvwxyz"[number % 26] * (number % 40 + 1)))
    log = read_detail(path)
    assert log.errors.count == 6000
    assert sum(log.errors.distinct.values()) == 6000
    assert len(log.errors.distinct) <= 21
    assert max(log.errors.distinct.values()) >= 3000  # they differ only in their number


def test_lines_of_any_length_are_read_in_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "mlperf_log_detail.txt"
    sample_set = b"[" + b"12345," * 2_000_000 + b"1]"
    line = (
        b':::MLLOG {"key": "loaded_qsl_set", "value": ' + sample_set + b', "time_ms": 1.0, "metadata": {}}\n'
    )
    path.write_bytes(line + DETAIL["server_v6_0_valid"] + line * 2)
    del line, sample_set
    tracemalloc.start()
    log = read_detail(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.stat().st_size > 30_000_000
    assert peak < 4_000_000
    assert (log.sample_sets, log.broken_lines, log.cut) == (3, 0, False)
    assert log.number("result_query_count") == 601
