"""Monitors' data about a case goes into its records, its verdict's warnings, its summary and the report."""

from __future__ import annotations

import io
import json
import threading
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from agent.component import registry
from agent.component.component import Action, Monitor, MonitorContext, MonitorSummary, Plan, Step, StepOutcome
from agent.core.names import canonical
from agent.core.records import SUMMARY_TAG, Metric, ParsedOutput
from agent.report.terminal import render_result
from agent.run import monitoring
from agent.run.recorder import Recorder
from tests.agent.conftest import records_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from agent.component.component import StepContext
    from agent.facts import Facts
    from agent.run.session import FinishedRun
    from tests.lab.nvml.nvml_stand_in import NvmlStandIn

    Run = Callable[..., FinishedRun]

pytestmark = pytest.mark.usefixtures("without_facts")


def element(kind: str, scenario: str, **parameters: Any) -> dict[str, Any]:
    return {"Type": kind, "Parameters": {"Scenario": scenario, **parameters}}


def case_usage(finished: FinishedRun, scenario: str) -> dict[str, dict[str, Any]]:
    return {
        record["metric"]: record
        for record in records_of(finished)
        if SUMMARY_TAG in record["tags"] and record["scenario"] == scenario
    }


def test_gpus_and_host_of_a_case(run_profile: Run, nvml_stand_in: NvmlStandIn) -> None:
    nvml_stand_in.set(events=0x40)
    finished = run_profile(
        {
            "Monitors": [
                element("NvidiaSmiMonitor", "Gpus", MonitorFrequency="00:00:00.1", Tags="watching"),
                element("HostMonitor", "Host", Interval="00:00:00.1"),
            ],
            # The kernel counts processor time in hundredths of a second: a shorter span has no usage.
            "Actions": [
                element("Measuring", "A", Seconds=0.5),
                element("ExecuteCommand", "B", Command="sleep 0.3"),
            ],
        }
    )
    assert finished.outcome.exit_code == 0
    usage = case_usage(finished, "A")
    assert usage["gpu1_energy"]["unit"] == "joules"
    assert usage["gpu1_energy"]["tool_name"] == "NvidiaSmiMonitor"
    assert usage["gpu1_energy"]["tags"] == ["watching", SUMMARY_TAG]
    assert usage["cpu_utilisation_mean"]["tool_name"] == "HostMonitor"
    energy = case_usage(finished, "B/execute")["gpu_energy"]["value"]
    assert 0.2 * 810 < energy < 60 * 810

    (case,) = finished.description["cases"]
    (warning,) = case["warnings"]
    assert "hw_thermal_slowdown" in warning
    warnings = finished.description["verdict"]["warnings"]
    assert any(text.startswith("A: the clocks of GPU 0, 1") for text in warnings)
    assert any(text.startswith("B/execute: the clocks of GPU 0, 1") for text in warnings)
    summary = json.loads((finished.run_dir / case["case_dir"] / "summary.json").read_text())
    assert summary["verdict"]["warnings"] == [warning]
    assert "gpu1_energy" in {metric["name"] for metric in summary["usage"]}
    assert "gpu1_energy" not in {metric["name"] for metric in summary["metrics"]}
    assert finished.report is not None
    page = finished.report.read_text()
    assert '<th scope="col">Energy</th>' in page
    assert '<th scope="row">GPU 1</th>' in page
    assert "hw_thermal_slowdown" in page


def test_a_run_that_nothing_judges_tells_its_warnings(run_profile: Run, nvml_stand_in: NvmlStandIn) -> None:
    nvml_stand_in.set(events=0x40)
    finished = run_profile(
        {
            "Monitors": [element("NvidiaSmiMonitor", "Gpus", Interval="00:00:00.1")],
            "Actions": [element("ExecuteCommand", "B", Command="sleep 0.3")],
        }
    )
    assert finished.outcome.exit_code == 0
    verdict = finished.description["verdict"]
    assert verdict["validity"] is None
    (warning,) = verdict["warnings"]
    assert "hw_thermal_slowdown" in warning
    assert finished.report is not None
    assert "hw_thermal_slowdown" in finished.report.read_text()
    rollup = json.loads((finished.run_dir / "rollup" / "run_rollup.json").read_text())
    assert rollup["verdict"]["warnings"] == [warning]
    console = Console(file=io.StringIO(), width=500)
    render_result(finished.description, (), console)
    assert warning in console.file.getvalue()


