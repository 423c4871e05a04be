"""A Docker engine for tests: a running one if there is any, else a separate one that ends with the tests."""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.lab.host.cache import CACHE

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LABEL", "DockerEngine", "EngineUnavailableError", "running_engine"]

LABEL = "vcagent-test-lab"
"""Label of the tests' images. Containers have it with the engine's number, by which they are removed."""

_START_S = 240
_ENGINES = 4
"""Engines at the same time: one for each process that runs tests of labs."""


class EngineUnavailableError(Exception):
    """No engine runs, and none can be started; the text says what is missing."""


@dataclass(frozen=True)
class DockerEngine:
    """A running engine.

    Args:
        number: distinguishes it from the engines of other processes.
        address: the value of ``docker --host``; None for the client's default.
    """

    number: int
    address: str | None = None

    @property
    def label(self) -> str:
        """The label of its containers."""
        return f"{LABEL}={self.number}"

    def command(self, *arguments: str | Path) -> list[str]:
        """Return a command line of the client."""
        return ["docker", *(["--host", self.address] if self.address else []), *map(str, arguments)]

    def docker(
        self, *arguments: str | Path, stdin: bytes | None = None, check: bool = True, timeout_s: float = 300
    ) -> str:
        """Run the client and return its output.

        Raises:
            RuntimeError: if it fails and ``check`` is set; with all its output.
        """
        result = subprocess.run(
            self.command(*arguments),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            env={**os.environ, "DOCKER_BUILDKIT": "0"},
            check=False,
        )
        output = result.stdout.decode(errors="replace")
        if check and result.returncode:
            command = " ".join(map(str, arguments))
            raise RuntimeError(f"docker {command} ended with {result.returncode}:\n{output}")
        return output

    def answers(self) -> bool:
        """Return True if the engine is up."""
        command = self.command("version", "--format", "{{.Server.Version}}")
        try:
            return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    def remove_ours(self) -> None:
        """Remove the containers of the tests, with their volumes."""
        if containers := self.docker("ps", "--all", "--quiet", f"--filter=label={self.label}").split():
            self.docker("rm", "--force", "--volumes", *containers)


@contextmanager
def running_engine() -> Iterator[DockerEngine]:
    """Provide an engine for this process alone; only cached images of the tests are in it before and after.

    Raises:
        EngineUnavailableError: if no engine is available.
    """
    with _number() as number:
        engine = DockerEngine(number)
        if engine.answers():
            yield from _clean(engine)
            return
        if os.geteuid() != 0 or shutil.which("dockerd") is None:
            raise EngineUnavailableError("no Docker engine answers, and to start one takes root and dockerd")
        with TemporaryDirectory(prefix="lab-engine-") as folder, _started(number, Path(folder)) as own:
            yield from _clean(own)


@contextmanager
def _number() -> Iterator[int]:
    """Hold the lowest number that no other process holds; wait while all are held."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for number in itertools.cycle(range(_ENGINES)):
        with (CACHE / f"host-engine-{number}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.1)
                continue
            yield number
            return


def _clean(engine: DockerEngine) -> Iterator[DockerEngine]:
    engine.remove_ours()
    try:
        yield engine
    finally:
        engine.remove_ours()


@contextmanager
def _started(number: int, folder: Path) -> Iterator[DockerEngine]:
    """Start dockerd in a separate network: bridges and packet filters vanish with it.

    A cable connects its bridge with this network, so that the tests reach containers by their addresses. Its
    images stay in the cache for the next start.
    """
    engine = DockerEngine(number, f"unix://{folder / 'docker.sock'}")
    network = f"10.213.{77 + number}"
    arguments = [
        f"--data-root={CACHE / f'engine-{number}'}",
        f"--exec-root={folder / 'exec'}",
        f"--pidfile={folder / 'pid'}",
        f"--host={engine.address}",
        f"--bip={network}.1/24",
        f"--fixed-cidr={network}.128/25",
    ]
    up = 'ip link set lo up && exec setpriv --pdeathsig TERM dockerd "$@"'
    command = ["unshare", "--net", "sh", "-c", up, "dockerd", *arguments]
    with (folder / "log").open("w+") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            deadline = time.monotonic() + _START_S
            while not engine.answers():
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise EngineUnavailableError(f"dockerd did not start:\n{log.read()[-2000:]}")
                time.sleep(0.2)
            _connect(process.pid, f"vcagent-lab{number}", f"{network}.2/24")
            yield engine
        finally:
            process.terminate()
            process.wait(30)
            _unmount(folder)


def _connect(process_id: int, cable: str, address: str) -> None:
    """Lay a cable from the bridge in a process's network to this network.

    A killed test run leaves its cable behind, which is deleted: only the holder of the number uses its name.
    """
    script = f"""
        ip link delete {cable} 2>/dev/null || true
        ip link add {cable} type veth peer name lab netns {process_id}
        nsenter --net=/proc/{process_id}/ns/net ip link set lab master docker0 up
        ip address add {address} dev {cable}
        ip link set {cable} up
    """
    result = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=False)
    if result.returncode:
        raise EngineUnavailableError(f"the lab's network cannot be reached: {result.stderr.strip()}")


def _unmount(folder: Path) -> None:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((mount for mount in mounts if mount.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=True)
