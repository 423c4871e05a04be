"""Options and words that users of VirtualClient and readers of guides type."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from agent.cli.main import _arguments
from agent.core.errors import ExitCode, UsageError

Caller = Any


@pytest.fixture
def vcagent(vcagent: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Caller:
    """Return a function that calls the program in this process and an empty folder: exit code and output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    return vcagent


def echo(*more: str) -> list[str]:
    return ["--profile", "EXECUTE-COMMAND", "--parameters", "Command=echo hello", *more]


def test_a_run_has_the_name_that_is_asked_for_and_keeps_it(vcagent: Caller) -> None:
    assert vcagent(*echo("--run-id", "first"))[0] == 0
    assert json.loads(Path("results/first/run.json").read_text())["run_id"] == "first"
    code, _, err = vcagent(*echo("--run-id", "first"))
    assert code == ExitCode.USAGE
    assert "results/first already exists" in err
    assert "vcagent resume first" in err
    assert vcagent(*echo("--run-id", "firstborn"))[0] == 0
    code, out, _ = vcagent("runs")
    assert "first" in out
    assert Path("results/latest").resolve().name == "firstborn"
    assert "run first is complete" in vcagent("resume", "first")[2]  # not taken for the start of another id


def test_a_run_that_was_named_is_cleaned_like_others_and_nothing_else_is(vcagent: Caller) -> None:
    assert vcagent(*echo("--run-id", "first"))[0] == 0
    mine = Path("results/mine")
    mine.mkdir()
    (mine / "journal.sqlite").write_text("somebody's own diary")
    moved = Path("results/moved")
    moved.mkdir()
    (moved / "journal.sqlite").write_text("a copy under another name")
    (moved / ".vcagent-run").write_text(Path("results/first/.vcagent-run").read_text())
    assert vcagent("--clean=logs", "--yes")[0] == 0
    assert sorted(path.name for path in Path("results").iterdir()) == [".vcagent.lock", "mine", "moved"]


@pytest.mark.parametrize("name", [".", "..", "a/b", "latest", "-x", "x" * 101, "a b"])
def test_what_cannot_name_a_run(name: str, vcagent: Caller) -> None:
    code, _, err = vcagent(*echo(f"--run-id={name}"))
    assert code == ExitCode.USAGE
    assert "cannot name a run" in err


def test_the_terminal_s_output_is_kept_without_colours(vcagent: Caller) -> None:
    code, out, err = vcagent(*echo("--run-id", "a", "--verbose"))
    assert code == 0
    kept = Path("results/a/logs/run.log").read_text()
    for line in err.splitlines():
        assert kept.count(line.split("] ", 1)[1]) >= 1
    assert "Result: ✓ DONE" in out
    assert "Result: ✓ DONE" in kept
    assert "\x1b" not in kept
    assert kept.count("1/1 ExecuteCommand: execute") == 1


def test_verbose_shows_reasons_commands_and_output(vcagent: Caller) -> None:
    _, _, quiet = vcagent(*echo())
    assert "$ echo hello" not in quiet
    _, _, err = vcagent(*echo("--verbose"))
    assert "the profile asks for this command" in err
    assert "$ echo hello" in err
    assert "      hello" in err


def test_a_response_file(vcagent: Caller, tmp_path: Path) -> None:
    (tmp_path / "run.rsp").write_text(
        '# a comment\n--profile EXECUTE-COMMAND\n--parameters "Command=echo a b"\n'
        "--system=Azure --log-level 3\n"
    )
    assert vcagent("@run.rsp", "--run-id", "a")[0] == 0
    with Path("results/a/metrics.csv").open() as file:
        assert {row["ExecutionSystem"] for row in csv.DictReader(file)} <= {"Azure"}
    levels = {
        json.loads(line)["level"] for line in Path("results/a/logs/vcagent.jsonl").read_text().splitlines()
    }
    assert levels <= {"warning", "error", "critical"}
    assert _arguments(["fleet", "run", "--limit", "@hosts"]) == ["fleet", "run", "--limit", "@hosts"]
    with pytest.raises(UsageError, match=r"response file none\.rsp cannot be read"):
        _arguments(["@none.rsp"])


