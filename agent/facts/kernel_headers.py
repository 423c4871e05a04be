"""Checks whether modules can be built for the running kernel."""

from __future__ import annotations

import re

from agent.facts.base import Fact, Host


def _read(host: Host) -> bool | None:
    kernel = (host.output(["uname", "-r"]) or "").strip()
    if not kernel or "kernel" not in host.names(f"/lib/modules/{kernel}"):
        return None  # a container uses the kernel of another host
    return "Makefile" in host.names(f"/lib/modules/{kernel}/build")


KERNEL_HEADERS: Fact[bool | None] = Fact("kernel_headers", "/lib/modules/<kernel>/build", _read)


def rpm_headers(kernel: str) -> str:
    """Return the rpm package, with its version, that has the headers of a kernel.

    Sources: the spec files of RHEL's kernel (variants such as ``+64k``, ``+rt``), Oracle's kernel-uek, and
    Amazon Linux 2023, whose kernels after 6.1 have their version in the name.

    Args:
        kernel: as ``uname -r`` says it.
    """
    release, _, variant = kernel.partition("+")
    name = "kernel-uek" if "uek" in release else "kernel"
    amazon = re.match(r"(\d+\.\d+)\..*\.amzn2023", release)
    if amazon and amazon.group(1) != "6.1":
        name = f"kernel{amazon.group(1)}"
    return f"{name}{f'-{variant}' if variant else ''}-devel-{release}"
