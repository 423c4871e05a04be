"""Kernel modules built on the host: running builds, their first error, and built modules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Iterator

_MODULE_NAMES = ("nvidia", "nvidia-current", "nvidia-current-open")
"""Debian's modules have names of their own; ``nvidia`` is an alias that modprobe has for them."""

_TREE = "/var/lib/dkms"
_ERROR = re.compile(
    r"\berror:|: command not found|: not found\b|\*\*\* |[Nn]o space left|\bERROR\b|\bFATAL: modpost"
    r"|Unable to|unable to"
)
_NOISE = re.compile(r"^\s*(?:CONFTEST|CC|LD|AR|SYMLINK|MODPOST|BTF|make(?:\[\d+\])?: (?:Enter|Leav))\b")


@dataclass(frozen=True)
class ModuleBuild:
    """A running or failed build; dkms moves the log once a module is built.

    Args:
        module: its name, such as ``nvidia-current``.
        version: the driver's.
        log: the path of ``make.log``.
        error: its first error; empty if none.
        at: its last line.
        lines: their number.
    """

    module: str
    version: str
    log: str
    error: str
    at: str = ""
    lines: int = 0


def first_error(text: str) -> str:
    """Return the first line of a ``make.log`` with an error; later errors mostly follow from it."""
    for line in text.splitlines():
        if _ERROR.search(line) and not _NOISE.match(line):
            return line.strip()
    return ""


def last_line(text: str) -> str:
    """Return the progress of a build: the file being compiled, or the last line."""
    line = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    compiled = re.search(r"/([^/\s]+\.c)(?=\s|$)(?!.*\.c(?:\s|$))", line)
    return f"compiling {compiled.group(1)}" if compiled else line


def _builds(host: Host) -> Iterator[ModuleBuild]:
    for module in host.names(_TREE):
        for version in host.names(f"{_TREE}/{module}"):
            log = f"{_TREE}/{module}/{version}/build/make.log"
            text = host.text(log) if "make.log" in host.names(log.rpartition("/")[0]) else None
            if text is not None:
                lines = text.count("\n")
                yield ModuleBuild(module, version, log, first_error(text), last_line(text), lines)


def _module_file(host: Host, names: tuple[str, ...]) -> str | None:
    kernel = (host.output(["uname", "-r"]) or "").strip()
    programs = {name for folder in ("/usr/sbin", "/sbin", "/usr/bin", "/bin") for name in host.names(folder)}
    if "modinfo" not in programs or "modules.dep" not in host.names(f"/lib/modules/{kernel}"):
        return None  # a container uses the kernel of another host
    told = (host.output(["modinfo", "-k", kernel, "-F", "version", name]) for name in names)
    return next((version.strip() for version in told if version and version.strip()), "")


DKMS_BUILDS: Fact[tuple[ModuleBuild, ...]] = Fact(
    "dkms_builds", f"{_TREE}/*/*/build/make.log", lambda host: tuple(_builds(host))
)
NVIDIA_MODULE_FILE: Fact[str | None] = Fact(
    "nvidia_module_file", "modinfo -k <kernel> nvidia", lambda host: _module_file(host, _MODULE_NAMES)
)
"""Version of the module for the running kernel; empty for none, None if unknown."""
AMDGPU_MODULE_FILE: Fact[str | None] = Fact(
    "amdgpu_module_file", "modinfo -k <kernel> amdgpu", lambda host: _module_file(host, ("amdgpu",))
)
"""Version of AMD's own module for the running kernel; empty for none or the kernel's, None if unknown."""
