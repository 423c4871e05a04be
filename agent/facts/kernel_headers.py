"""Checks whether modules can be built for the running kernel."""

from __future__ import annotations

from agent.facts.base import Fact, Host


def _read(host: Host) -> bool | None:
    kernel = (host.output(["uname", "-r"]) or "").strip()
    if not kernel or "kernel" not in host.names(f"/lib/modules/{kernel}"):
        return None  # a container uses the kernel of another host
    return "Makefile" in host.names(f"/lib/modules/{kernel}/build")


KERNEL_HEADERS: Fact[bool | None] = Fact("kernel_headers", "/lib/modules/<kernel>/build", _read)