def test_the_system_is_in_the_records_and_in_expressions(vcagent: Caller) -> None:
    profile = {
        "Description": "d",
        "Actions": [{
            "Type": "ExecuteCommand",
            "Parameters": {
                "Command": "echo on {ExecutionSystem} 5",
                "Metrics": [{"Regex": r"on (?P<name>\w+) (?P<value>\d+)", "Unit": "count"}],
            },
        }],
    }  # fmt: skip
    Path("P.json").write_text(json.dumps(profile))
    assert vcagent("--profile", "P.json", "--system", "Azure", "--run-id", "a")[0] == 0
    with Path("results/a/metrics.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["ExecutionSystem"], row["MetricName"], row["MetricValue"]) == ("Azure", "Azure", "5.0")


@pytest.mark.parametrize(
    ("level", "least"), [("Information", "info"), ("0", "debug"), ("Critical", "critical")]
)
def test_log_levels_are_virtualclient_s_too(level: str, least: str) -> None:
    from agent.core.logs import parse_level

    assert parse_level(level) == least


def test_a_wrong_log_level(vcagent: Caller) -> None:
    code, _, err = vcagent(*echo("--log-level", "loud"))
    assert code == ExitCode.USAGE
    assert "'loud' is not a log level" in err


def test_any_parameter_of_an_element_can_be_set_and_is_shown(vcagent: Caller) -> None:
    setting = "--set=ExecuteCommand.maxRetries=2"
    code, out, _ = vcagent("show", "EXECUTE-COMMAND", setting)
    assert code == 0
    assert "maxRetries: 2" in out
    code, out, _ = vcagent("plan", *echo("--set=ExecuteCommand.command=ls -l", "--json"))
    assert code == 0
    assert json.loads(out)["components"][0]["steps"][0]["command"] == "ls -l"
    code, _, err = vcagent("plan", *echo("--set", "ExecuteCommand.maxRetry=2"))
    assert code == ExitCode.PROFILE_INVALID
    assert "has no parameter 'maxRetry'; did you mean max_retries" in err
    code, _, err = vcagent("plan", *echo("--set", "ExecuteComand.command=ls"))
    assert code == ExitCode.USAGE
    assert "did you mean ExecuteCommand?" in err
    code, _, err = vcagent(*echo("--set", "maxRetries=1"))
    assert code == ExitCode.USAGE
    assert "--set is not written scenario.parameter=value" in err


def test_what_is_set_counts_after_a_resume(vcagent: Caller, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    setting = f"ExecuteCommand.command=test -e {gate}"
    assert vcagent(*echo("--run-id", "a", "--set", setting))[0] == ExitCode.ACTION_FAILED
    gate.touch()
    assert vcagent("resume", "a")[0] == 0
    assert "test -e" in Path("results/a/logs/1-actions-0-execute.log").read_text()


def test_plan_takes_what_run_takes(vcagent: Caller) -> None:
    options = [
        "--metadata", "a=1", "--scenarios", "ExecuteCommand", "--iterations", "2", "--fail-fast",
        "--results-dir", "r", "--package-dir", "p", "--experiment-id", "e", "--client-id", "c",
        "--run-id", "n", "--system", "s",
        "--log-level", "info", "--verbose", "--quiet", "--yes", "--arm", "--clean=logs",
        "--sink", "content:/tmp/c",
    ]  # fmt: skip
    assert vcagent("plan", *echo(*options))[0] == 0
    assert not Path("r").exists()
    assert vcagent(*echo("--run-id", "n"))[0] == 0
    assert vcagent("plan", *echo("--run-id", "n"))[0] == ExitCode.USAGE


def test_a_guide_s_name_gets_ours(vcagent: Caller) -> None:
    for name, ours in {
        "SMOKE_SAMPLES": "in vcagent: Samples",
        "RUN_PERF_SERVER": "in vcagent: ServerPerformance",
        "KV_CACHE_DTYPE": "in vcagent: LlmConfig={kv_cache_dtype: fp8}",
        "MAX_LEN_USER": "in vcagent: MaxModelLength",
        "LAB_MODEL": "in vcagent: Repository, or ModelPath for a folder",
    }.items():
        code, _, err = vcagent("plan", "--profile", "PERF-GPU-MLPERF-LLAMA3", "--parameters", f"{name}=1")
        assert code == ExitCode.PROFILE_INVALID
        assert ours in err
    both = "SMOKE_SAMPLES=1,,,Mmlu=false,,,MAX_LEN_USER=4096"
    _, _, err = vcagent("plan", "--profile", "PERF-GPU-MLPERF-LLAMA3", "--parameters", both)
    assert "no parameter 'SMOKE_SAMPLES', and no 'MAX_LEN_USER'" in " ".join(err.split())
    assert "SMOKE_SAMPLES: in vcagent: Samples; MAX_LEN_USER: in vcagent: MaxModelLength" in " ".join(
        err.split()
    )
    # Parameters without a meaning in the profile are not suggested for it.
    assert "in vcagent" not in vcagent("plan", *echo("--parameters", "SMOKE_SAMPLES=1"))[2]


def test_every_guide_s_name_leads_to_a_parameter_that_there_is() -> None:
    from agent.core.names import canonical
    from agent.profile import find, installed, load_sources
    from agent.profile.guide_names import GUIDE_NAMES, guide_name

    names = [name for name in installed() if "/" not in name]
    declared = {name for profile in names for name in load_sources([find(profile)]).parameters}
    for name in GUIDE_NAMES:
        assert guide_name(name, declared), name
        assert canonical(name) != canonical("Samples")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--client-id", "a"], "leave it out: records have each host's name"),
        (["--clean=logs"], "vcagent fleet clean removes"),
        (["--package-dir", "packages"], "--package-dir packages is relative"),
    ],
)
def test_what_one_host_alone_has_is_refused_for_many(vcagent: Caller, options: list[str], words: str) -> None:
    code, _, err = vcagent("fleet", "run", "-i", "a,b", *echo(*options)[1:])
    assert code == ExitCode.USAGE
    assert words in " ".join(err.split())
