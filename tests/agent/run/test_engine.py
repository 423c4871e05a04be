"""A run executes its profile in order and reports the outcome."""

import json
import re
import signal
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.component.component import Plan
from agent.core.errors import ExitCode, HostError, ProfileError, UsageError
from agent.facts import Facts
from agent.run.request import RunRequest
from agent.run.session import FinishedRun, plan
from agent.store.journal import Journal
from tests.agent.conftest import records_of
from tests.agent.counting_components import Measuring

pytestmark = pytest.mark.usefixtures("without_facts")

Run = Callable[..., FinishedRun]


def element(kind: str, scenario: str = "", **parameters: Any) -> dict[str, Any]:
    return {"Type": kind, "Parameters": {"Scenario": scenario, **parameters}}


def steps_of(finished: FinishedRun) -> list[tuple[str, str]]:
    return [(step["key"], step["status"]) for step in finished.description["steps"]]


def test_a_run_leaves_records_with_context_and_a_verdict(run_profile: Run, tmp_path: Path) -> None:
    finished = run_profile(
        {
            "Dependencies": [element("FilePresence", "File", path=str(tmp_path / "f"))],
            "Actions": [element("Measuring", "A", tags="one,two", value=2.5)],
        },
        metadata={"rack": "7"},
        experiment_id="e-1",
    )
    assert finished.outcome.exit_code is ExitCode.OK
    assert finished.description["verdict"]["validity"] == "VALID"
    assert steps_of(finished) == [("dependencies[0]/make", "done"), ("1:actions[0]/measure-1", "done")]
    (record,) = records_of(finished)
    assert record["record_id"] == 1
    assert {key: record[key] for key in ("experiment_id", "client_id", "profile", "scenario", "metric")} == {
        "experiment_id": "e-1",
        "client_id": "host",
        "profile": "TEST",
        "scenario": "A",
        "metric": "answer",
    }
    assert (record["value"], record["unit"], record["tags"]) == (2.5, "count", ["one", "two"])
    assert record["metadata"].pop("context_id")
    assert record["metadata"] == {"rack": "7"}
    assert (finished.run_dir / "measuring/answer/summary.json").is_file()
    assert (finished.run_dir / "rollup/run_rollup.json").is_file()
    assert finished.report
    assert finished.report.is_file()
    assert (tmp_path / "results/latest").resolve() == finished.run_dir


def test_what_a_run_used_is_told_not_how_it_was_written(run_profile: Run) -> None:
    finished = run_profile(
        {"Parameters": {"Count": 3, "Twice": "{calculate({Count} * 2)}"}, "Actions": [element("Measuring")]},
        parameters={"Count": "4"},
    )
    told = json.loads((finished.run_dir / "rollup/run_rollup.json").read_text())["parameters"]
    assert told == finished.description["profile"]["parameters"] == {"Count": 4, "Twice": 8}