class Clumsy(Monitor):
    def watch(self, context: MonitorContext) -> None:
        context.stop.wait(60)

    def summary(self, start: datetime, end: datetime) -> MonitorSummary:
        raise ZeroDivisionError("nobody thought of this")


class Chatty(Monitor):
    def watch(self, context: MonitorContext) -> None:
        context.stop.wait(60)

    def summary(self, start: datetime, end: datetime) -> MonitorSummary:
        assert start <= end
        return MonitorSummary(
            (Metric("one", 1, "count"), Metric("two", 2, "count")), ("the key is hunter-22",)
        )


def test_a_monitor_that_cannot_sum_up_spoils_nothing(
    run_profile: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = registry._registered()
    for cls in (Clumsy, Chatty):
        known[canonical(cls.__name__)] = EntryPoint(
            cls.__name__, f"{__name__}:{cls.__name__}", registry.COMPONENT_GROUP
        )
    finished = run_profile(
        {
            "Monitors": [element("Clumsy", "C"), element("Chatty", "D", MetricFilters="-two")],
            "Actions": [element("Measuring", "A", ApiKey="hunter-22")],
        }
    )
    assert finished.outcome.exit_code == 0
    (case,) = finished.description["cases"]
    assert case["warnings"] == [
        "Clumsy (C) could not sum up: nobody thought of this",
        "the key is ***",
    ]
    assert list(case_usage(finished, "A")) == ["one"]


class Dying(Monitor):
    """Dies in the first case and monitors after a restart; its disk is full: nothing can be written."""

    started = 0
    begun = threading.Event()
    again = threading.Event()

    def watch(self, context: MonitorContext) -> None:
        type(self).started += 1
        if self.started == 1:
            self.begun.wait(30)
            context.log.parent.mkdir(exist_ok=True)
            context.log.symlink_to("/dev/full")
            raise OSError(28, "No space left on device")
        context.emit([Metric("seen", 1, "count")])
        self.again.set()
        context.stop.wait(60)


class WaitsForIt(Action):
    """Ends when the monitor runs again."""

    def plan(self, facts: Facts) -> Plan:
        def wait(context: StepContext) -> StepOutcome:
            Dying.begun.set()
            assert Dying.again.wait(30)
            return StepOutcome(
                "done", (ParsedOutput("", "tool", scenario="case"),), context.case_dir("a", "b")
            )

        return Plan((Step("wait", "to see the monitor again", wait),))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(registry._registered())
    for cls in (Dying, WaitsForIt):
        known[canonical(cls.__name__)] = EntryPoint(
            cls.__name__, f"{__name__}:{cls.__name__}", registry.COMPONENT_GROUP
        )
    monkeypatch.setattr(registry, "_registered", lambda: known)
    monkeypatch.setattr(monitoring, "RESTART_WAIT_S", 0.05)
    Dying.started = 0
    Dying.begun.clear()
    Dying.again.clear()


@pytest.mark.usefixtures("registered")
def test_a_monitor_that_dies_is_started_again_and_each_case_is_told(run_profile: Run) -> None:
    finished = run_profile({"Monitors": [element("Dying", "D")], "Actions": [element("WaitsForIt", "A")]})
    assert finished.outcome.exit_code == 0
    assert Dying.started == 2
    (case,) = finished.description["cases"]
    (warning,) = case["warnings"]
    assert warning.startswith("Dying (D) died and did not run for ")
    assert warning.endswith("[Errno 28] No space left on device")
    assert any("died and is started again" in note for note in finished.description["verdict"]["warnings"])
    assert [record["metric"] for record in records_of(finished) if record["tool_name"] == "Dying"] == ["seen"]


@pytest.mark.usefixtures("registered")
def test_records_that_cannot_be_written_end_no_monitor(
    run_profile: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Recorder, "emit", full)
    Dying.started = 1
    finished = run_profile({"Monitors": [element("Dying", "D")], "Actions": [element("WaitsForIt", "A")]})
    assert finished.outcome.exit_code == 0
    assert Dying.started == 2
    assert any("records could not be written" in note for note in finished.description["verdict"]["warnings"])
