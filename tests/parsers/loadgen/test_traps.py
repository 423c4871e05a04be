"""Properties of LoadGen's logs that have misled readers, each with a test."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from agent.core.records import ParsedOutput, Validity
from parsers.loadgen import parse_folder, read_summary

Edit = Callable[..., Path]


def codes(output: ParsedOutput) -> list[str]:
    assert output.verdict is not None
    return [reason.code for reason in output.verdict.reasons]


def validity(output: ParsedOutput) -> Validity:
    assert output.verdict is not None
    return output.verdict.validity


def value(output: ParsedOutput, name: str) -> float:
    return next(metric.value for metric in output.metrics if metric.name == name)


def names(output: ParsedOutput) -> set[str]:
    return {metric.name for metric in output.metrics}


def rewrite(path: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, path.read_text(), flags=re.MULTILINE)
    assert count, f"{pattern} is not in {path.name}"
    path.write_text(text)


def test_1_valid_with_errors_and_no_token_is_invalid_and_shows_both(logs: Path) -> None:
    output = parse_folder(logs / "offline_v6_0_valid_with_errors")
    assert validity(output) is Validity.INVALID
    assert output.details["loadgen_verdict"] == "VALID"
    assert codes(output) == ["errors", "no_tokens"]  # 22 errors, but one reason
    assert output.verdict is not None
    error = output.verdict.reasons[0]
    assert error.message.startswith("LoadGen says VALID, but the log holds the error 'Number of tokens")
    assert "(22 times)" in error.message
    assert "QuerySampleResponse" in error.remedy
    assert value(output, "error_count") == 22


def test_1_no_token_alone_is_enough(edit: Edit) -> None:
    assert codes(parse_folder(edit("offline_v6_0_valid", result_tokens_per_second=0))) == ["no_tokens"]


def test_1_errors_that_loadgen_counted_but_the_log_lost(edit: Edit) -> None:
    output = parse_folder(edit("offline_v6_0_valid", num_errors=3))
    assert codes(output) == ["errors"]
    assert validity(output) is Validity.INVALID


def test_2_the_empty_ttft_text_is_explained_by_tpot(logs: Path) -> None:
    output = parse_folder(logs / "server_v5_1_early_stopping")
    assert output.verdict is not None
    (reason,) = output.verdict.reasons
    assert "(TPOT): 228 queries are too few, needs 231 more" in reason.message
    assert "TTFT was not checked" in reason.message
    assert (reason.setting, reason.value) == ("min_query_count", 459)


def test_3_an_empty_invalid_reason_still_gives_a_reason(logs: Path, edit: Edit) -> None:
    text = (logs / "server_v5_1_early_stopping" / "mlperf_log_detail.txt").read_text()
    assert '"key": "result_invalid_reason", "value": ""' in text
    output = parse_folder(edit("offline_v6_0_valid", result_validity="INVALID"))
    assert codes(output) == ["loadgen_invalid"]


def test_4_overlatency_is_a_number_only_without_token_latencies(logs: Path) -> None:
    assert "overlatency_query_count" not in names(parse_folder(logs / "server_v6_0_valid"))
    assert value(parse_folder(logs / "server_v6_0_default_limit"), "overlatency_query_count") == 0


def test_5_token_throughput_is_per_nanosecond_in_the_log(logs: Path) -> None:
    output = parse_folder(logs / "single_stream_v5_0_valid")
    metric = next(m for m in output.metrics if m.name == "tokens_per_second_without_loadgen_overhead")
    assert metric.value == pytest.approx(9608.72)
    assert metric.metadata["tool_value"] == pytest.approx(9.60872e-06)
    assert metric.metadata["tool_unit"] == "tokens/ns"


def test_6_early_stopping_of_an_llm_single_stream_is_of_the_first_token(logs: Path) -> None:
    output = parse_folder(logs / "single_stream_v5_0_valid")
    estimate = value(output, "early_stopping_ttft_p90")
    assert value(output, "ttft_p90") <= estimate < value(output, "latency_p90")
    assert not {name for name in names(output) if name.startswith("early_stopping_latency")}


def test_6_without_tokens_it_is_of_the_latency(edit: Edit) -> None:
    folder = edit("single_stream_v5_0_valid", drop=("requested_use_token_latencies",))
    assert "early_stopping_latency_p90" in names(parse_folder(folder))


def test_7_samples_per_query_are_those_that_were_generated(edit: Edit) -> None:
    output = parse_folder(edit("offline_v6_0_valid", effective_samples_per_query=7))
    assert value(output, "samples_per_query") == 660


def test_8_scientific_notation_and_the_summary_of_two_decimals_agree(edit: Edit, logs: Path) -> None:
    folder = edit("server_v6_0_valid")
    summary = folder / "mlperf_log_summary.txt"
    summary.write_text((logs / "server_v6_0_valid" / summary.name).read_text())
    rewrite(
        folder / "mlperf_log_detail.txt",
        '(completed_tokens_per_second", "value": )[^,]*',
        r"\g<1>1.04211e+06",
    )
    rewrite(summary, r"^(Completed tokens per second *: ).*", r"\g<1>1042113.42")
    output = parse_folder(folder)
    assert value(output, "tokens_per_second") == 1042110
    assert "logs_disagree" not in codes(output)


def test_9_an_underflown_time_does_not_move_the_end(edit: Edit) -> None:
    folder = edit("offline_v6_0_valid")
    last = r'("num_errors", "value": 0, "time_ms": )[\d.]+'
    rewrite(folder / "mlperf_log_detail.txt", last, r"\g<1>18446744073709.23")
    output = parse_folder(folder)
    assert output.start is not None
    assert output.end is not None
    assert output.end - output.start < timedelta(seconds=2)


def test_10_the_version_may_stand_anywhere(edit: Edit) -> None:
    folder = edit("offline_v6_0_valid")
    detail = folder / "mlperf_log_detail.txt"
    first, *others = detail.read_text().splitlines(keepends=True)
    assert "loadgen_version" in first
    detail.write_text("".join([*others[:20], first, *others[20:]]))
    assert parse_folder(folder).tool_version == "6.0.17"


def test_10_the_commit_may_be_unknown(edit: Edit) -> None:
    assert parse_folder(edit("offline_v6_0_valid", loadgen_version="6.0.10 @ NA")).tool_version == "6.0.10"


@pytest.mark.parametrize(
    ("line", "met"),
    [
        ("  Min duration satisfied : Yes", True),
        ("  Min duration satisfied : NO", False),
        ("  Min duration satisfied: No", False),
        ("  Min duration satisfied:yes", True),
    ],
)
def test_11_yes_and_no_in_any_spelling(tmp_path: Path, line: str, met: bool) -> None:  # noqa: FBT001
    path = tmp_path / "mlperf_log_summary.txt"
    path.write_text(f"Scenario : Offline\nResult is : VALID\n{line}\n")
    assert read_summary(path).flags == {"result_min_duration_met": met}


@pytest.mark.parametrize(
    ("line", "errors"),
    [
        ("No errors encountered during test.", 0),
        ("1 ERROR encountered. See detailed log.", 1),
        ("400 ERRORS encountered. See detailed log.", 400),
    ],
)
def test_11_errors_are_counted_in_words_and_numbers(tmp_path: Path, line: str, errors: int) -> None:
    path = tmp_path / "mlperf_log_summary.txt"
    path.write_text(f"Result is : VALID\n\nNo warnings encountered during test.\n\n{line}\n")
    summary = read_summary(path)
    assert (summary.errors, summary.warnings, summary.complete) == (errors, 0, True)


def test_12_a_name_that_loadgen_does_not_know_gets_a_limit_of_10_ms(logs: Path) -> None:
    output = parse_folder(logs / "server_v6_0_default_limit")
    assert output.details["loadgen_verdict"] == "VALID"
    assert validity(output) is Validity.INVALID
    assert output.verdict is not None
    (reason,) = output.verdict.reasons
    assert reason.code == "limits_default"
    assert "10 ms" in reason.message
    assert "llama3_1-8b" in reason.remedy


def test_12_a_limit_of_10_ms_that_was_asked_for_is_a_limit(logs: Path) -> None:
    folder = logs / "server_v6_0_default_limit"
    assert validity(parse_folder(folder, asked={"target_latency": 10})) is Validity.VALID


def test_12_loadgens_default_token_limits_are_no_limits(edit: Edit) -> None:
    limits = {"requested_server_ttft_latency": 100_000_000, "requested_server_tpot_latency": 100_000_000}
    assert codes(parse_folder(edit("server_v6_0_valid", **limits))) == ["limits_default"]


def test_12_a_limit_of_an_hour_is_none(edit: Edit) -> None:
    folder = edit("server_v6_0_valid", requested_server_ttft_latency=3600 * 10**9)
    assert codes(parse_folder(folder)) == ["limits_implausible"]


def test_13_the_server_score_was_the_scheduled_rate_until_3_1(logs: Path) -> None:
    def headline(case: str) -> set[str]:
        metrics = parse_folder(logs / case).metrics
        return {metric.name for metric in metrics if metric.verbosity == 1 and "samples" in metric.name}

    assert headline("server_v3_1_valid") == {"scheduled_samples_per_second"}
    assert headline("server_v4_0_valid") == {"samples_per_second"}
    assert headline("server_v6_0_valid") == {"samples_per_second"}


def test_13_time_to_and_time_per_output_token_are_the_same(logs: Path, tmp_path: Path) -> None:
    text = (logs / "server_v6_0_valid" / "mlperf_log_summary.txt").read_text()
    older = text.replace("Time per Output Token", "Time to Output Token")
    assert older != text
    path = tmp_path / "mlperf_log_summary.txt"
    path.write_text(older)
    assert read_summary(path).numbers["result_time_to_output_token_mean"] == 34738


def test_13_without_num_errors_a_log_before_5_0_16_is_whole(logs: Path) -> None:
    for case in ("server_v3_1_valid", "server_v4_0_valid", "offline_v4_1_valid"):
        output = parse_folder(logs / case)
        assert output.complete
        assert "loadgen_error_count" not in names(output)


@pytest.mark.parametrize("local", ["2026-11-27T19:39:37Z", "2026-11-28T06:24:37Z", "2026-11-28T14:39:37Z"])
def test_14_test_datetime_is_local_time_although_it_ends_in_z(logs: Path, edit: Edit, local: str) -> None:
    output = parse_folder(edit("server_v6_0_valid", test_datetime=local))
    assert output.start == parse_folder(logs / "server_v6_0_valid").start


def test_14_a_log_that_does_not_tell_its_zone_has_no_start(edit: Edit) -> None:
    output = parse_folder(edit("server_v6_0_valid", drop=("power_begin", "power_end")))
    assert (output.start, output.end) == (None, None)


def test_14_hours_of_loading_and_several_rounds_do_not_move_the_zone(edit: Edit) -> None:
    folder = edit("accuracy_v6_0")
    detail = folder / "mlperf_log_detail.txt"
    rewrite(detail, r'("power_begin", "value": ")[^"]*', r"\g<1>11-28-2026 03:39:43.346")
    rewrite(
        detail,
        r'("power_end", "value": )[^,]*(, "time_ms": )[\d.]+',
        r'\g<1>"11-28-2026 03:39:45.000"\g<2>10802000.0',
    )
    start = parse_folder(folder).start
    assert start is not None
    assert start.isoformat() == "2026-11-28T00:39:43+00:00"


@pytest.mark.engine
@pytest.mark.parametrize("zone", ["America/New_York", "<+0545>-5:45"])
def test_14_a_real_run_in_another_time_zone_starts_now(bench_python: Path, tmp_path: Path, zone: str) -> None:
    before = datetime.now(timezone.utc).replace(microsecond=0)
    script = Path(__file__).with_name("make_logs.py")
    subprocess.run(
        [str(bench_python), str(script), "offline_v6_0_min_duration", str(tmp_path)],
        env={**os.environ, "TZ": zone},
        check=True,
        timeout=60,
    )
    start = parse_folder(tmp_path).start
    assert start is not None
    assert before <= start <= datetime.now(timezone.utc)
