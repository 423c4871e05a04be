from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actions.commands.execute_command import ExecuteCommand
from actions.commands.services import CommandService, ContainerService
from agent.component.component import Plan, Step
from agent.core.errors import HostError
from agent.core.secrets import Secrets
from agent.core.terminal import safe_console
from agent.facts import Facts, LocalHost
from agent.planning.groups import PlannedGroup
from agent.planning.planner import PlannedComponent, Standing
from agent.profile.schema import Element, Location
from agent.report.plan_text import render_plan

if TYPE_CHECKING:
    from rich.console import Console


def element(type_name: str) -> Element:
    return Element(kind="dependency", type=type_name, key="dependencies[0]", location=Location("p.yaml", 1))


def test_a_plan_has_a_row_a_step_and_says_why_there_is_none(console: Console) -> None:
    steps = (
        Step(
            "install", "550 is loaded, 570 is wanted", lambda _: None, "apt-get install -y nvidia-driver-570"
        ),
        Step("reboot", "the old module is loaded", lambda _: None),
    )
    refusal = HostError("no GPU has 80 GiB", remedy="choose a smaller [model]")
    render_plan(
        [
            PlannedComponent(element("NvidiaCudaInstallation"), Standing.PLANNED, Plan(steps)),
            PlannedComponent(element("DockerInstallation"), Standing.NOTHING_TO_DO, note="28.1 is running"),
            PlannedComponent(element("LoadGenExecutor"), Standing.REFUSED, error=refusal),
        ],
        console,
    )
    text = console.export_text()
    for part in (
        "NvidiaCudaInstallation", "550 is loaded", "28.1 is running", "refused",
        "no GPU has 80 GiB", "→ choose a smaller [model]", "2 steps to do.",
    ):  # fmt: skip
        assert part in text, part
    assert text.rstrip().splitlines()[-1].strip() == "→ choose a smaller [model]"
    assert text.count("no GPU has 80 GiB") == 1
    assert "apt-get" not in text


def test_a_plan_numbers_the_steps_of_loops_as_the_run_counts_them(console: Console) -> None:
    def echo(name: str, *groups: PlannedGroup) -> PlannedComponent:
        step = Step("execute", "asked", lambda _: None, f"echo {name}", runs_as_written=True)
        action = replace(element("ExecuteCommand"), kind="action", key=name)
        return PlannedComponent(action, Standing.PLANNED, Plan((step,)), groups=groups, scenario=name)

    outer = PlannedGroup(replace(element("SequentialExecution"), key="outer"), loops=3, scenario="warm-up")
    inner = PlannedGroup(replace(element("ParallelExecution"), key="inner"))
    planned = [echo("a", outer), echo("b", outer, inner), echo("c", outer, inner), echo("d")]
    render_plan(planned, console, estimates_s=[None] * 10, rounds="Twice.")
    lines = [line.strip() for line in console.export_text().splitlines()]
    assert lines[0] == "Twice."
    assert [line.split()[0] for line in lines if "echo" in line] == ["1", "2", "3", "10"]
    assert "warm-up: 3 times, one after the other:" in lines
    assert "at the same time:" in lines
    assert lines[-1] == "10 steps to do."


def test_a_plan_shows_commands_and_the_package_folder_once(console: Console) -> None:
    step = Step(
        "install", "/var/packages/tool is missing", lambda _: None, "pip install tool", estimate_s=150
    )
    planned = [PlannedComponent(element("Tool"), Standing.PLANNED, Plan((step,)))]
    render_plan(planned, console, package_dir=Path("/var/packages"), show_commands=True)
    text = console.export_text()
    assert text.count("/var/packages") == 1
    assert "…/tool is missing  2 min" in text
    assert "       pip install tool" in text
    assert "1 step to do, about 2 min 30 s." in text


def test_a_step_is_one_line_of_a_terminal() -> None:
    screen = io.StringIO()
    console = safe_console(file=screen, force_terminal=True, width=80, color_system=None)
    step = Step("install", "word " * 60, lambda _: None, "pip install tool", estimate_s=150)
    render_plan([PlannedComponent(element("Tool"), Standing.PLANNED, Plan((step,)))], console)
    (line,) = [line for line in screen.getvalue().splitlines() if "Tool" in line]
    assert len(line) <= 80
    assert line.rstrip().endswith("2 min")


