"""The verdict: the constraint that was missed, by how much, and the setting to change."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Reason, Validity
from parsers.loadgen import ACCURACY_NOT_JUDGED, PARSER, compare_settings, parse_folder, read_detail
from parsers.loadgen.constraints import round_down, round_up

Edit = Callable[..., Path]


def reasons(output: ParsedOutput) -> dict[str, Reason]:
    assert output.verdict is not None
    return {reason.code: reason for reason in output.verdict.reasons}


def validity(output: ParsedOutput) -> Validity:
    assert output.verdict is not None
    return output.verdict.validity


def test_offline_too_short_names_the_target_qps_that_is_long_enough(logs: Path) -> None:
    reason = reasons(parse_folder(logs / "offline_v6_0_min_duration"))["min_duration"]
    assert "took 213.4 ms of 60 s" in reason.message
    assert reason.setting == "target_qps"
    samples_per_second, slack = 468.556, 1.1  # from the log, and from LoadGen
    assert isinstance(reason.value, float)
    assert samples_per_second / slack < reason.value < samples_per_second * slack
    assert "tells the rate only roughly" in reason.remedy


def test_offline_a_little_too_short_needs_no_second_try(edit: Edit) -> None:
    folder = edit("offline_v6_0_min_duration", effective_min_duration_ms=300)
    assert "roughly" not in reasons(parse_folder(folder))["min_duration"].remedy


def test_single_stream_out_of_queries_names_the_target_latency(logs: Path) -> None:
    found = reasons(parse_folder(logs / "single_stream_v6_0_out_of_queries"))
    assert set(found) == {"errors", "min_duration", "early_stopping"}
    assert found["min_duration"].setting == "target_latency"
    assert found["min_duration"].value == 1.93  # ms; the mean is 2.15
    assert found["early_stopping"].value == 64


def test_server_too_short_names_the_limit_that_ended_it(edit: Edit) -> None:
    missed = {
        "result_validity": "INVALID",
        "result_min_duration_met": False,
        "effective_min_duration_ms": 60000,
    }
    reason = reasons(parse_folder(edit("server_v6_0_valid", **missed)))["min_duration"]
    assert "took 2 s of 60 s" in reason.message
    assert (reason.setting, reason.value) == ("min_query_count", 19796)  # 1.1 · 299.926 · 60


def test_latency_over_the_limit_lowers_the_load(logs: Path) -> None:
    found = reasons(parse_folder(logs / "server_v6_0_ttft_missed"))
    assert found["ttft_limit"].message == "TTFT p99 is 1.084 s, over the limit of 50 ms"
    assert found["ttft_limit"].setting == "target_qps"
    assert found["ttft_limit"].value == 184  # 0.95 of the 193.855 completed
    assert found["early_stopping"].setting == "target_qps"  # not 63511 queries more


def test_a_latency_limit_counts_even_where_loadgen_says_it_was_met(edit: Edit) -> None:
    output = parse_folder(edit("server_v6_0_valid", requested_server_tpot_latency=30_000))
    assert validity(output) is Validity.INVALID
    assert reasons(output)["tpot_limit"].message == "TPOT p99 is 0.03586 ms, over the limit of 0.03 ms"


def test_an_end_to_end_limit_of_older_models(edit: Edit) -> None:
    folder = edit(
        "server_v3_1_valid", effective_target_latency_ns=5_000_000, result_perf_constraints_met=False
    )
    assert reasons(parse_folder(folder))["latency_limit"].message == (
        "latency p99 is 5.271 ms, over the limit of 5 ms"
    )


def test_two_few_queries_because_of_a_limit(edit: Edit) -> None:
    folder = edit("server_v6_0_valid", result_validity="INVALID", result_min_queries_met=False)
    assert "601 of 100 queries" in reasons(parse_folder(folder))["min_queries"].message


def test_early_stopping_without_a_number_gives_the_least_possible(edit: Edit) -> None:
    folder = edit("server_v6_0_valid", result_validity="INVALID", early_stopping_met=False)
    reason = reasons(parse_folder(folder))["early_stopping"]
    assert (reason.setting, reason.value) == ("min_query_count", 459)


def test_an_audit_run_is_neither_valid_nor_invalid(edit: Edit) -> None:
    folder = edit("server_v6_0_valid")
    detail = folder / "mlperf_log_detail.txt"
    line = next(line for line in detail.read_text().splitlines(keepends=True) if "effective_scenario" in line)
    audit = line.replace("effective_scenario", "effective_performance_issue_same").replace('"Server"', "true")
    detail.write_text(audit + detail.read_text())
    output = parse_folder(folder)
    assert validity(output) is Validity.NOT_APPLICABLE


def test_an_accuracy_run_is_not_judged_by_its_logs(logs: Path, edit: Edit) -> None:
    output = parse_folder(logs / "accuracy_v6_0")
    assert (output.scenario, validity(output)) == ("Offline/accuracy", Validity.NOT_APPLICABLE)
    assert output.verdict is not None
    assert output.verdict.warnings == (ACCURACY_NOT_JUDGED,)
    assert validity(parse_folder(logs / "accuracy_v6_0", {"target_qps": 7})) is Validity.INVALID
    short = parse_folder(edit("accuracy_v6_0", generated_samples_per_query=60))
    assert (short.complete, validity(short)) == (False, Validity.FAILED)
    assert "4 of 64 samples" in reasons(short)["incomplete_log"].message


def test_logs_of_two_runs_are_not_one_result(edit: Edit, logs: Path) -> None:
    folder = edit("server_v6_0_valid")
    shutil.copy(logs / "server_v6_0_ttft_missed" / "mlperf_log_summary.txt", folder)
    output = parse_folder(folder)
    assert validity(output) is Validity.INVALID
    assert (
        "the verdict is INVALID in the summary and VALID in the detail log"
        in reasons(output)["logs_disagree"].message
    )


@pytest.mark.parametrize("second", ["server_v6_0_valid", "offline_v6_0_valid", "server_v6_0_ttft_missed"])
def test_two_runs_in_one_detail_log_are_no_result(edit: Edit, logs: Path, second: str) -> None:
    folder = edit("server_v6_0_valid")
    detail = folder / "mlperf_log_detail.txt"
    first = detail.read_bytes()
    detail.write_bytes(first + (logs / second / detail.name).read_bytes())
    output = parse_folder(folder)
    assert validity(output) is Validity.FAILED
    assert reasons(output)["several_runs"].message.startswith("several runs in this log (2)")
    assert output.metrics == ()


def test_the_start_of_a_second_run_after_a_whole_one_is_no_result(edit: Edit, logs: Path) -> None:
    folder = edit("server_v6_0_valid")
    detail = folder / "mlperf_log_detail.txt"
    other = (logs / "server_v6_0_default_limit" / detail.name).read_bytes().splitlines(keepends=True)
    detail.write_bytes(detail.read_bytes() + b"".join(other[:25]))
    output = parse_folder(folder)
    assert (validity(output), output.metrics) == (Validity.FAILED, ())


def test_only_a_summary_is_worth_its_numbers(logs: Path, tmp_path: Path) -> None:
    shutil.copy(logs / "server_v6_0_ttft_missed" / "mlperf_log_summary.txt", tmp_path)
    (output,) = PARSER.parse(tmp_path)
    values = {metric.name: metric.value for metric in output.metrics}
    assert values["samples_per_second"] == 193.86
    assert values["ttft_p99"] == 1.083693925
    assert validity(output) is Validity.INVALID
    assert output.verdict is not None
    assert any("only mlperf_log_summary.txt" in warning for warning in output.verdict.warnings)


def test_a_cut_summary_alone_is_no_result(logs: Path, tmp_path: Path) -> None:
    text = (logs / "server_v6_0_valid" / "mlperf_log_summary.txt").read_text()
    (tmp_path / "mlperf_log_summary.txt").write_text(text[: text.index("No errors")])
    (output,) = PARSER.parse(tmp_path)
    assert (output.complete, validity(output)) == (False, Validity.FAILED)


def test_a_log_without_results_says_so_and_shows_its_errors(edit: Edit) -> None:
    folder = edit("offline_v6_0_valid_with_errors")
    detail = folder / "mlperf_log_detail.txt"
    detail.write_text(detail.read_text().split(':::MLLOG {"key": "power_begin"')[0])
    with pytest.raises(ParseError, match="ends before any result") as caught:
        parse_folder(folder)
    assert "Number of tokens" in str(caught.value)
    assert "(22 times)" in str(caught.value)


def test_a_number_that_is_none_is_absent_with_a_warning(edit: Edit) -> None:
    folder = edit("server_v6_0_valid")
    detail = folder / "mlperf_log_detail.txt"
    text = detail.read_text()
    number = text.split('"result_scheduled_samples_per_sec", "value": ')[1].split(",")[0]
    detail.write_text(text.replace(f'per_sec", "value": {number},', 'per_sec", "value": -nan,'))
    output = parse_folder(folder)
    assert output.complete
    assert "scheduled_samples_per_second" not in {metric.name for metric in output.metrics}
    assert output.verdict is not None
    assert any("result_scheduled_samples_per_sec" in warning for warning in output.verdict.warnings)


def test_a_tree_gives_each_run_under_its_place_and_a_broken_one_hides_no_other(
    logs: Path, tmp_path: Path
) -> None:
    for place, case in {
        "8b/Server/run_1": "server_v6_0_valid",
        "8b/Server/run_2": "server_v6_0_ttft_missed",
        "8b/Offline": "offline_v6_0_valid",
    }.items():
        shutil.copytree(logs / case, tmp_path / place)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "mlperf_log_detail.txt").write_text("")
    outputs = PARSER.parse(tmp_path)
    assert {output.scenario: validity(output).value for output in outputs} == {
        "8b/Server/run_1/Server/performance": "VALID",
        "8b/Server/run_2/Server/performance": "INVALID",
        "Offline/performance": "VALID",
        "": "FAILED",
    }


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"target_qps": 300, "min_duration": 2000, "ttft_latency": 500, "tpot_latency": 30}, None),
        ({"target_qps": 300.0001, "use_token_latencies": 1}, None),
        ({"m.Server.target_qps": 300, "m.Offline.target_qps": 7, "*.*.min_duration": "2000"}, None),
        ({"target_latency_percentile": 99}, None),
        ({"min_query_count": 100}, None),
        ({"target_qps": 301}, "setting_ignored"),
        ({"ttft_latency": 2000}, "setting_ignored"),
        ({"min_duration": 600000}, "setting_ignored"),
        ({"target_latency_percentile": 90}, "setting_ignored"),
        ({"target_qpd": 300}, "unknown_setting"),
    ],
)
def test_settings_that_were_asked_for(logs: Path, asked: dict[str, float], code: str | None) -> None:
    detail = read_detail(logs / "server_v6_0_valid" / "mlperf_log_detail.txt")
    found = compare_settings(detail, asked)
    assert [reason.code for reason in found] == ([code] if code else [])
    output = parse_folder(logs / "server_v6_0_valid", asked=asked)
    assert validity(output) is (Validity.INVALID if code else Validity.VALID)


def test_seeds_are_compared_in_all_their_64_bits(edit: Edit) -> None:
    folder = edit("server_v6_0_valid")
    detail = folder / "mlperf_log_detail.txt"
    seed = 16159082839903944936
    line = next(line for line in detail.read_text().splitlines(keepends=True) if "requested_scenario" in line)
    record = line.replace("requested_scenario", "requested_schedule_rng_seed").replace('"Server"', str(seed))
    detail.write_text(record + detail.read_text())
    log = read_detail(detail)
    assert compare_settings(log, {"schedule_rng_seed": seed}) == []
    assert compare_settings(log, {"schedule_rng_seed": seed + 1}) != []


def test_lost_token_latencies_are_found(logs: Path) -> None:
    folder = logs / "server_v6_0_default_limit"
    asked = {"use_token_latencies": 1, "ttft_latency": 2000, "tpot_latency": 100, "target_latency": 0}
    found = reasons(parse_folder(folder, asked=asked))
    assert "llama3_1-8b, not llama3.1-8b" in found["token_latencies_lost"].remedy


def test_suggestions_round_to_the_safe_side() -> None:
    up = {1999.22: 2000, 8.912: 8.92, 2000: 2000, 0.0123456: 0.0124, 1234567.8: 1240000, 0: 0, -1: 0}
    assert {value: round_up(value) for value in up} == up
    down = {193.855: 193, 1.9349: 1.93, 2000: 2000, 0.0129: 0.0129, 1239999: 1230000, 0: 0, -1: 0}
    assert {value: round_down(value) for value in down} == down
