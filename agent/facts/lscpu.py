"""What lscpu says of the processors: topology and caches."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Mapping

_LSCPU = ("lscpu", "--json", "--bytes")


@dataclass(frozen=True)
class CpuTopology:
    """The processors as lscpu describes them; a value that it does not give is None.

    Args:
        vendor_id: such as ``GenuineIntel``.
        model_name: the processor's name.
        family: CPU family.
        model: CPU model number.
        stepping: revision of the model.
        architecture: such as ``x86_64``.
        logical: hardware threads.
        cores_per_socket: cores in each package.
        sockets: packages.
        numa_nodes: NUMA nodes.
        cache_bytes: size of each cache over all instances, by name, such as ``L1d``.
    """

    vendor_id: str | None = None
    model_name: str | None = None
    family: str | None = None
    model: str | None = None
    stepping: str | None = None
    architecture: str | None = None
    logical: int | None = None
    cores_per_socket: int | None = None
    sockets: int | None = None
    numa_nodes: int | None = None
    cache_bytes: Mapping[str, int] = field(default_factory=dict)


def lscpu(text: str | None) -> CpuTopology | None:
    """Read ``lscpu --json --bytes``; None if the text is something else."""
    values: dict[str, str] = {}

    def take(items: object) -> None:
        for item in items if isinstance(items, list) else ():
            values.setdefault(str(item["field"]).rstrip(":"), str(item.get("data") or "").strip())
            take(item.get("children"))  # lscpu 2.38 nests what belongs together

    try:
        take(json.loads(text or "")["lscpu"])
    except (ValueError, KeyError, TypeError):
        return None

    def number(name: str) -> int | None:
        found = re.match(r"\d+", values.get(name, ""))
        return int(found[0]) if found else None

    caches = {
        name.removesuffix(" cache"): size
        for name in values
        if re.fullmatch(r"L\d[di]? cache", name) and (size := number(name)) is not None
    }
    return CpuTopology(
        vendor_id=values.get("Vendor ID") or None,
        model_name=values.get("Model name") or None,
        family=values.get("CPU family") or None,
        model=values.get("Model") or None,
        stepping=values.get("Stepping") or None,
        architecture=values.get("Architecture") or None,
        logical=number("CPU(s)"),
        cores_per_socket=number("Core(s) per socket") or number("Core(s) per cluster"),
        sockets=number("Socket(s)") or number("Cluster(s)"),
        numa_nodes=number("NUMA node(s)"),
        cache_bytes=caches,
    )


def _read(host: Host) -> CpuTopology | None:
    return lscpu(host.output(_LSCPU))


CPU_TOPOLOGY: Fact[CpuTopology | None] = Fact("cpu_topology", " ".join(_LSCPU), _read)
