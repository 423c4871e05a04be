"""Output of Slurm's programs (tasks of an array, nodes), and the jobs that are submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.errors import UsageError
from agent.fleet.inventory import FleetHost
from agent.fleet.options import FleetOptions
from agent.fleet.slurm.job_array import JobArray, batch_script, read_tasks
from agent.fleet.slurm.nodes import read_nodes
from agent.fleet.transports import transport
from agent.run.request import RunRequest

SQUEUE = """\
12|0|13|RUNNING|None
12|1|14|PENDING|ReqNodeNotAvail, UnavailableNodes:n2
12|2|15|CANCELLED|None
12|3|12|NODE_FAIL|None
20|2|21|PENDING|JobHeldUser
5|N/A|5|RUNNING|None

"""


def test_tasks_are_read_and_the_latest_of_an_index_counts() -> None:
    tasks = read_tasks(SQUEUE)
    assert [str(tasks[index]) for index in range(4)] == ["12_0", "12_1", "20_2", "12_3"]
    assert [task.is_pending for task in tasks.values()].count(True) == 2
    assert tasks[0].job == 13
    assert not tasks[0].is_over
    assert tasks[1].reason == "ReqNodeNotAvail, UnavailableNodes:n2"
    assert tasks[3].is_over
    assert tasks[3].end == "the node failed"
    assert tasks[0].end == ""


@pytest.mark.parametrize(
    ("state", "is_pending", "is_over"),
    [
        ("PENDING", True, False),
        ("CONFIGURING", True, False),
        ("RUNNING", False, False),
        ("COMPLETING", False, False),
        ("SUSPENDED", False, False),
        ("COMPLETED", False, True),
        ("FAILED", False, True),
        ("TIMEOUT", False, True),
        ("OUT_OF_MEMORY", False, True),
        ("A_STATE_TO_COME", False, False),
    ],
)
def test_states(state: str, is_pending: bool, is_over: bool) -> None:  # noqa: FBT001
    task = read_tasks(f"1|0|1|{state}|None")[0]
    assert (task.is_pending, task.is_over) == (is_pending, is_over)


@pytest.mark.parametrize(
    ("line", "is_usable", "reason"),
    [
        ("n|idle|none", True, ""),
        ("n|allocated|none", True, ""),
        ("n|mixed|none", True, ""),
        ("n|idle~|none", True, ""),
        ("n|idle*|Not responding", False, "Not responding"),
        ("n|down*|Not responding", False, "Not responding"),
        ("n|drained|fan | disk", False, "fan | disk"),
        ("n|draining|x", False, "x"),
        ("n|unknown|none", False, ""),
    ],
)
def test_nodes(line: str, is_usable: bool, reason: str) -> None:  # noqa: FBT001
    node = read_nodes(f"{line}\n")["n"]
    assert (node.is_usable, node.reason) == (is_usable, reason)


def test_the_script_bears_any_folder() -> None:
    script = batch_script(Path("/home/o'neill/a b"))
    assert """cd '/home/o'"'"'neill/a b' || exit 66""" in script
    assert str(JobArray.NO_FOLDER) in script


def test_options_survive_the_journal() -> None:
    options = FleetOptions(via="slurm", partition="gpu", sbatch=("--account=a", "--gres=gpu:8"))
    assert FleetOptions.from_json(options.to_json()).sbatch == options.sbatch
    assert FleetOptions.from_json(options.to_json()).via == "slurm"


def test_without_slurm_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="sbatch is not installed here"):
        transport("slurm").check(FleetOptions(via="slurm"), [FleetHost("a", "a")], RunRequest(("P",)))
