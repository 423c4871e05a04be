"""Reads the state of the loopback interface, by which programs of a host reach each other at 127.0.0.1."""

from __future__ import annotations

from agent.facts.base import Fact, Host


def _read(_: Host) -> bool:
    import psutil

    # By an ioctl: unlike /sys, it sees the network namespace of this process.
    try:
        interface = psutil.net_if_stats().get("lo")
    except OSError:  # qemu's emulation of another processor does not have it
        return True
    return bool(interface and interface.isup)


LOOPBACK: Fact[bool] = Fact("loopback", "psutil: the flags of the interface lo", _read)
"""True if the loopback interface is up, or unknown; a new network namespace has it down."""
