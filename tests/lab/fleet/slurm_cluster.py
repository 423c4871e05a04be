"""A real Slurm cluster on this machine: a controller, and four nodes that are daemons with their own ports.

Munge, its key and all state are in one folder, so that a cluster that this machine belongs to is not touched.
Each node has its own /run, as machines have. One directory is hidden from the last node, as if it were not on
a shared file system.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["NODES", "PROGRAMS", "SlurmCluster", "missing_programs", "running_cluster"]

NODES = ("n1", "n2", "n3", "n4")
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "setpriv", "unshare")
_UP_S = 120
_CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SwitchType=switch/none
SchedulerParameters=batch_sched_delay=0
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
KillWait=20
{nodes}
PartitionName=gpu Nodes=n[1-4] Default=YES State=UP MaxTime=60
PartitionName=one Nodes=n1 State=UP MaxTime=60
"""
_NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=100"


@dataclass(frozen=True)
class SlurmCluster:
    """A running cluster.

    Args:
        folder: its configuration, state and logs.
    """

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead Slurm's programs to the cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    @property
    def unshared(self) -> Path:
        """The directory that the last node does not see."""
        return self.folder / "unshared"

    def call(self, *command: str, check: bool = True) -> str:
        """Run one of Slurm's programs and return its output."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout.strip()

    def on_last_node(self, command: str) -> None:
        """Run a shell command with the last node's view of the files."""
        daemon = subprocess.run(
            ["pgrep", "--full", f"^slurmd -D -N {NODES[-1]}$"], capture_output=True, text=True, check=True
        )
        subprocess.run(
            ["nsenter", "--mount", f"--target={daemon.stdout.split()[0]}", "sh", "-ec", command], check=True
        )

    def nodes(self) -> dict[str, str]:
        """Return the state of each node."""
        lines = self.call("sinfo", "-h", "-N", "-o", "%N %T", "-p", "gpu", check=False).splitlines()
        return dict(line.split() for line in lines)

    def rest(self) -> None:
        """Cancel every job, and wait until all nodes are idle."""
        for partition in ("gpu", "one"):  # scancel takes only one: a second would replace the first
            self.call("scancel", f"--partition={partition}", check=False)
        for node in NODES:
            self.call("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        self.wait_idle()

    def wait_idle(self) -> None:
        """Wait until all nodes are idle."""
        deadline = time.monotonic() + _UP_S
        while self.nodes() != dict.fromkeys(NODES, "idle"):
            assert time.monotonic() < deadline, self.nodes()
            time.sleep(0.2)


@contextmanager
def running_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """Start a cluster, and stop it at the end.

    Args:
        folder: an empty folder.
    """
    cluster = SlurmCluster(folder)
    (folder / "state").mkdir()
    cluster.unshared.mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    folder.chmod(0o755)  # munged requires it
    host = socket.gethostname().partition(".")[0]
    ports = _free_ports(1 + len(NODES))
    nodes = [
        _NODE.format(name=name, host=host, port=port) for name, port in zip(NODES, ports[1:], strict=True)
    ]
    (folder / "slurm.conf").write_text(
        _CONFIGURATION.format(host=host, folder=folder, controller=ports[0], nodes="\n".join(nodes))
    )
    munge = [
        f"--{name}={folder}/munge.{name.partition('-')[0]}" for name in ("socket", "pid-file", "log-file")
    ]
    munge += [f"--key-file={key}", f"--seed-file={folder}/munge.seed", "--force", "--foreground"]
    with ExitStack() as stack:
        for command in (
            ["munged", "--force", "--foreground", *munge],
            ["slurmctld", "-D"],
            *(_node(name, hidden=["/run"]) for name in NODES[:-1]),
            _node(NODES[-1], hidden=["/run", str(cluster.unshared)]),
        ):
            stack.enter_context(_daemon(command, cluster))
            if command[0] == "munged":
                wait_for((folder / "munge.socket").exists, limit_s=_UP_S, every_s=0.05)
        cluster.wait_idle()
        try:
            yield cluster
        finally:
            cluster.rest()


def _node(name: str, hidden: Sequence[str]) -> list[str]:
    """Return the command line of a node's daemon, with its own folders."""
    mounts = "".join(f"mount -t tmpfs none {folder} && " for folder in hidden)
    return ["unshare", "--mount", "sh", "-c", f"{mounts}exec slurmd -D -N {name}"]


@contextmanager
def _daemon(command: Sequence[str], cluster: SlurmCluster) -> Iterator[None]:
    environment = {**os.environ, **cluster.environment}
    with (cluster.folder / f"{command[0]}.log").open("ab") as log:
        # If the test run is killed, no daemon remains.
        ending = ["setpriv", "--pdeathsig", "TERM", *command]
        process = subprocess.Popen(ending, stdout=log, stderr=log, env=environment)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def missing_programs() -> list[str]:
    """Return the programs of PROGRAMS that are missing."""
    return [program for program in PROGRAMS if shutil.which(program) is None]
