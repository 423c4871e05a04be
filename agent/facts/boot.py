"""Identifies the current boot of the host, and detects systemd."""

from __future__ import annotations

from agent.facts.base import Fact, Host

_START_TIME = 19
"""Position of field 22 of ``/proc/<pid>/stat``, starttime, after the program's name (proc(5))."""


def boot_identity(boot_id: str | None, stat_of_init: str | None) -> str:
    """Return a text that changes with every reboot.

    The kernel's boot id is not enough: a restarted container keeps it, but its first process
    has a new start time.

    Args:
        boot_id: the text of ``/proc/sys/kernel/random/boot_id`` (random(4)).
        stat_of_init: the text of ``/proc/1/stat``.
    """
    fields = (stat_of_init or "").rpartition(")")[2].split()
    started = fields[_START_TIME] if len(fields) > _START_TIME else "?"
    return f"{(boot_id or '?').strip()}/{started}"


def _boot(host: Host) -> str:
    return boot_identity(host.text("/proc/sys/kernel/random/boot_id"), host.text("/proc/1/stat"))


BOOT: Fact[str] = Fact("boot", "/proc/sys/kernel/random/boot_id, /proc/1/stat", _boot)
SYSTEMD: Fact[bool] = Fact(
    "systemd", "/run/systemd/system (sd_booted(3))", lambda host: "system" in host.names("/run/systemd")
)
REBOOTS: Fact[tuple[str, ...]] = Fact(
    "reboots", "the run's journal: the reasons of the reboots that it has had", lambda _host: ()
)
