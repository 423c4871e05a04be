"""A host for NVIDIA's harness: an engine, an account, GPUs in nvidia-smi, a stand-in repository.

The repository behaves as closed/NVIDIA does: its make targets, its detection of systems, its output. Its
LoadGen logs are real ones; GPUs and TensorRT are absent.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.restartable_docker import RestartableDocker

__all__ = ["BASE", "PROGRAMS", "PYTHON", "HarnessHost", "base_archive", "harness_host", "write_repository"]

PROGRAMS = ("make", "busybox", "setpriv", "useradd", "usermod", "dockerd")
PYTHON = Path("/usr/bin/python3")
BASE = "vcagent-test-harness-base:1"
ACCOUNT = "vcharness"
REPOSITORY = Path(__file__).parent / "repository"
LOGS = Path(__file__).parents[2] / "parsers" / "loadgen" / "logs"
LOG_CASES = {
    "offline": "offline_v4_1_valid",
    "offline_invalid": "offline_v6_0_min_duration",
    "server": "server_v3_1_valid",
    "single_stream": "single_stream_v5_0_valid",
    "accuracy": "accuracy_v6_0",
}
_LEFT_OUT = {
    "dist-packages",
    "test",
    "idlelib",
    "tkinter",
    "ensurepip",
    "__pycache__",
    "pydoc_data",
    "lib2to3",
}


def write_repository(folder: Path, version: str) -> None:
    """Write a stand-in for a results repository of one round."""
    shutil.copytree(REPOSITORY, folder, ignore=lambda _, names: {"__pycache__"} & {*names})
    nvidia = folder / "closed" / "NVIDIA"
    (nvidia / "VERSION").write_text(f"{version}\n")
    for name, case in LOG_CASES.items():
        target = nvidia / "standin" / "logs" / name
        target.mkdir(parents=True)
        for log in LOGS.joinpath(case).glob("mlperf_log_*"):
            shutil.copy(log, target)


def base_archive(tree: Path) -> bytes:
    """Return the file system of the base image as a tar: this host's make and Python, and busybox.

    Args:
        tree: a folder to make it in; it is removed afterwards.
    """
    for folder in ("bin", "usr/bin", "tmp", "etc", "root"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    busybox = tree / "bin" / "busybox"
    shutil.copy2(shutil.which("busybox") or "/bin/busybox", busybox)
    for applet in subprocess.run(
        [busybox, "--list"], capture_output=True, text=True, check=True
    ).stdout.split():
        if not (tree / "bin" / applet).exists():
            (tree / "bin" / applet).symlink_to("busybox")
    for program in (Path(shutil.which("make") or ""), PYTHON.resolve()):
        shutil.copy2(program, tree / "usr/bin" / program.name)
        shown = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", shown):
            (tree / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, tree / library[1:])
    (tree / "usr/bin/python3").symlink_to(PYTHON.resolve().name)
    ask = [PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]
    library = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    shutil.copytree(library, tree / library[1:], symlinks=True, ignore=lambda _, names: _LEFT_OUT & {*names})
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tree / "etc/group").write_text("root:x:0:\n")
    tar = subprocess.run(["tar", "--create", f"--directory={tree}", "."], capture_output=True, check=True)
    shutil.rmtree(tree)
    return tar.stdout


@dataclass(frozen=True)
class HarnessHost:
    """The host of a run.

    Args:
        engine: runs the container.
        folder: all files of the test; the account may read it.
        account: the account that runs the harness.
    """

    engine: RestartableDocker
    folder: Path
    account: pwd.struct_passwd

    @property
    def nvidia(self) -> Path:
        """The stand-in for closed/NVIDIA."""
        return self.folder / "repository" / "closed" / "NVIDIA"

    @property
    def scratch(self) -> Path:
        """MLPERF_SCRATCH_PATH."""
        return self.folder / "scratch"

    def set(self, name: str, *values: str) -> None:
        """Set the stand-in's behaviour: ``fail``, ``hang``, ``invalid``, ``cpu``, ``gpu``, ``count``."""
        path = self.nvidia / "standin" / name
        path.write_text("".join(f"{value}\n" for value in values))
        os.chown(path, self.account.pw_uid, self.account.pw_gid)

    def effects(self) -> list[str]:
        """Return the stages that were begun, in order."""
        path = self.nvidia / "standin" / "effects"
        return path.read_text().split() if path.exists() else []

    def gpus(self, name: str, memory_mib: int, count: int) -> None:
        """Let nvidia-smi report other GPUs."""
        lines = [
            f"00000000:{number + 1:02X}:00.0, {name}, {memory_mib}, 550.90.07, Disabled"
            for number in range(count)
        ]
        path = self.folder / "bin" / "nvidia-smi"
        path.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
        path.chmod(0o755)


@contextmanager
def harness_host(engine: RestartableDocker, version: str) -> Iterator[HarnessHost]:
    """Make a host; its account and its folder are removed at the end."""
    subprocess.run(["useradd", "--create-home", "--password=*", ACCOUNT], check=False)
    folder = Path(tempfile.mkdtemp(prefix="vcagent-harness-"))
    try:
        folder.chmod(0o755)
        engine.folder.chmod(0o711)
        host = HarnessHost(engine, folder, pwd.getpwnam(ACCOUNT))
        write_repository(folder / "repository", version)
        (folder / "bin").mkdir()
        host.gpus("NVIDIA H100 80GB HBM3", 81559, 8)
        yield host
    finally:
        subprocess.run(["userdel", "--remove", ACCOUNT], capture_output=True, check=False)
        shutil.rmtree(folder)
