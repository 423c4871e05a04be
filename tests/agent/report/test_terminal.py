from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

from rich.console import Console

from agent.report.html import write_report
from agent.report.run_folder import run_result
from agent.report.terminal import render_result
from agent.store.metric_lines import as_records, read_records

if TYPE_CHECKING:
    from pathlib import Path

METRIC = {
    "timestamp": "2026-04-01T12:15:00+00:00",
    "experiment_id": "e",
    "run_id": "r",
    "client_id": "h",
    "profile": "P",
    "tool_name": "loadgen",
    "tool_version": "6",
    "scenario_start": "2026-04-01T12:02:00+00:00",
    "scenario_end": "2026-04-01T12:07:00+00:00",
    "metric": "tokens_per_second",
    "value": 8532.59,
    "unit": "tokens/s",
    "relativity": "HigherIsBetter",
    "verbosity": 1,
    "description": "",
    "tags": [],
    "metadata": {},
}


def shown(console: Console) -> list[str]:
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_the_result_shows_verdicts_numbers_reasons_and_ends_with_the_report(
    finished_run: Path, console: Console
) -> None:
    run = json.loads((finished_run / "run.json").read_text(encoding="utf-8"))
    report = write_report(finished_run)
    render_result(run, read_records(finished_run / "metrics.jsonl"), console, run_dir=finished_run)
    lines = shown(console)
    assert any("Server/performance" in line and "! INVALID" in line and "4,311" in line for line in lines)
    assert any("TPOT p99" in line and "115.2" in line and "ms" in line for line in lines)
    assert any("✕ FAILED" in line and "no numbers" in line for line in lines)
    assert "    → lower the load: at 34 queries/s the limit is expected to hold" in lines
    assert "    → set target_qps to 34" in lines
    assert sum("TPOT p99 is 115.2 ms" in line for line in lines) == 1
    assert lines[-2].startswith("Result: ! INVALID")
    assert lines[-1] == f"Report: {report}"