def test_long_names_are_the_scenarios_alone() -> None:
    screen = io.StringIO()
    console = safe_console(file=screen, force_terminal=True, width=80, color_system=None)
    step = Step("run", "asked", lambda _: None)
    planned = [
        PlannedComponent(element("LoadGenExecutor"), Standing.PLANNED, Plan((step,)), scenario=scenario)
        for scenario in ("singlestream-performance", "s" * 40)
    ]
    render_plan(planned, console)
    lines = [line for line in screen.getvalue().splitlines() if "asked" in line]
    assert [line[5:39].rstrip() for line in lines] == ["singlestream-performance", "s" * 33 + "…"]


def test_a_plan_with_nothing_to_do_says_so(console: Console) -> None:
    render_plan([PlannedComponent(element("Docker"), Standing.NOTHING_TO_DO, note="it runs")], console)
    assert console.export_text().splitlines()[-1] == "Nothing to do."


@pytest.mark.parametrize(
    ("command", "as_written", "warns"),
    [
        ("curl -H hunter2-x9", True, True),
        ("curl -H $KEY", True, False),
        ("git clone https://hunter2-x9@host", False, False),
    ],
)
def test_a_plan_warns_of_a_secret_among_the_arguments(
    command: str,
    as_written: bool,  # noqa: FBT001
    warns: bool,  # noqa: FBT001
    console: Console,
) -> None:
    step = Step("execute", "asked", lambda _: None, command, runs_as_written=as_written)
    planned = PlannedComponent(element("ExecuteCommand"), Standing.PLANNED, Plan((step,)))
    mask = Secrets(["hunter2-x9"]).mask
    render_plan([planned.masked(mask).masked(mask)], console)
    text = " ".join(console.export_text().split())
    assert "hunter2" not in text
    assert text.count("Warning: ") == warns


@pytest.mark.parametrize(
    "kind", [ExecuteCommand, CommandService, ContainerService], ids=lambda kind: kind.__name__
)
def test_the_commands_of_profiles_run_as_written(kind: Any) -> None:
    values = {"command": "x", **({"container": "image"} if kind is ContainerService else {})}
    (step,) = kind(kind.Parameters(**values)).plan(Facts(LocalHost())).steps
    assert step.runs_as_written


def test_groups_of_foreach_bear_their_value_and_monitors_only_their_note(console: Console) -> None:
    def group(key: str, scenario: str, **given: Any) -> PlannedGroup:
        return PlannedGroup(
            replace(element("SequentialExecution"), kind="action", key=key, given=given), scenario=scenario
        )

    outer = group("a", "", Model="m")
    groups = [(outer, group(f"a.{name}", "load", Model="m", Variant=name)) for name in ("F16", "Q8_0")]
    groups.append((outer, group("a.c", "serve-Q4", Model="m", Variant="Q4")))
    action = replace(element("ExecuteCommand"), kind="action")
    monitor = replace(element("HostMonitor"), kind="monitor")
    render_plan(
        [
            PlannedComponent(monitor, Standing.PLANNED, note="runs beside the actions"),
            *(PlannedComponent(action, Standing.SKIPPED, note="off", groups=of) for of in groups),
        ],
        console,
    )
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert "HostMonitor runs beside the actions" in lines
    assert [line for line in lines if "one after" in line] == [
        "one after the other (Model=m):",
        "load: one after the other (Variant=F16):",
        "load: one after the other (Variant=Q8_0):",
        "serve-Q4: one after the other:",
    ]


def test_a_plan_of_refusals_does_not_say_that_there_is_nothing_to_do(console: Console) -> None:
    refused = PlannedComponent(element("A"), Standing.REFUSED, note="no GPU", error=HostError("no GPU"))
    render_plan([refused], console, estimates_s=[])
    text = console.export_text()
    assert "Nothing to do" not in text
    assert text.count("no GPU") == 1
