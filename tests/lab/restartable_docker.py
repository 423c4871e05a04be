"""A Docker engine with its own daemon.json that tests may restart, and stand-ins for NVIDIA's runtime.

It has its own network: bridges and packet filters vanish with it, and other engines are not touched.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["RestartableDocker", "restartable_docker"]

_SUPERVISOR = """\
echo $$ > {folder}/supervisor
ip link set lo up
(while kill -0 {tests}; do sleep 1; done; touch {folder}/stop; {folder}/restart) 2>/dev/null &
while [ ! -e {folder}/stop ]; do
  setpriv --pdeathsig TERM dockerd --config-file={config} --exec-root={folder}/exec --pidfile={folder}/pid
done
kill $!
"""
_RESTART = """\
#!/bin/sh
pid=$(cat {folder}/pid) && kill "$pid" && while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
"""
_LIMIT_S = 120
_APPLETS = ("sh", "cat", "echo", "env", "id", "ls", "setsid", "sleep", "true")


@dataclass(frozen=True)
class RestartableDocker:
    """An engine that can be restarted.

    Args:
        folder: all files of the engine.
        root: the folder that contains its etc/docker/daemon.json.
        programs: a folder on its PATH; a program put there is found without a restart.
    """

    folder: Path
    root: Path
    programs: Path

    @property
    def config(self) -> Path:
        """The engine's daemon.json."""
        return self.root / "etc" / "docker" / "daemon.json"

    @property
    def address(self) -> str:
        """The value for DOCKER_HOST."""
        return f"unix://{self.folder / 'docker.sock'}"

    @property
    def restart(self) -> Path:
        """A program that restarts the engine, as a service would."""
        return self.folder / "restart"

    def docker(self, *arguments: str, stdin: bytes | None = None) -> str:
        """Run the client and return its output."""
        result = subprocess.run(
            ["docker", f"--host={self.address}", *arguments], input=stdin, capture_output=True, check=True
        )
        return result.stdout.decode()

    def beside(self, *command: str) -> list[str]:
        """Return a command line that runs one of the host's commands in the engine's network."""
        return ["nsenter", f"--net=/proc/{(self.folder / 'pid').read_text().strip()}/ns/net", "--", *command]

    def answers(self) -> bool:
        """Return True if the engine is up."""
        command = ["docker", f"--host={self.address}", "version"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def wait(self) -> None:
        """Wait until it is up."""
        deadline = time.monotonic() + _LIMIT_S
        while not self.answers():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.2)

    def put_program(self, name: str, script: str) -> None:
        """Put a shell script on its PATH."""
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def import_busybox(self, name: str, files: Iterable[Path] = ()) -> None:
        """Make an image of busybox-static and of files of this host, since no registry is available."""
        tree = self.folder / name.replace(":", "-")
        (tree / "bin").mkdir(parents=True)
        shutil.copy2(shutil.which("busybox") or "/bin/busybox", tree / "bin" / "busybox")
        for applet in _APPLETS:
            (tree / "bin" / applet).symlink_to("busybox")
        for file in files:
            target = tree / file.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
        tar = subprocess.run(["tar", "--create", f"--directory={tree}", "."], capture_output=True, check=True)
        self.docker("import", "-", name, stdin=tar.stdout)


@contextmanager
def restartable_docker(
    folder: Path,
    *,
    programs: Mapping[str, Path | str] | None = None,
    settings: Mapping[str, object] | None = None,
) -> Iterator[RestartableDocker]:
    """Start an engine in a folder; it stops with the context.

    Args:
        folder: an empty folder.
        programs: programs on its PATH from the start, such as another dockerd: files, or shell scripts.
        settings: settings of its daemon.json, in addition to those that it needs.
    """
    engine = RestartableDocker(folder, folder / "root", folder / "programs")
    engine.programs.mkdir(parents=True)
    for name, program in (programs or {}).items():
        if isinstance(program, str):
            engine.put_program(name, program)
        else:
            (engine.programs / name).symlink_to(program)
    engine.config.parent.mkdir(parents=True)
    own = {"data-root": str(folder / "data"), "hosts": [engine.address]}
    engine.config.write_text(json.dumps({**(settings or {}), **own}))
    engine.restart.write_text(_RESTART.format(folder=folder))
    engine.restart.chmod(0o755)
    script = _SUPERVISOR.format(folder=folder, config=engine.config, tests=os.getpid())
    environment = {**os.environ, "PATH": f"{engine.programs}:{os.environ['PATH']}"}
    environment.pop("DOCKER_HOST", None)
    with (folder / "log").open("w") as log:
        # Not a child of the tests: some tests check that the processes they started have no children left.
        command = ["setsid", "--fork", "unshare", "--net", "sh", "-c", script]
        subprocess.run(command, stdout=log, stderr=log, env=environment, check=True)
    try:
        engine.wait()
        yield engine
    finally:
        (folder / "stop").touch()
        subprocess.run([engine.restart], check=False)
        _wait_for_end(int((folder / "supervisor").read_text()))
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in sorted((one for one in mounts if one.startswith(f"{folder}/")), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=True)


def _wait_for_end(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, limit_s=_LIMIT_S)
