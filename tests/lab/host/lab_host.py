"""A host that tests may change in any way: systemd, apt and Docker are real, its GPUs are not."""

from __future__ import annotations

import io
import subprocess
import tarfile
import time
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.lab.host.docker_engine import DockerEngine

__all__ = ["Hardware", "LabHost", "start_host"]

_BOOT_S = 240
_BOOT = "cut -d' ' -f22 /proc/1/stat"
"""Prints when the first process started."""
_CAPABILITIES = ("SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "SYS_TIME")
"""Capabilities in addition to Docker's own fourteen. systemd mounts; the nested engine makes networks, and
enters containers of other accounts (runc opens the namespaces of their processes); NVIDIA's Makefile.docker
requires SYS_TIME."""


@dataclass(frozen=True)
class Hardware:
    """The hardware of a host.

    Args:
        gpus: the number of GPUs.
        nvswitches: the number of switches; with switches, the GPUs need a fabric manager.
        name: the GPUs' name, as reported by their driver.
        pci_id: their PCI device number.
        memory_mib: their memory.
        nouveau: whether the kernel has its own driver, which takes the GPUs at boot.
        disks: loop devices of this machine that are disks on the host.
    """

    gpus: int = 8
    nvswitches: int = 4
    name: str = "NVIDIA H100 80GB HBM3"
    pci_id: str = "0x2330"
    memory_mib: int = 81559
    nouveau: bool = False
    disks: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the content of ``/etc/lab-hardware``."""
        gpu = f"{self.pci_id} {self.memory_mib} {self.name}"
        gpus = [f"gpu 0000:{17 + i:02x}:00.0 {gpu}" for i in range(self.gpus)]
        switches = [f"nvswitch 0000:{5 + i:02x}:00.0 0x22a3" for i in range(self.nvswitches)]
        disks = [f"disk {path}" for path in self.disks]
        return "\n".join([*gpus, *switches, *disks, *(["nouveau"] if self.nouveau else []), ""])


class LabHost:
    """A lab host.

    Args:
        engine: the engine that runs it.
        name: the name of its container.
    """

    def __init__(self, engine: DockerEngine, name: str) -> None:
        self.engine = engine
        self.name = name

    def run(
        self,
        command: str | Sequence[str],
        *,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 240,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as root and wait for it; a single text is a shell command.

        Raises:
            RuntimeError: if it fails and ``check`` is set; with the output.
        """
        result = subprocess.run(
            self._exec(command, env), capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if check and result.returncode:
            raise RuntimeError(f"{command} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
        return result

    def start(
        self, command: str | Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a command as root; its output, including errors, is a pipe."""
        return subprocess.Popen(
            self._exec(command, env, "--interactive"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def vcagent(
        self, *arguments: str, check: bool = False, timeout_s: float = 240
    ) -> subprocess.CompletedProcess[str]:
        """Run the agent in root's home."""
        return self.run(["vcagent", *arguments], check=check, timeout_s=timeout_s)

    def put(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """Write a file, and make its folder if necessary."""
        data = content.encode() if isinstance(content, str) else content
        self.engine.docker("cp", "-", f"{self.name}:/", stdin=_archive(path, data, mode))

    def read(self, path: str) -> str:
        """Return a file's text."""
        return self.run(["cat", "--", path]).stdout

    def exists(self, path: str) -> bool:
        """Return True if a path exists."""
        return self.run(["test", "-e", path], check=False).returncode == 0

    def boot(self) -> str:
        """Return the start time of the first process, which differs after every reboot; empty if down."""
        return self.run(_BOOT, check=False).stdout.strip()

    def reboot(self) -> None:
        """Reboot the host from outside, as ``systemctl reboot`` does, and wait until it is up."""
        before = self.boot()
        self.engine.docker("restart", "--time=20", self.name)
        self.wait_until_booted(before)

    def power_cut(self) -> None:
        """Stop everything at once, whatever it is doing, and start the host again."""
        before = self.boot()
        self.engine.docker("kill", self.name)
        self.engine.docker("start", self.name)
        self.wait_until_booted(before)

    def wait_until_booted(self, before: str = "") -> None:
        """Wait until systemd has started everything.

        Args:
            before: the earlier boot; the method waits for another one.

        Raises:
            TimeoutError: if that takes more than four minutes.
        """
        deadline = time.monotonic() + _BOOT_S
        while time.monotonic() < deadline:
            told = self.run(f"systemctl is-system-running --wait; {_BOOT}", check=False).stdout.split()
            if told[:1] in (["running"], ["degraded"]) and told[1:] != [before]:
                return
            time.sleep(0.1)
        raise TimeoutError(f"{self.name} is not up: {self.engine.docker('logs', self.name)[-2000:]}")

    def wait_for(self, condition: str, limit_s: float) -> None:
        """Wait until a shell command succeeds, across reboots. It is repeated in the host, which is cheap.

        Raises:
            TimeoutError: if it does not succeed in time; with the output of the agent's units.
        """
        until = time.monotonic() + limit_s
        loop = f"until {{ {condition}; }} >/dev/null 2>&1; do sleep 0.2; done"
        while (left_s := until - time.monotonic()) > 0:
            if self.run(["timeout", f"{max(left_s, 1):.0f}", "sh", "-c", loop], check=False).returncode == 0:
                return
            time.sleep(0.2)
        raise TimeoutError(self.run("journalctl --no-pager -u 'vcagent-*'", check=False).stdout[-4000:])

    def remove(self) -> None:
        """Remove the host with all its data."""
        self.engine.docker("rm", "--force", "--volumes", self.name)

    def _exec(self, command: str | Sequence[str], env: Mapping[str, str] | None, *options: str) -> list[str]:
        words = ["sh", "-c", command] if isinstance(command, str) else list(command)
        # A wide terminal: output is not wrapped within the texts that a test looks for.
        variables = [f"--env={name}={value}" for name, value in {"COLUMNS": "500", **(env or {})}.items()]
        return self.engine.command("exec", *options, "--workdir=/root", *variables, self.name, *words)


def start_host(
    engine: DockerEngine, image: str, name: str, names: Mapping[str, str], hardware: Hardware
) -> LabHost:
    """Start a host and wait until it is up, which takes about a second.

    Args:
        engine: the engine that runs it.
        image: its image.
        name: its name.
        names: addresses of the host names that it knows; it knows no others.
        hardware: its hardware.
    """
    options = [f"--cap-add={capability}" for capability in _CAPABILITIES]
    options += [f"--security-opt={kind}=unconfined" for kind in ("seccomp", "apparmor")]
    options += [f"--device={path}" for path in hardware.disks]
    options += [f"--tmpfs={path}" for path in ("/run", "/run/lock", "/tmp:exec")]  # noqa: S108 - the host's own
    engine.docker(
        "create",
        *options,
        f"--name={name}",
        f"--hostname={name}",
        f"--label={engine.label}",
        *(f"--add-host={other}:{address}" for other, address in names.items()),
        "--dns=127.0.0.1",  # nothing answers there: other names are unknown at once
        "--cgroupns=private",
        "--restart=always",
        "--env=container=docker",
        "--volume=/var/lib/docker",
        image,
    )
    host = LabHost(engine, name)
    host.put("/etc/lab-hardware", hardware.text())
    engine.docker("start", name)
    host.wait_until_booted()
    return host


def _archive(path: str, data: bytes, mode: int) -> bytes:
    """Return a tar of one file, for ``docker cp``, which also works on a stopped container."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        inside = PurePosixPath(path).relative_to("/")
        for folder in reversed(inside.parents[:-1]):
            entry = tarfile.TarInfo(str(folder))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        file = tarfile.TarInfo(str(inside))
        file.size, file.mode, file.mtime = len(data), mode, int(time.time())
        archive.addfile(file, io.BytesIO(data))
    return buffer.getvalue()
