"""``vcagent fleet run --via slurm`` on a real Slurm cluster."""

from __future__ import annotations

import hashlib
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.lab.fleet.controller import DEADLINE_S, await_
from tests.lab.fleet.slurm_cluster import NODES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.fleet.controller import Controller
    from tests.lab.fleet.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.lab


def gated(controller: Controller) -> str:
    """Return a profile that notes each start and goes on once a file exists."""
    folder = controller.folder
    return controller.write_profile(
        f"sh -c 'echo $SLURMD_NODENAME >>{folder}/effects; until [ -e {folder}/gate ]; do sleep 0.1; done'"
    )


def effects(controller: Controller) -> list[str]:
    """Return the nodes that have begun, once for each time."""
    file = controller.folder / "effects"
    return sorted(file.read_text().split()) if file.is_file() else []


def phases(controller: Controller) -> dict[str, str]:
    return {name: host["phase"] for name, host in controller.status().items()}


def inventory_of(controller: Controller, *names: str, **hosts: dict[str, object]) -> str:
    return controller.write_inventory({**{name: {} for name in names}, **hosts}, python=sys.executable)


def run(inventory: str, profile: str, *more: str) -> tuple[str, ...]:
    return ("run", "--via=slurm", "-i", inventory, "-p", profile, *more)


def test_each_node_once_one_down_one_failing(slurm_controller: Controller, slurm: SlurmCluster) -> None:
    slurm.call("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=bad fan")
    failing = {"address": "n3", "parameters": {"Code": "3"}}
    inventory = inventory_of(slurm_controller, "n1", "n2", "n4", fails=failing, nowhere={"address": "n9"})
    profile = slurm_controller.write_profile(
        "sh -c 'echo on $SLURMD_NODENAME; exit $.Parameters.Code'", parameters={"Code": "0"}
    )
    fleet = slurm_controller.fleet(*run(inventory, profile), exit_code=10)
    hosts = fleet["hosts"]
    assert {name: host["phase"] for name, host in hosts.items()} == {
        "n1": "done",
        "n2": "unreached",
        "n4": "done",
        "fails": "failed",
        "nowhere": "failed",
    }
    assert hosts["n2"]["reason"] == "node n2 is down: bad fan"
    assert hosts["fails"]["exit_code"] == 6
    why, _, remedy = hosts["fails"]["reason"].partition("\n")
    assert why.endswith("ended with exit code 3")
    assert "on n3\n" in Path(remedy.split()[-1]).read_text()
    assert hosts["nowhere"]["reason"].startswith("node n9 is not in the cluster or the partition")
    folder = Path(fleet["folder"])
    for name, node in (("n1", "n1"), ("n4", "n4"), ("fails", "n3")):
        assert f"on {node}\n" in (folder / "hosts" / name / "logs" / "1-actions-0-execute.log").read_text()
    assert (folder / "report.html").is_file()
    again = yaml.safe_load((folder / "failed.yaml").read_text())["hosts"]
    assert set(again) == {"n2", "fails", "nowhere"}
    await_(lambda: slurm.call("squeue", "-h") == "")  # slurmd takes a moment to end a job
    slurm.call("scontrol", "update", "NodeName=n2", "State=RESUME")
    slurm.wait_idle()
    retried = slurm_controller.fleet("retry", exit_code=10)["hosts"]
    assert {name: host["phase"] for name, host in retried.items()} == {
        "n2": "done",
        "fails": "failed",
        "nowhere": "failed",
    }


def test_a_killed_controller_is_resumed_and_nothing_is_done_twice(
    slurm_controller: Controller, slurm: SlurmCluster
) -> None:
    inventory = inventory_of(slurm_controller, *NODES)
    first = slurm_controller.start(*run(inventory, gated(slurm_controller), "--batch=2"))
    await_(lambda: effects(slurm_controller) == ["n1", "n2"])
    first.send_signal(signal.SIGKILL)
    first.communicate()
    held = slurm.call("squeue", "-h", "-r", "-t", "PENDING", "-o", "%r").split()
    assert held == ["JobHeldUser"] * 2
    (slurm_controller.folder / "gate").touch()
    resumed = slurm_controller.fleet("resume", exit_code=0)
    assert {host["phase"] for host in resumed["hosts"].values()} == {"done"}
    assert effects(slurm_controller) == list(NODES)


