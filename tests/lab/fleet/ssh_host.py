"""Hosts with a real sshd, each in a container; some run systemd and can be rebooted."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.lab.host.docker_engine import DockerEngine

__all__ = ["SshHost", "start_hosts"]

_UP_S = 240
_KEYS = """\
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
for user in root easy asked plain; do
  home=$(getent passwd $user | cut -d: -f6)
  mkdir -p -m 700 $home/.ssh
  echo '{key}' >$home/.ssh/authorized_keys
  chown -R $user: $home/.ssh
done
"""
_SYSTEMD = (
    *("--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN", "--cgroupns=private", "--restart=always"),
    *("--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined", "--env=container=docker"),
    *("--tmpfs=/run", "--tmpfs=/run/lock", "--tmpfs=/tmp:exec"),
)


@dataclass(frozen=True)
class SshHost:
    """A host with sshd."""

    engine: DockerEngine
    name: str
    address: str

    def run(self, command: str, *, check: bool = True) -> str:
        """Run a shell command on the host as root, without SSH; return its output."""
        return self.engine.docker("exec", self.name, "sh", "-c", command, check=check)

    def host_key(self) -> str:
        """Return its key as a line of known_hosts."""
        kind, key = self.run("cat /etc/ssh/ssh_host_ed25519_key.pub").split()[:2]
        return f"{self.address} {kind} {key}\n"

    def freeze(self) -> None:
        """Stop all processes on the host; the kernel still accepts connections."""
        self.engine.docker("pause", self.name)

    def thaw(self) -> None:
        """Continue all processes on the host."""
        self.engine.docker("unpause", self.name)

    def deafen(self) -> None:
        """End all connections and accept no more: sshd is stopped, other processes continue."""
        self.engine.docker("kill", "--signal=STOP", self.name)
        self.run("pkill -f '[s]shd: .*@notty'")

    def undeafen(self) -> None:
        """Accept connections again."""
        self.engine.docker("kill", "--signal=CONT", self.name)

    def boot(self) -> str:
        """Return the start time of its first process."""
        return self.run("cut -d' ' -f22 /proc/1/stat", check=False).strip()


def start_hosts(
    engine: DockerEngine,
    image: str,
    names: Sequence[str],
    public_key: Path,
    *,
    systemd: bool = False,
    options: Sequence[str] = (),
) -> list[SshHost]:
    """Start hosts and wait until each of them accepts connections.

    Args:
        engine: the engine that runs them.
        image: their image.
        names: their names.
        public_key: the key that gives access to them.
        systemd: whether they run systemd.
        options: more options for Docker.
    """
    setup = _KEYS.format(key=public_key.read_text().strip())
    start = "exec /sbin/init" if systemd else "exec /usr/sbin/sshd -De"
    for name in names:
        engine.docker(
            "run",
            "--detach",
            f"--name={name}",
            f"--hostname={name}",
            f"--label={engine.label}",
            *(_SYSTEMD if systemd else ()),
            *options,
            image,
            "sh",
            "-c",
            f"test -e /etc/ssh/ssh_host_ed25519_key || {{ {setup} }}; mkdir -p /run/sshd; {start}",
        )
    addresses = engine.docker("inspect", "--format={{.NetworkSettings.IPAddress}}", *names).split()
    hosts = [SshHost(engine, name, address) for name, address in zip(names, addresses, strict=True)]
    deadline = time.monotonic() + _UP_S
    for host in hosts:
        while not _speaks(host.address):
            assert time.monotonic() < deadline, engine.docker("logs", host.name)[-2000:]
            time.sleep(0.05)
    return hosts


def _speaks(address: str) -> bool:
    """Return True if the server at an address has begun to speak SSH."""
    try:
        with socket.create_connection((address, 22), timeout=10) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
