"""Logs whose numbers cannot be of one run, although detail log and summary agree on each of them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from agent.core.records import Validity
from parsers.loadgen import parse_folder
from parsers.loadgen.arithmetic import impossible
from parsers.loadgen.detail import read_detail

DETAIL, SUMMARY = "mlperf_log_detail.txt", "mlperf_log_summary.txt"
OFFLINE, SERVER, STREAM = "offline_v6_0_valid", "server_v6_0_valid", "single_stream_v5_0_valid"

CHANGES: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "rate times ten": (
        OFFLINE, {"result_samples_per_second": "4656.16"}, {"Samples per second": "4656.16"}),
    "a digit of the rate lost": (
        OFFLINE, {"result_samples_per_second": "45.616"}, {"Samples per second": "45.616"}),
    "rate and tokens times ten": (
        OFFLINE, {"result_samples_per_second": "4656.16", "result_tokens_per_second": "148997"},
        {"Samples per second": "4656.16", "Tokens per second": "148997"}),
    "fewer tokens than samples": (
        OFFLINE, {"result_tokens_per_second": "300"}, {"Tokens per second": "300"}),
    "a mean above the maximum": (
        OFFLINE, {"result_mean_latency_ns": "9417475734"}, {"Mean latency (ns)": "9417475734"}),
    "a mean below the minimum": (
        OFFLINE, {"result_mean_latency_ns": "2"}, {"Mean latency (ns)": "2"}),
    "a percentile that only the summary has": (OFFLINE, {}, {"95.00 percentile latency (ns)": "5"}),
    "a first token after every answer": (
        SERVER, {"result_first_token_max_latency_ns": "96705656"},
        {"Max First Token latency (ns)": "96705656"}),
    "more completed than scheduled": (
        SERVER, {"result_completed_samples_per_sec": "899.59"}, {"Completed samples per second": "899.59"}),
    "scheduled times ten": (
        SERVER, {"result_scheduled_samples_per_sec": "2999.26"}, {"Scheduled samples per second": "2999.26"}),
    "a digit of the queries lost": (SERVER, {"result_query_count": "60"}, {}),
    "fewer queries than the minimum": (SERVER, {"result_query_count": "99"}, {}),
    "tokens times ten": (
        SERVER, {"result_completed_tokens_per_second": "96028.9"},
        {"Completed tokens per second": "96028.9"}),
    "a digit of the tokens lost": (
        SERVER, {"result_completed_tokens_per_second": "960.89"},
        {"Completed tokens per second": "960.89"}),
    "token throughput times ten": (SERVER, {"result_token_throughput": "7.7328e-05"}, {}),
    "queries per second of another run": (
        STREAM, {"result_qps_without_loadgen_overhead": "9.1"}, {"QPS w/o loadgen overhead": "9.1"}),
    "queries with overhead of another run": (
        STREAM, {"result_qps_with_loadgen_overhead": "99999.1"}, {"QPS w/ loadgen overhead": "99999.1"}),
}  # fmt: skip
"""A log, the detail log's records and the summary's lines to change."""
SHOWN_ALONE = {
    "rate times ten", "a digit of the rate lost", "rate and tokens times ten", "fewer tokens than samples",
    "a mean above the maximum", "a mean below the minimum", "a percentile that only the summary has",
    "a first token after every answer", "more completed than scheduled", "tokens times ten",
    "a digit of the tokens lost", "queries per second of another run",
}  # fmt: skip
"""Changes that the summary alone reveals."""


def changed(logs: Path, name: str, folder: Path) -> Path:
    log, records, lines = CHANGES[name]
    shutil.copytree(logs / log, folder)
    detail, summary = (folder / file for file in (DETAIL, SUMMARY))
    text = detail.read_text()
    for key, value in records.items():
        text, count = re.subn(f'("key": "{re.escape(key)}", "value": )[^,]+', rf"\g<1>{value}", text)
        assert count == 1, key
    detail.write_text(text)
    text = summary.read_text()
    for line, value in lines.items():
        text, count = re.subn(rf"(?m)^(\s*{re.escape(line)}\s*: ).*$", rf"\g<1>{value}", text)
        assert count, line
    summary.write_text(text)
    return folder


@pytest.mark.parametrize("name", CHANGES)
def test_numbers_that_cannot_be_of_one_run(logs: Path, tmp_path: Path, name: str) -> None:
    folder = changed(logs, name, tmp_path / "log")
    output = parse_folder(folder)
    assert output.verdict is not None
    assert output.verdict.validity is Validity.INVALID
    assert {reason.code for reason in output.verdict.reasons} <= {"contradiction", "logs_disagree"}
    (folder / DETAIL).unlink()
    output = parse_folder(folder)
    assert output.verdict is not None
    assert (output.verdict.validity is Validity.INVALID) == (name in SHOWN_ALONE)


def test_a_rate_of_few_queries_counts_one_sample_less_than_their_tokens() -> None:
    """Read the log of a run of LoadGen 6.0.17 with 32 queries, each of 8 tokens."""
    log = read_detail(Path(__file__).parent / "few_queries" / DETAIL)
    assert list(impossible(log)) == []


@pytest.mark.parametrize("log", [OFFLINE, SERVER, STREAM])
def test_logs_as_they_are_do_not_contradict_themselves(logs: Path, log: str) -> None:
    output = parse_folder(logs / log)
    assert output.verdict is not None
    assert (output.verdict.validity, output.verdict.reasons) == (Validity.VALID, ())


def test_a_mean_that_overflowed_is_left_out(logs: Path, tmp_path: Path) -> None:
    """LoadGen adds latencies up in 64 bits: 5 million samples of 10 minutes are more."""
    folder = tmp_path / "log"
    shutil.copytree(logs / OFFLINE, folder)
    detail = folder / DETAIL
    text = detail.read_text().replace("1417475734", "693637000000")
    for key, value in (
        ("result_samples_per_second", "72083.8"),
        ("result_tokens_per_second", "2306681"),
        ("result_mean_latency_ns", "2351530"),
        ("generated_samples_per_query", "50000000"),
    ):
        text, count = re.subn(f'("key": "{key}", "value": )[^,]+', rf"\g<1>{value}", text)
        assert count == 1, key
    detail.write_text(text)
    (folder / SUMMARY).unlink()
    output = parse_folder(folder)
    assert output.verdict is not None
    assert "contradiction" not in {reason.code for reason in output.verdict.reasons}
    assert "latency_mean" not in {metric.name for metric in output.metrics}