def test_what_waits_says_why_and_what_is_cancelled_is_named(
    slurm_controller: Controller, slurm: SlurmCluster
) -> None:
    slurm.call(
        "sbatch", "--nodelist=n1", "--exclusive", "--job-name=other", "--output=/dev/null", "--wrap=sleep 600"
    )
    await_(lambda: slurm.nodes()["n1"] == "allocated")
    inventory = inventory_of(slurm_controller, "n1", "n2", "n3")
    process = slurm_controller.start(*run(inventory, gated(slurm_controller)))
    await_(lambda: effects(slurm_controller) == ["n2", "n3"])
    await_(lambda: slurm_controller.status()["n1"]["message"] in ("Resources", "Priority"))
    assert phases(slurm_controller)["n1"] == "queued"
    process.send_signal(signal.SIGTERM)  # a test run in the background ignores SIGINT
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 9, out + err
    assert "scancel --name=" in out
    slurm.call("scancel", slurm_controller.status()["n2"]["job"])
    slurm.call("scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=gone")
    at_work = ["pgrep", "-f", f"[e]cho.*{slurm_controller.folder}/effects"]
    await_(lambda: subprocess.run(at_work, stdout=subprocess.DEVNULL, check=False).returncode == 1)
    slurm.call("scancel", "--name=other")
    (slurm_controller.folder / "gate").touch()
    hosts = slurm_controller.fleet("resume", exit_code=10)["hosts"]
    assert hosts["n1"]["phase"] == "done"
    assert hosts["n2"]["phase"] == "failed"
    assert "the job was cancelled" in hosts["n2"]["reason"]
    assert hosts["n3"]["phase"] == "failed"
    assert "the node failed" in hosts["n3"]["reason"]


@contextmanager
def without_python(slurm: SlurmCluster) -> Iterator[dict[str, object]]:
    """Provide the last node, as an inventory entry, without any program called python."""
    programs = {
        path.resolve() for folder in ("/usr/bin", "/usr/local/bin") for path in Path(folder).glob("python3*")
    }
    slurm.on_last_node(
        f"for program in {shlex.join(map(str, programs))}; do mount --bind /dev/null $program; done"
    )
    try:
        yield {"python": ""}
    finally:
        slurm.on_last_node(f"umount {shlex.join(map(str, programs))}")


def test_a_time_limit_and_a_node_without_python_are_named(
    slurm_controller: Controller, slurm: SlurmCluster
) -> None:
    folder = slurm_controller.folder
    profile = slurm_controller.write_profile(
        f"sh -c 'echo measured on $SLURMD_NODENAME; echo $SLURMD_NODENAME >>{folder}/effects; "
        "sleep $.Parameters.Seconds'",
        parameters={"Seconds": "0"},
    )
    with without_python(slurm) as bare:
        inventory = inventory_of(slurm_controller, "n2", n1={"parameters": {"Seconds": "600"}}, n4=bare)
        process = slurm_controller.start(*run(inventory, profile, "--json"), PATH="/usr/bin:/bin")
        await_(lambda: "n1" in effects(slurm_controller))
        # As if submitted with this limit: the least limit is a minute, and an end in the past is refused.
        job = slurm_controller.status()["n1"]["job"]
        slurm.call("scontrol", "update", f"JobId={job}", "EndTime=now+5")
        out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 10, out + err
    hosts = slurm_controller.status()
    assert {name: host["phase"] for name, host in hosts.items()} == {
        "n1": "failed",
        "n2": "done",
        "n4": "failed",
    }
    assert hosts["n1"]["reason"].startswith("the job ran into its time limit, before the run was done")
    latest = folder / "results" / "fleet" / "latest"
    for name in ("n1", "n2"):
        home = latest / "hosts" / name
        assert f"measured on {name}\n" in (home / "logs" / "1-actions-0-execute.log").read_text()
        assert (home / "run.json").is_file()
    assert "no Python 3.10 or newer" in hosts["n4"]["reason"]
    assert "or name one with python: in the inventory" in hosts["n4"]["reason"]
    assert set(yaml.safe_load((latest / "failed.yaml").read_text())["hosts"]) == {"n1", "n4"}
    await_(lambda: slurm.call("squeue", "-h") == "")