def test_a_dependency_that_is_right_already_has_no_steps(run_profile: Run, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    finished = run_profile({"Dependencies": [element("FilePresence", path=str(tmp_path / "f"))]})
    assert finished.outcome.exit_code is ExitCode.OK
    assert steps_of(finished) == []
    assert finished.description["verdict"]["validity"] is None


def test_a_dependency_that_ran_without_effect_fails_the_run(run_profile: Run, tmp_path: Path) -> None:
    finished = run_profile(
        {
            "Dependencies": [element("FilePresence", path=str(tmp_path / "f"), sabotage=True)],
            "Actions": [element("Measuring")],
        }
    )
    assert finished.outcome.exit_code is ExitCode.DEPENDENCY_FAILED
    assert "not as it should be: f is missing" in finished.description["exit_reason"]
    assert records_of(finished) == []
    assert finished.description["verdict"]["validity"] == "FAILED"
    assert finished.report


def test_a_host_that_cannot_do_it_is_left_as_it_was(run_profile: Run, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no files") as caught:
        run_profile(
            {"Dependencies": [element("FilePresence", path=str(tmp_path / "f"), refuse=True)]},
        )
    assert "buy one that has" in str(caught.value)
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "packages").exists()


def test_unknown_types_are_told_all_at_once_before_anything(run_profile: Run, tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as caught:
        run_profile(
            {
                "Dependencies": [
                    element("FilePresense", path=str(tmp_path / "f")),
                    element("FilePresence", path=str(tmp_path / "g")),
                ],
                "Actions": [element("Mesuring")],
            }
        )
    text = str(caught.value)
    assert caught.value.exit_code is ExitCode.PROFILE_INVALID
    assert "'FilePresense' is not implemented; did you mean FilePresence?" in text
    assert "'Mesuring' is not implemented; did you mean Measuring?" in text
    assert "docs/reference/components.md lists all types" in (caught.value.remedy or "")
    assert "LinuxPackageInstallation" not in text
    assert "TEST.json:1" in text
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"valeu": 1}, "has no parameter 'valeu'; did you mean value"),
        ({"value": "much"}, "value: Input should be a valid number"),
        ({"enabled": "no such place"}, "enabled: 'no such place' is neither true nor false"),
    ],
)
def test_wrong_parameters_are_named(run_profile: Run, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        run_profile({"Actions": [element("Measuring", **parameters)]})
    assert message in str(caught.value)


def test_a_missing_parameter_is_named_with_its_meaning(run_profile: Run) -> None:
    with pytest.raises(ProfileError, match="needs the parameter 'path': A file that must exist"):
        run_profile({"Dependencies": [element("FilePresence")]})


def test_a_type_in_the_wrong_place_is_named(run_profile: Run) -> None:
    with pytest.raises(ProfileError, match="Ticking is not of kind action"):
        run_profile({"Actions": [element("Ticking")]})


def test_steps_and_reasons_bear_the_names_of_the_profile(run_profile: Run) -> None:
    group = {
        "Type": "SequentialExecution",
        "Parameters": {"LoopCount": 2, "ForEach": {"Word": ["a", "b"]}},
        "Components": [element("Raising", "loop of {Word}")],
    }
    finished = run_profile(
        {
            "Parameters": {"Name": "given: here"},
            "Actions": [
                element("Raising", "$.Parameters.Name"),
                element("Raising"),
                element("Raising"),
                group,
            ],
        },
        iterations=2,
    )
    titles = [step["title"] for step in finished.description["steps"]]
    assert titles == [
        f"{name}{number}{loop}"
        for number in ("", ", round 2")
        for name, loops in (
            ("given: here", [""]),
            ("Raising (actions[1])", [""]),  # the profile is a single line of JSON
            ("Raising (actions[2])", [""]),
            ("loop of a", ["", ", loop 2"]),
            ("loop of b", ["", ", loop 2"]),
        )
        for loop in loops
    ]
    reasons = [reason["message"] for reason in finished.description["verdict"]["reasons"]]
    assert len(reasons) == len(titles)
    assert all(reason.startswith(f"{title}: ") for reason, title in zip(reasons, titles, strict=True))


def test_actions_go_on_after_a_failure_and_the_run_fails(run_profile: Run) -> None:
    finished = run_profile({"Actions": [element("Raising", "R"), element("Measuring", "A")]})
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED
    assert steps_of(finished) == [("1:actions[0]/fail", "failed"), ("1:actions[1]/measure-1", "done")]
    log = (finished.run_dir / "logs/1-actions-0-fail.log").read_text()
    assert "ZeroDivisionError: nobody thought of this" in log
    assert any(
        "nobody thought of this" in reason["message"] for reason in finished.description["verdict"]["reasons"]
    )


def test_fail_fast_ends_at_the_first_failure(run_profile: Run) -> None:
    finished = run_profile({"Actions": [element("Raising"), element("Measuring")]}, fail_fast=True)
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED
    assert steps_of(finished) == [("1:actions[0]/fail", "failed")]


def test_an_invalid_result_has_its_own_exit_code_and_its_reasons(run_profile: Run) -> None:
    finished = run_profile({"Actions": [element("Measuring", "A", validity="INVALID")]})
    assert finished.outcome.exit_code is ExitCode.RESULT_INVALID
    verdict = finished.description["verdict"]
    assert verdict["validity"] == "INVALID"
    assert verdict["reasons"] == [
        {
            "code": "",
            "message": "A: too slow",
            "remedy": "set value to 2 (--set A.value=2)",
            "setting": "value",
            "value": 2,
        }
    ]


def test_a_failed_case_is_a_failed_action(run_profile: Run) -> None:
    finished = run_profile({"Actions": [element("Measuring", "A", validity="FAILED")]})
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED


def test_monitors_run_from_the_first_action_to_the_last(run_profile: Run) -> None:
    finished = run_profile({"Monitors": [element("Ticking", "T")], "Actions": [element("Measuring", "A")]})
    assert [record["metric"] for record in records_of(finished)][-1] == "tock"
    assert {record["metric"] for record in records_of(finished)} == {"tick", "answer", "tock"}


def test_groups_and_rounds_run_as_often_as_they_say(run_profile: Run) -> None:
    finished = run_profile(
        {
            "Actions": [
                {
                    "Type": "SequentialExecution",
                    "Parameters": {"LoopCount": 2},
                    "Components": [
                        element("Measuring", "S", metric="s"),
                        element("Measuring", "S", metric="t"),
                    ],
                },
                {
                    "Type": "ParallelExecution",
                    "Components": [
                        element("Measuring", "P", metric="p"),
                        element("Measuring", "P", metric="q"),
                    ],
                },
                {
                    "Type": "ParallelLoopExecution",
                    "Parameters": {"Duration": "00:00:00", "MinimumIterations": 3},
                    "Components": [element("Measuring", "L", metric="l")],
                },
            ]
        },
        iterations=2,
    )
    assert finished.outcome.exit_code is ExitCode.OK
    metrics = [record["metric"] for record in records_of(finished)]
    assert {name: metrics.count(name) for name in "stpql"} == {"s": 4, "t": 4, "p": 2, "q": 2, "l": 6}
    assert metrics[:4] == ["s", "t", "s", "t"]
    assert sorted(path.name for path in (finished.run_dir / "measuring").iterdir())[:3] == ["l", "l-2", "l-3"]


def test_metric_filters_keep_what_they_should(run_profile: Run) -> None:
    finished = run_profile(
        {
            "Actions": [
                element("Measuring", metric="keep"),
                element("Measuring", metric="drop", MetricFilters="-drop"),
            ]
        }
    )
    assert [record["metric"] for record in records_of(finished)] == ["keep"]


def test_elements_for_other_platforms_are_skipped(run_profile: Run) -> None:
    finished = run_profile(
        {"Actions": [element("Raising", SupportedPlatforms="win-x64"), element("Measuring", "A")]}
    )
    assert finished.outcome.exit_code is ExitCode.OK
    assert steps_of(finished) == [("1:actions[1]/measure-1", "done")]


def test_only_dependencies(run_profile: Run, tmp_path: Path) -> None:
    finished = run_profile(
        {
            "Dependencies": [element("FilePresence", path=str(tmp_path / "f"))],
            "Actions": [element("Measuring")],
        },
        only_dependencies=True,
    )
    assert steps_of(finished) == [("dependencies[0]/make", "done")]


def sleeping(seconds: float, scenario: str) -> dict[str, Any]:
    return element("ExecuteCommand", scenario, Command=f"sleep {seconds}")


def test_a_timeout_stops_in_the_middle_of_the_first_round(run_profile: Run) -> None:
    finished = run_profile({"Actions": [sleeping(120, "long")]}, timeout="00:00:01")
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED
    assert "deterministic" in finished.description["exit_reason"]
    assert steps_of(finished) == [("1:actions[0]/execute", "interrupted")]


def test_a_deterministic_timeout_lets_the_action_end(run_profile: Run) -> None:
    finished = run_profile(
        {"Actions": [sleeping(1.5, "a"), element("Measuring", "b")]}, timeout="00:00:01,deterministic"
    )
    assert finished.outcome.exit_code is ExitCode.OK
    assert [step["status"] for step in finished.description["steps"]] == ["done"]
    assert finished.description["verdict"] is not None


def test_a_timeout_repeats_the_actions_until_it_is_over(run_profile: Run) -> None:
    finished = run_profile(
        {"Actions": [sleeping(0.3, "a"), element("Measuring", "b")]}, timeout="00:00:05,deterministic*"
    )
    rounds = [record["metric"] for record in records_of(finished)].count("answer")
    assert rounds >= 2
    shown = (finished.run_dir / "logs" / "run.log").read_text()
    assert re.search(r" \d+ b: measure-1 \(round 2, \d s left\)", shown), shown
    assert finished.outcome.exit_code is ExitCode.OK


def test_a_plan_counts_the_steps_of_the_run(run_profile: Run, tmp_path: Path) -> None:
    inner = element("Measuring", "inner")
    loop = {"Type": "SequentialExecution", "Parameters": {"LoopCount": 3}, "Components": [inner]}
    beside = {"Type": "ParallelExecution", "Components": [loop, element("Measuring", "beside")]}
    off = {"Type": "SequentialExecution", "Parameters": {"Enabled": False}, "Components": [inner]}
    profile = {"Description": "x", "Actions": [beside, off, element("Measuring", "last")]}
    path = tmp_path / "COUNTED.json"
    path.write_text(json.dumps(profile))
    planned = plan(RunRequest((str(path),), iterations=2, results_dir=tmp_path / "results"), folders=False)
    finished = run_profile({"Actions": profile["Actions"]}, iterations=2)
    assert len(planned.estimates_s) == len(finished.description["steps"]) == 2 * 5
    shown = (finished.run_dir / "logs" / "run.log").read_text()
    assert "1/10 " in shown
    assert "10/10 " in shown


def test_a_timeout_shorter_than_the_profile_requires_is_refused(run_profile: Run, tmp_path: Path) -> None:
    profile = {"Metadata": {}, "MinimumRequiredExecutionTime": "00:10:00", "Actions": [element("Measuring")]}
    with pytest.raises(UsageError, match="shorter than"):
        run_profile(profile, timeout="00:01:00")
    assert not (tmp_path / "results").exists()


def test_iterations_and_timeout_exclude_each_other(run_profile: Run) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        run_profile({"Actions": [element("Measuring")]}, timeout="00:01:00", iterations=2)


def test_group_parameters_are_checked_before_anything_is_done(run_profile: Run, tmp_path: Path) -> None:
    for parameters, message in [
        ({"LoopCuont": 5}, "no parameter 'LoopCuont'"),
        ({"LoopCount": 0}, "greater than or equal to 1"),
        ({"Duration": "banana"}, "banana"),
    ]:
        group = {
            "Type": "SequentialExecution",
            "Parameters": parameters,
            "Components": [element("Measuring")],
        }
        with pytest.raises(ProfileError, match=message):
            run_profile({"Actions": [group]})
    assert not (tmp_path / "results").exists()


def test_a_group_for_another_platform_is_skipped(run_profile: Run) -> None:
    group = {
        "Type": "SequentialExecution",
        "Parameters": {"SupportedPlatforms": "win-x64"},
        "Components": [element("Raising")],
    }
    finished = run_profile({"Actions": [group, element("Measuring")]})
    assert steps_of(finished) == [("1:actions[1]/measure-1", "done")]


def test_a_wrong_metric_filter_is_found_before_the_benchmark(run_profile: Run, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="is not a regular expression"):
        run_profile({"Actions": [element("Measuring", MetricFilters="[")]})
    assert not (tmp_path / "results").exists()


def test_cases_of_one_name_are_told_apart(run_profile: Run) -> None:
    finished = run_profile(
        {"Actions": [element("Measuring", "S", value=1), element("Measuring", "S", value=2)]}, iterations=2
    )
    found = {(record["scenario"], record["value"]) for record in records_of(finished)}
    assert found == {("S", 1), ("S#2", 2), ("S#3", 1), ("S#4", 2)}
    rollup = json.loads((finished.run_dir / "rollup/run_rollup.json").read_text())
    assert [case["scenario"] for case in rollup["cases"]] == ["S", "S#2", "S#3", "S#4"]
    cases = [[metric["value"] for metric in case["metrics"]] for case in rollup["cases"]]
    assert cases == [[1], [2], [1], [2]]


def test_cases_of_one_name_that_end_at_once_are_told_apart(
    run_profile: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Journal.cases

    def slowly(journal: Journal) -> list[dict[str, Any]]:
        found = known(journal)
        time.sleep(0.3)
        return found

    monkeypatch.setattr(Journal, "cases", slowly)
    group = {
        "Type": "ParallelExecution",
        "Components": [element("Measuring", "S", value=1), element("Measuring", "S", value=2)],
    }
    finished = run_profile({"Actions": [group]})
    assert {record["scenario"] for record in records_of(finished)} == {"S", "S#2"}


def test_a_case_that_was_cut_and_judged_by_nobody_is_a_failure(run_profile: Run) -> None:
    finished = run_profile({"Actions": [element("Measuring", "A", validity="none")]})
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED


def test_monitors_alone_run_until_the_time_is_over(run_profile: Run) -> None:
    began = time.monotonic()
    finished = run_profile({"Monitors": [element("Ticking")]}, timeout="00:00:01")
    assert time.monotonic() - began >= 1
    assert finished.outcome.exit_code is ExitCode.OK
    assert [record["metric"] for record in records_of(finished)] == ["tick", "tock"]


def test_the_clock_starts_with_the_actions(run_profile: Run) -> None:
    slow = element("ExecuteCommand", "prepare", Command="sleep 1.2")
    finished = run_profile(
        {"Dependencies": [slow], "Actions": [element("Measuring", "A")]}, timeout="00:00:01,deterministic*"
    )
    assert finished.outcome.exit_code is ExitCode.OK
    assert records_of(finished)


def test_the_interval_is_kept_between_actions_and_not_after_the_last(
    run_profile: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned_s: list[float] = []
    plan = Measuring.plan

    def noted(self: Measuring, facts: Facts) -> Plan:
        planned_s.append(time.monotonic())
        return plan(self, facts)

    monkeypatch.setattr(Measuring, "plan", noted)
    began_s = time.monotonic()
    finished = run_profile(
        {
            "MinimumExecutionInterval": "00:00:04",
            "Actions": [element("Measuring", "A"), element("Measuring", "B")],
        }
    )
    assert finished.outcome.exit_code is ExitCode.OK
    assert planned_s[-1] - began_s >= 4
    ended = datetime.fromisoformat(finished.description["end"])
    assert ended - datetime.fromisoformat(finished.description["steps"][1]["end"]) < timedelta(seconds=4)


def test_fail_fast_reaches_the_siblings_in_a_group(run_profile: Run) -> None:
    group = {
        "Type": "ParallelLoopExecution",
        "Parameters": {"Duration": "01:00:00"},
        "Components": [element("Raising"), element("ExecuteCommand", "beside", Command="sleep 0.2")],
    }
    finished = run_profile({"Actions": [group]}, fail_fast=True)
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED


def test_the_profile_s_metadata_goes_into_every_record(run_profile: Run) -> None:
    finished = run_profile(
        {"Metadata": {"Team": "x"}, "Actions": [element("Measuring")]}, metadata={"rack": "7"}
    )
    metadata = records_of(finished)[0]["metadata"]
    assert metadata.pop("context_id")
    assert metadata == {"Team": "x", "rack": "7"}


def test_a_profile_for_another_platform_is_refused(run_profile: Run, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="meant for win-x64; this host is linux"):
        run_profile({"Metadata": {"SupportedPlatforms": "win-x64"}, "Actions": [element("Measuring")]})
    assert not (tmp_path / "results").exists()


def test_a_signal_while_the_end_is_written_changes_nothing(
    run_profile: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import agent.report.html

    written = agent.report.html.write_report

    def interrupted(run_dir: Path) -> Path:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        return written(run_dir)

    monkeypatch.setattr(agent.report.html, "write_report", interrupted)
    finished = run_profile({"Actions": [element("Measuring")]})
    assert finished.outcome.exit_code is ExitCode.OK
    assert json.loads((finished.run_dir / "run.json").read_text())["exit_code"] == 0
    assert finished.report
