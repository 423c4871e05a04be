"""``vcagent compare``: exit codes, JSON, and a table for 80 columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.core.errors import ExitCode

Caller = Any
METRICS = {"tokens_per_second": ("tokens/s", "HigherIsBetter"), "ttft_p99": ("seconds", "LowerIsBetter")}
WHEN = "2026-04-01T12:00:00+00:00"


@pytest.fixture
def vcagent(vcagent: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Caller:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return vcagent


def run(name: str, *speeds: float) -> str:
    """Write a run whose time to first token falls as its speed rises."""
    folder = Path(name)
    folder.mkdir()
    cases = [
        {"scenario": "llama3.1-8b/Server/performance" + (f"#{number}" if number > 1 else ""),
         "step": f"{number}:actions[0]/run", "validity": "VALID"}
        for number in range(1, len(speeds) + 1)
    ]  # fmt: skip
    lines = [
        {"timestamp": WHEN, "experiment_id": "e", "run_id": name, "client_id": "h", "profile": "P",
         "tool_name": "loadgen", "tool_version": "6", "scenario": case["scenario"], "scenario_start": WHEN,
         "scenario_end": WHEN, "metric": metric, "value": speed if unit == "tokens/s" else 20 / speed,
         "unit": unit, "relativity": relativity}
        for case, speed in zip(cases, speeds, strict=True) for metric, (unit, relativity) in METRICS.items()
    ]  # fmt: skip
    document = {"run_id": name, "client_id": "h", "start": WHEN, "end": WHEN, "cases": cases}
    document |= {"versions": {"vllm": name}}
    (folder / "run.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "metrics.jsonl").write_text(
        "".join(map("{}\n".format, map(json.dumps, lines))), encoding="utf-8"
    )
    return name


def test_a_regression_stops_a_pipeline(vcagent: Caller) -> None:
    fast, slow = run("fast", 8000, 8040, 7960, 8010), run("slow", 7500, 7540, 7460, 7510)
    code, out, err = vcagent("compare", fast, slow, "--threshold", "3%")
    assert (code, err) == (ExitCode.RESULT_INVALID, "")
    assert out.index("vllm") < out.index("tokens_per_second")
    assert out.count("worse") == 2
    assert "2 regressions" in out
    assert max(map(len, out.splitlines())) <= 80
    assert vcagent("compare", slow, fast)[0] == ExitCode.OK
    assert vcagent("compare", fast, slow, "--threshold", "0.1")[0] == ExitCode.OK


def test_it_prints_json(vcagent: Caller) -> None:
    names = [run("a", 100, 100.2, 99.8), run("b", 100.1, 100.3, 99.9), run("c", 90, 90.2, 89.8)]
    code, out, _ = vcagent("compare", *names, "--json", "--html", "page.html")
    found = json.loads(out)
    assert (code, found["regressions"]) == (ExitCode.RESULT_INVALID, 2)
    assert [(one["side"], one["metric"], one["verdict"]) for one in found["metrics"]] == [
        ("b", "tokens_per_second", "same"), ("b", "ttft_p99", "same"),
        ("c", "tokens_per_second", "changed"), ("c", "ttft_p99", "changed"),
    ]  # fmt: skip
    assert found["context"][0]["values"] == [["a"], ["b"], ["c"]]
    assert found["sides"][0] == {"name": "a", "runs": ["a"]}
    page = Path("page.html").read_text(encoding="utf-8")
    assert "4 metrics" in page
    assert f"{names[0]}: {names[0]}" not in page
    assert page.count("All metrics: rounds of one run") == 1
    assert page.count("rounds of one run: the noise") == 1
    assert 'data-label="B">' in page
    assert vcagent("compare", *names, "--html", "missing/page.html")[0] == ExitCode.HOST_CANNOT_RUN
    low, high = found["metrics"][2]["interval"]
    assert low < found["metrics"][2]["change"] < high < 0


def test_one_run_a_side_says_what_is_missing_and_stops_nothing(vcagent: Caller) -> None:
    code, out, _ = vcagent("compare", run("a", 100), run("b", 95))
    assert code == ExitCode.OK
    assert out.count("undecided") >= 2
    assert "--history" in out
    history = ",".join(run(f"h{number}", 100 + number / 10) for number in range(6))
    assert vcagent("compare", "a", "b", "--history", history)[0] == ExitCode.RESULT_INVALID


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a"], "one side cannot be compared"),
        (["a", "a"], "named twice"),
        (["a", "b", "--threshold", "much"], "is not a share"),
        (["a", "b", "--threshold", "nan"], "is not a share"),
        (["a", "missing"], "there are no runs"),
        (["a", "b", "--verbosity", "0"], "no metric in common"),
    ],
)
def test_a_question_without_an_answer_is_refused(vcagent: Caller, arguments: list[str], message: str) -> None:
    run("a", 1)
    run("b", 1)
    code, out, err = vcagent("compare", *arguments)
    assert (code, message in err) == (ExitCode.USAGE, True)
    assert "Traceback" not in out + err


def test_real_runs_are_compared(vcagent: Caller) -> None:
    rule = {"name": "rate", "regex": "rate (?P<value>[0-9.]+)", "unit": "samples/s", "relativity": "higher"}
    parameters = {"scenario": "Speed", "command": "echo rate {Rate}", "metrics": [rule]}
    action = {"type": "ExecuteCommand", "parameters": parameters}
    for name, rate in (("before", 12.5), ("again", 12.5), ("after", 10)):
        profile = {"description": "Rate", "parameters": {"Rate": rate}, "actions": [action]}
        Path("P.json").write_text(json.dumps(profile), encoding="utf-8")
        arguments = ("--profile", "./P.json", "--iterations", "2", "--run-id", name, "--quiet")
        assert vcagent(*arguments)[::2] == (ExitCode.OK, "")
    code, out, _ = vcagent("compare", "before", "again", "after", "--json")
    found = json.loads(out)
    assert (code, found["regressions"]) == (ExitCode.RESULT_INVALID, 1)
    assert [(one["scenario"], one["repeats"], one["verdict"]) for one in found["metrics"]] == [
        ("Speed", [2, 2], "same"),
        ("Speed", [2, 2], "changed"),
    ]
    assert {one["name"]: one["values"] for one in found["context"]} == {
        "Rate": [["12.5"], ["12.5"], ["10"]],
        "command": [["echo rate 12.5"], ["echo rate 12.5"], ["echo rate 10"]],
    }