def test_too_many_failures_leave_the_others_out_of_the_queue(
    slurm_controller: Controller, slurm: SlurmCluster
) -> None:
    inventory = inventory_of(slurm_controller, *NODES)
    profile = slurm_controller.write_profile("sh -c 'exit 3'")
    fleet = slurm_controller.fleet(*run(inventory, profile, "--batch=1", "--max-failures=0"), exit_code=10)
    assert [host["phase"] for host in fleet["hosts"].values()] == ["failed"] + ["not started"] * 3
    assert fleet["stopped"] == "1 host failed, more than 0"
    await_(lambda: slurm.call("squeue", "-h") == "")


def test_a_planted_secret_is_nowhere(slurm_controller: Controller, slurm: SlurmCluster) -> None:
    token, other = "hf_PlantedParameterTokenValue99", "PlantedVariableValue-4711"
    folder = slurm_controller.folder
    on_node = folder / "tmp"
    on_node.mkdir()
    inventory = inventory_of(slurm_controller, n1={"parameters": {"ApiToken": token}})
    profile = slurm_controller.write_profile(
        f"sh -c 'echo $.Parameters.ApiToken $OTHER_TOKEN | tee /dev/stderr | sha256sum >{folder}/got; "
        f"echo once >>{folder}/effects; until [ -e {folder}/gate ]; do sleep 0.1; done'",
        parameters={"ApiToken": ""},
    )
    process = slurm_controller.start(
        *run(inventory, profile, "--env=OTHER_TOKEN"), OTHER_TOKEN=other, TMPDIR=str(on_node)
    )
    # Values that the profile puts into a command line appear there: it all runs in this shell.
    lists = []
    while not effects(slurm_controller):
        assert process.poll() is None, process.communicate()
        everything = ["ps", "axww", "-o", "args"]
        lists += subprocess.run(everything, capture_output=True, text=True, check=True).stdout.splitlines()
    (folder / inventory).unlink()
    assert list(on_node.glob("vcagent-*/*.n1/results"))

    def found(secret: str) -> str:
        searched = ["grep", "-rlFs", "--devices=skip", secret, str(folder), str(slurm.folder)]
        return subprocess.run(searched, capture_output=True, text=True, check=False).stdout

    during = {secret: found(secret) for secret in (token, other)}
    (folder / "gate").touch()
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, out + err
    got = (folder / "got").read_text().split()[0]
    assert got == hashlib.sha256(f"{token} {other}\n".encode()).hexdigest()
    for secret in (token, other):
        assert not [line for line in lists if secret in line and "sh -c" not in line]
        assert secret not in out + err
        assert during[secret] == ""
        assert found(secret) == ""
    log = folder / "results" / "fleet" / "latest" / "hosts" / "n1" / "logs" / "1-actions-0-execute.log"
    assert "***" in log.read_text()


def test_a_node_that_does_not_see_the_results_folder_is_named(
    slurm_controller: Controller, slurm: SlurmCluster
) -> None:
    profile = slurm_controller.write_profile("true")
    inventory = inventory_of(slurm_controller, "n3", "n4")
    results = slurm.unshared / slurm_controller.folder.name
    fleet = slurm_controller.fleet(*run(inventory, profile, f"--results-dir={results}"), exit_code=10)
    assert fleet["hosts"]["n3"]["phase"] == "done"
    assert "the node cannot see " in fleet["hosts"]["n4"]["reason"]


@pytest.mark.parametrize(
    ("arguments", "environment", "exit_code", "said"),
    [
        (("--partition=nope", "-i", "n1,"), {}, 10, "node n1 is not in the cluster or the partition"),
        (("--partition=nope",), {}, 2, "Slurm knows no partition 'nope'"),
        (("--nodelist=n1", "--sbatch=--account"), {}, 4, "Slurm rejected the job"),
        (("--nodelist=n1", "--yes"), {}, 2, "a job cannot reboot its node"),
        (("--nodelist=n1", "--sudo"), {}, 2, "cannot use sudo"),
        (("--partition=gpu",), {"PATH": "/nowhere"}, 2, "sinfo is not installed here"),
        ((), {}, 2, "no hosts are named"),
    ],
)
def test_what_cannot_be_is_refused(
    slurm_controller: Controller,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    exit_code: int,
    said: str,
) -> None:
    profile = slurm_controller.write_profile("true")
    process = slurm_controller.start("run", "--via=slurm", "-p", profile, *arguments, **environment)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == exit_code, out + err
    assert said in " ".join((out + err).split())
