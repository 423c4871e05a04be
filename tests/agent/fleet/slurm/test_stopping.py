"""Stopping a task of a job array cancels it, and its results so far are judged as stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from agent.fleet.host_run import STOPPED, HostPart, Surroundings
from agent.fleet.inventory import FleetHost
from agent.fleet.options import FleetOptions
from agent.fleet.remote.standing import RunState, Standing
from agent.fleet.scheduling import run_task
from agent.fleet.slurm.host_run import SlurmHostRun
from agent.fleet.slurm.job_array import JobArray, Task
from agent.fleet.status import HostStatus

if TYPE_CHECKING:
    from pathlib import Path


class Programs:
    """Slurm's programs, which keep their command lines."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def call(self, *words: str, **_: object) -> str:
        self.calls.append(words)
        return "7|3|8|R|None\n" if words[0] == "squeue" else ""


def test_its_own_task_alone_is_cancelled(tmp_path: Path) -> None:
    programs = Programs()
    around = Surroundings("r", tmp_path, FleetOptions(), cast("Any", None), str, lambda value: value)
    run = SlurmHostRun(
        HostPart(FleetHost("n3", "n3"), {}, HostStatus("n3", "n3", starts=1, job="7_3"), lambda _: None),
        around,
        index=3,
        array=JobArray(cast("Any", programs), "r", tmp_path),
        folder=cast("Any", None),
        nodes=dict,
        is_secret=False,
    )
    run_task(run.stop())
    assert [call for call in programs.calls if call[0] == "scancel"] == [
        ("scancel", str(Task("7", 3, 8, "R")))
    ]
    end = run_task(run._explained(Standing(RunState.DEAD, "b")))
    run.judge(end)
    assert run.status.reason == STOPPED
