"""FreeGpuMemory with real processes; nvidia-smi is a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from agent.facts import Facts, LocalHost
from agent.facts.gpu_memory import GPU_MEMORY_HOLDERS, gpu_memory, memory_holders
from dependencies.nvidia.free_gpu_memory import FORCE_VARIABLE, FreeGpuMemory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.dependencies.conftest import RealHost

RUN = f"20260401T120000Z-killed-{os.getpid()}"  # differs from that of other workers
_SMI = """#!/bin/sh
# A process that is gone, or only waits for its parent, holds nothing.
holds() { [ -d /proc/$1 ] && ! grep -q 'State:.Z' /proc/$1/status; }
case "$1" in
--query-gpu=index*)
  free=81000
  for pid in {pids}; do holds $pid && free=$((free - 30000)); done
  echo "0, GPU-a, 81559, $free" ;;
--query-compute-apps=*)
  for pid in {pids}; do holds $pid && echo "GPU-a, $pid, 30000"; done ;;
esac
exit 0
"""
_ORPHAN = (
    "import subprocess, sys; print(subprocess.Popen(['sleep', '600'], start_new_session=True,"
    " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)"
)


def orphan(run: str) -> int:
    """Start a process whose parent has ended, as a killed agent would leave it; return its number."""
    environment = {**os.environ, "VCAGENT_RUN": run}
    made = subprocess.run([sys.executable, "-c", _ORPHAN], env=environment, check=True, capture_output=True)
    return int(made.stdout)


@pytest.fixture
def processes() -> Iterator[dict[str, psutil.Process]]:
    """Start a process left by a killed run, and one unrelated to vcagent."""
    leftover = psutil.Process(orphan(RUN))
    stranger = psutil.Popen(["sleep", "600"])
    yield {"leftover": leftover, "stranger": stranger}
    for process in (leftover, stranger):
        if process.is_running():
            process.kill()
    stranger.wait()


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def on_gpu(monkeypatch: pytest.MonkeyPatch, folder: Path, *holders: psutil.Process) -> None:
    program = folder / "nvidia-smi"
    program.write_text(_SMI.replace("{pids}", " ".join(str(holder.pid) for holder in holders)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_leftover_is_ended_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processes: dict[str, psutil.Process], real_host: RealHost
) -> None:
    on_gpu(monkeypatch, tmp_path, processes["leftover"])
    monkeypatch.setenv(FORCE_VARIABLE, "1")
    component = FreeGpuMemory(FreeGpuMemory.Parameters.model_validate({"memory_share": 0.9}))
    facts = Facts(LocalHost())
    (holder,) = facts[GPU_MEMORY_HOLDERS]
    assert (holder.pid, holder.run_id, holder.is_leftover) == (processes["leftover"].pid, RUN, True)
    assert holder.command == "sleep 600"
    assert holder.bytes_held == 30000 * 2**20
    assert real_host.apply(component) == ["end-leftovers"]
    assert not is_alive(processes["leftover"])
    assert is_alive(processes["stranger"])


def test_a_process_of_a_living_agent_is_no_leftover(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = (
        "import subprocess; child = subprocess.Popen(['sleep', '600'], env={'VCAGENT_RUN': 'r'});"
        "print(child.pid, flush=True); child.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        child = psutil.Process(int(agent.stdout.readline()))
        on_gpu(monkeypatch, tmp_path, child)
        (holder,) = Facts(LocalHost())[GPU_MEMORY_HOLDERS]
        child.kill()
    assert (holder.run_id, holder.is_leftover) == ("r", False)


def test_what_nvidia_smi_says() -> None:
    assert gpu_memory("0, GPU-a, 81559, 81079\n1, GPU-b, [N/A], [N/A]\nNo devices were found\n")[0].index == 0
    assert len(gpu_memory("0, GPU-a, 81559, 81079\n1, GPU-b, [N/A], [N/A]\n")) == 1
    assert gpu_memory(None) == ()
    text = "GPU-a, 12, 100\nGPU-b, 12, 50\nGPU-a, 13, [N/A]\n"
    assert memory_holders(text) == {
        12: (("GPU-a", "GPU-b"), 150 * 2**20),
        13: (("GPU-a",), None),
    }
