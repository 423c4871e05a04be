"""The distribution, its kernel and the platform."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from agent.facts.base import Fact, Host

_ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True)
class Distribution:
    """A Linux distribution, as described by os-release(5).

    Args:
        id: its short name, such as ``ubuntu``.
        version: its version, such as ``22.04``; empty for a rolling one.
        codename: such as ``jammy``; empty if it has none.
        like: the distributions it derives from, nearest first.
        name: its readable name.
    """

    id: str
    version: str = ""
    codename: str = ""
    like: tuple[str, ...] = ()
    name: str = ""

    def is_like(self, family: str) -> bool:
        """Return True if it is this distribution or derives from it."""
        return family in (self.id, *self.like)


def os_release(text: str) -> Distribution:
    """Read ``/etc/os-release``; if it names none the distribution is ``linux`` (os-release(5))."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, separator, value = line.strip().partition("=")
        if separator and not name.startswith("#"):
            try:
                values[name] = " ".join(shlex.split(value))
            except ValueError:  # an unterminated quote
                values[name] = value.strip("\"'")
    identifier = values.get("ID") or "linux"
    return Distribution(
        id=identifier.lower(),
        version=values.get("VERSION_ID", ""),
        codename=values.get("VERSION_CODENAME", ""),
        like=tuple(values.get("ID_LIKE", "").lower().split()),
        name=values.get("PRETTY_NAME", values.get("NAME", identifier)),
    )


def platform_of(machine: str) -> str:
    """Return VirtualClient's name of a platform: ``x86_64`` is ``linux-x64``."""
    return f"linux-{_ARCHITECTURES.get(machine, machine)}"


def _machine(host: Host) -> str:
    return (host.output(["uname", "-m"]) or "").strip()


DISTRIBUTION: Fact[Distribution] = Fact(
    "distribution",
    "/etc/os-release",
    lambda host: os_release(host.text("/etc/os-release") or host.text("/usr/lib/os-release") or ""),
)
KERNEL: Fact[str] = Fact("kernel", "uname -r", lambda host: (host.output(["uname", "-r"]) or "").strip())
ARCHITECTURE: Fact[str] = Fact("architecture", "uname -m", _machine)
PLATFORM: Fact[str] = Fact("platform", "uname -m", lambda host: platform_of(_machine(host)))
GLIBC: Fact[str | None] = Fact(
    "glibc",
    "getconf GNU_LIBC_VERSION",
    lambda host: (host.output(["getconf", "GNU_LIBC_VERSION"]) or "").strip().rpartition(" ")[2] or None,
)
"""The version of the GNU C library, such as 2.36; None if the host has another C library."""