def test_a_narrow_terminal_shows_the_name_of_a_case_beside_its_numbers(finished_run: Path) -> None:
    run = json.loads((finished_run / "run.json").read_text(encoding="utf-8"))
    narrow = Console(record=True, width=80, file=io.StringIO())
    render_result(run, read_records(finished_run / "metrics.jsonl"), narrow)
    lines = shown(narrow)
    assert any(line.startswith("Server/performance ") and line.split()[-1] == "ms" for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_a_narrow_terminal_breaks_names_between_their_parts(console: Console) -> None:
    narrow = Console(record=True, width=80, file=io.StringIO())
    scenario = "tiny-llama/SingleStream/performance"
    names = ("early_stopping_ttft_p90", "tokens_per_second")
    metrics = [METRIC | {"scenario": scenario, "metric": name} for name in names]
    render_result({"cases": [{"scenario": scenario}]}, metrics, narrow)
    first, second, third, *_ = shown(narrow)[2:]
    assert first.startswith("tiny-llama/ ")
    assert second.startswith("SingleStream/ ")
    assert "  Early stopping TTFT p90  " in second
    assert third == "performance"


def test_cases_of_one_line_have_no_lines_between_them(console: Console) -> None:
    cases = [{"scenario": name} for name in ("one", "two", "wide", "last")]
    metrics = [METRIC | {"scenario": name} for name in ("one", "two", "wide", "last")]
    metrics.append(METRIC | {"scenario": "wide", "metric": "latency", "unit": "seconds"})
    render_result({"cases": cases}, metrics, console)
    lines = [line.split()[:1] for line in shown(console)[2:-1]]
    assert lines == [["one"], ["two"], [], ["wide"], ["Latency"], [], ["last"]]


def test_an_action_without_a_case_shows_its_output_and_result(finished_run: Path, console: Console) -> None:
    run = json.loads((finished_run / "run.json").read_text(encoding="utf-8"))
    run |= {"cases": [], "exit_code": 0, "exit_reason": "", "verdict": None}
    more = {"message": "exit code 0", "title": "offline of the model"}
    run["steps"] = [step | more for step in run["steps"] if step["name"] == "offline"]
    log = finished_run / run["steps"][0]["log"]
    log.write_text("$ seq 30\n" + "".join(f"{n}\n" for n in range(30)) + "bell \a\n", encoding="utf-8")
    render_result(run, [], console, run_dir=finished_run)
    lines = shown(console)
    assert lines[0] == "offline of the model  exit code 0"
    assert lines[1] == "  … 12 earlier lines: see the log"
    assert lines[2] == "  11"
    assert lines[-4:-1] == ["  29", "  bell \\x07", ""]
    assert lines[-1] == "Result: ✓ DONE"


def test_the_reason_of_an_action_that_is_shown_is_not_repeated(finished_run: Path, console: Console) -> None:
    run = json.loads((finished_run / "run.json").read_text(encoding="utf-8"))
    step = next(step for step in run["steps"] if step["kind"] == "action") | {"log": None}
    reason = {"code": "failed", "message": "measure: it: no number was found", "remedy": "correct the rule"}
    other = reason | {"message": "measure again: the disk is full"}
    run |= {"cases": [], "exit_code": 6, "verdict": {"validity": "FAILED", "reasons": [reason, other]}}
    run["steps"] = [
        step | {"title": "measure: it", "message": "/run-2: no number was found\n  → correct the rule"}
    ]
    render_result(run, [], console, run_dir=finished_run)
    lines = shown(console)
    assert [line for line in lines if "no number" in line] == ["measure: it  /run-2: no number was found"]
    assert "  measure again: the disk is full" in lines


def test_only_the_last_actions_without_a_case_are_shown(finished_run: Path, console: Console) -> None:
    run = json.loads((finished_run / "run.json").read_text(encoding="utf-8"))
    step = next(step for step in run["steps"] if step["kind"] == "action") | {"log": None}
    run |= {"cases": [], "exit_code": 0, "exit_reason": "", "verdict": None}
    run["steps"] = [step | {"message": f"round {number}"} for number in range(10)]
    render_result(run, [], console, run_dir=finished_run)
    lines = shown(console)
    assert lines[0] == "… 2 earlier actions: see the report"
    assert [line for line in lines if "round" in line] == [
        f"LoadGenExecutor  round {n}" for n in range(2, 10)
    ]


def test_lines_of_the_file_do_as_well_as_records(finished_run: Path, console: Console) -> None:
    run = json.loads((finished_run / "run.json").read_text(encoding="utf-8"))
    lines = (finished_run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    render_result(run, [json.loads(line) for line in lines], console)
    assert any("8,533" in line for line in shown(console))


def test_a_warning_of_a_case_is_not_repeated_for_the_run(console: Console) -> None:
    cases = [{"scenario": "m/Server", "warnings": ["the clock was low"], "verdict": {"validity": "VALID"}}]
    verdict = {"validity": "VALID", "warnings": ["m/Server: the clock was low", "the disk is full"]}
    render_result({"cases": cases, "verdict": verdict}, [], console)
    lines = shown(console)
    assert sum("the clock was low" in line for line in lines) == 1
    assert sum("the disk is full" in line for line in lines) == 1


def test_markup_in_a_reason_is_text(console: Console) -> None:
    reason = {"message": "[bold]not markup[/bold]", "remedy": "set [x] to [/y]"}
    render_result({"verdict": {"validity": "FAILED", "reasons": [reason]}}, [], console)
    lines = shown(console)
    assert "  [bold]not markup[/bold]" in lines
    assert "    → set [x] to [/y]" in lines


def test_a_run_that_failed_early_says_why(failed_run: Path, console: Console) -> None:
    render_result(json.loads((failed_run / "run.json").read_text(encoding="utf-8")), [], console)
    assert shown(console) == [
        "Result: ✕ FAILED  the driver could not be installed: the package lock is held by process 812"
    ]


def test_a_case_whose_numbers_are_those_of_its_parts_shows_the_first_of_each(
    finished_run: Path, console: Console
) -> None:
    run = json.loads((finished_run / "run.json").read_text(encoding="utf-8"))
    run["cases"][0]["scenario"] = "m/F16/bench"
    line = json.loads((finished_run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])
    parts = [("pp512", "prompt_rate", 300), ("tg128", "rate", 25), ("tg512", "rate", 24)]
    records = [
        {**line, "scenario": f"m/F16/bench/{part}", "metric": name, "value": value}
        for part, name, value in parts
    ]
    result = run_result(run, as_records(records), finished_run)
    assert [metric.value for metric in result.cases[0].headline] == [300, 25]
    assert list(result.others) == ["m/F16/bench/pp512", "m/F16/bench/tg128", "m/F16/bench/tg512"]
    render_result(run, records, console, run_dir=finished_run)
    assert any("m/F16/bench" in line and "Prompt rate" in line for line in shown(console))


def test_a_setting_that_another_remedy_names_is_not_repeated(console: Console) -> None:
    first = {
        "message": "too slow",
        "remedy": "set ServerLoad to 2.64 or less",
        "setting": "ServerLoad",
        "value": 2.64,
    }
    second = first | {"message": "too few", "remedy": "lower ServerLoad first"}
    render_result({"verdict": {"validity": "INVALID", "reasons": [first, second]}}, [], console)
    lines = shown(console)
    assert "    → lower ServerLoad first" in lines
    assert not any(line.strip() == "→ set ServerLoad to 2.64" for line in lines)
