"""The values of a profile's variables on this host, for this run."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.profile import Variables

if TYPE_CHECKING:
    from pathlib import Path

    from agent.facts import Facts

SERVICE_LOOKUPS = ("ServiceUrl", "ServiceHost", "ServicePort", "ServiceModel")
"""Values of a service for commands: ``{ServiceUrl:name}``."""


def run_variables(
    facts: Facts,
    run_dir: Path,
    experiment_id: str,
    client_id: str,
    *,
    scenarios: str = "",
    system: str = "",
) -> Variables:
    """Return variables that are read from fresh facts on each use.

    Args:
        facts: the host.
        run_dir: the run's folder.
        experiment_id: the experiment's identifier.
        client_id: this host's name in the records.
        scenarios: the value of ``--scenarios``.
        system: the value of ``--system``.
    """
    from agent.facts.agent_paths import PACKAGE_DIR
    from agent.facts.gpus import CUDA_VERSION, DRIVER_VERSION, GPU_COUNT, GPU_MEMORY_MIB, GPU_NAME
    from agent.facts.linux import PLATFORM
    from agent.facts.memory import MEMORY
    from agent.facts.processor import PROCESSOR

    def package(name: str) -> str:
        return str(facts[PACKAGE_DIR] / name)

    selected = [name.strip() for name in scenarios.split(",") if name.strip()]

    def memory(unit_bytes: int) -> Any:
        return lambda: facts[MEMORY].total_bytes // unit_bytes

    return Variables(
        {
            "LogDir": lambda: str(run_dir / "logs"),
            "StateDir": lambda: str(run_dir),
            "TempDir": lambda: str(run_dir / "temp"),
            "ScriptDir": lambda: str(facts[PACKAGE_DIR] / "scripts"),
            "Platform": lambda: facts[PLATFORM],
            "OS": lambda: "linux",
            "Architecture": lambda: facts[PLATFORM].partition("-")[2],
            "LogicalCoreCount": lambda: facts[PROCESSOR].logical_cores,
            "PhysicalCoreCount": lambda: facts[PROCESSOR].physical_cores,
            "SystemMemoryBytes": memory(1),
            "SystemMemoryKilobytes": memory(2**10),
            "SystemMemoryMegabytes": memory(2**20),
            "SystemMemoryGigabytes": memory(2**30),
            "ExperimentId": lambda: experiment_id,
            "ClientId": lambda: client_id,
            "ExecutionSystem": lambda: system,
            "GpuCount": lambda: facts.fresh()[GPU_COUNT],
            "GpuName": lambda: facts.fresh()[GPU_NAME],
            "GpuMemoryMiB": lambda: facts.fresh()[GPU_MEMORY_MIB],
            "DriverVersion": lambda: facts.fresh()[DRIVER_VERSION],
            "CudaVersion": lambda: facts.fresh()[CUDA_VERSION],
            "SelectedScenarios": lambda: ",".join(name for name in selected if not name.startswith("-")),
        },
        {
            "PackageDir": package,
            "PackageDir/Platform": lambda name: str(facts[PACKAGE_DIR] / name / facts[PLATFORM]),
            "ScriptDir": lambda name: str(facts[PACKAGE_DIR] / "scripts" / name),
            "EnvironmentVariable": lambda name: os.environ.get(name, ""),
            # Known only when the service runs: ExecuteCommand then fills them in.
            **{head: partial("{{{}:{}}}".format, head) for head in SERVICE_LOOKUPS},
        },
    )
