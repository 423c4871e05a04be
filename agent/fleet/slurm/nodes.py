"""The nodes of a Slurm cluster and their state."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.errors import HostError, UsageError
from agent.fleet.inventory import FleetHost
from agent.fleet.slurm.programs import SlurmPrograms

_UNUSABLE = ("down", "drain", "fail", "error", "unknown", "future", "reboot")
_FORMAT = "%N|%T|%E"


@dataclass(frozen=True)
class Node:
    """One node.

    Args:
        name: the node's name in Slurm (NodeName).
        state: the state that ``sinfo`` shows: ``idle``, ``mixed``, ``down*``.
        reason: the reason for that state; empty if none was given.
    """

    name: str
    state: str
    reason: str = ""

    @property
    def is_usable(self) -> bool:
        """True if a job can run there now or after other jobs; ``*`` marks a node that does not respond."""
        return not self.state.startswith(_UNUSABLE) and not self.state.endswith("*")


def read_nodes(text: str) -> dict[str, Node]:
    """Parse the output of ``sinfo --Node --format=%N|%T|%E``; it lists a node once per partition."""
    nodes = {}
    for line in text.splitlines():
        name, state, reason = (*line.split("|", 2), "", "")[:3]
        nodes[name] = Node(name, state, "" if reason == "none" else reason)
    return nodes


def nodes_of(slurm: SlurmPrograms, partition: str = "") -> dict[str, Node]:
    """Return the nodes of a partition or of the whole cluster.

    Raises:
        HostError: if Slurm does not answer.
    """
    chosen = [f"--partition={partition}"] if partition else []
    return read_nodes(slurm.call("sinfo", "--noheader", "--Node", f"--format={_FORMAT}", *chosen))


def hosts_of(partition: str, nodelist: str) -> list[FleetHost]:
    """Return the hosts that the options name.

    Args:
        partition: a partition; all of its nodes are used if ``nodelist`` is empty.
        nodelist: nodes, as Slurm writes them: ``gpu-[01-16,20]``.

    Raises:
        UsageError: if there are none.
    """
    slurm = SlurmPrograms(str)
    if nodelist:
        try:
            names = slurm.call("scontrol", "show", "hostnames", nodelist).split()
        except HostError as error:
            raise UsageError(
                f"--nodelist {nodelist}: {error.message}", remedy="write it as gpu-[01-16,20]"
            ) from error
    else:
        names = list(nodes_of(slurm, partition))
    if not names:
        raise UsageError(
            f"Slurm knows no partition {partition!r}, or it has no nodes", remedy="sinfo lists them"
        )
    return [FleetHost(name, name) for name in dict.fromkeys(names)]
