"""Reboots that dependencies ask for: checks whether they happened, and makes them.

The journal holds a run's knowledge about reboots. ``boot`` is the boot in which the run was last worked on.
``reboots`` has one entry for each request, written together with the end of the step that asked. A request
stands until the run is worked on in another boot, so a kill at any moment neither loses a request nor makes
a reboot twice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from agent.core.errors import DependencyFailedError, RebootPendingError
from agent.core.names import canonical
from agent.core.safe_files import make_folder, replace_text
from agent.core.secrets import MASK
from agent.facts import Facts, LocalHost
from agent.facts.boot import BOOT, SYSTEMD
from agent.facts.users import ROOT
from agent.run.resume_unit import ResumeUnit, kept_environment, program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.run.outcome import Outcome
    from agent.store.journal import Journal

MOST_REBOOTS = 3
"""Reboots that a run may have; a run that asks for more would never end."""


class RebootDoor(Protocol):
    """The only access to a host's boots; tests pass another one."""

    def boot(self) -> str:
        """Return an identifier of the current boot; it differs after every reboot."""

    def obstacle(self) -> str:
        """Return why vcagent can neither reboot this host nor resume after a reboot; empty if it can."""

    def arm(self, unit: ResumeUnit) -> None:
        """Make the unit start at every boot from now on."""

    def disarm(self, name: str) -> None:
        """Remove a unit, if it exists."""

    def reboot(self) -> None:
        """Reboot the host, and return before it goes down.

        Raises:
            VcagentError: if the host refuses.
        """


class SystemdDoor(RebootDoor):
    """Reboots the host that the agent runs on, through systemd.

    A unit is armed and disarmed by writing and removing its file and its link, as ``systemctl enable`` does.
    systemd reads them at the next boot. No daemon-reload is needed, which would take GPUs away from running
    containers (NVIDIA/nvidia-container-toolkit, issue 48).

    Args:
        units: the folder of systemd units.
    """

    def __init__(self, units: Path = Path("/etc/systemd/system")) -> None:
        self._units = units
        self._wants = units / "multi-user.target.wants"

    @override
    def boot(self) -> str:
        return Facts(LocalHost())[BOOT]

    @override
    def obstacle(self) -> str:
        facts = Facts(LocalHost())
        if not facts[SYSTEMD]:
            return "this host is not run by systemd"
        return "" if facts[ROOT] else "only root can reboot this host"

    @override
    def arm(self, unit: ResumeUnit) -> None:
        make_folder(self._wants)
        file, link = self._units / unit.name, self._wants / unit.name
        replace_text(file, unit.text(), 0o644)
        with suppress(FileExistsError):
            link.symlink_to(file)

    @override
    def disarm(self, name: str) -> None:
        (self._wants / name).unlink(missing_ok=True)
        (self._units / name).unlink(missing_ok=True)

    @override
    def reboot(self) -> None:
        try:
            subprocess.run(["systemctl", "reboot"], check=True, capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            said = (getattr(error, "stderr", "") or str(error)).strip()
            raise RebootPendingError(
                f"the host refused to reboot: {said}",
                remedy="reboot it yourself; the run then goes on by itself",
            ) from error


def allows_reboot(*settings: Mapping[str, Any]) -> bool:
    """Return True if a profile's parameters or metadata say ``allow_reboot: true``."""
    return any(
        canonical(name) == "allowreboot" and str(value).strip().lower() == "true"
        for values in settings
        for name, value in values.items()
    )


def requested(journal: Journal, step: str, reason: str) -> dict[str, Any]:
    """Return what the journal has to remember when a step asks for a reboot."""
    return {"reboots": [*journal.recall("reboots"), {"step": step, "reason": reason, "made": 0}]}


class Reboots:
    """The reboots of one run.

    Args:
        journal: the run's journal.
        door: the way to the host's boots.
        run_dir: the run's folder, absolute.
        allowed: whether the host may be rebooted.
        arm: whether the run resumes by itself after a reboot that is left to the user.

    Attributes:
        goes_down: whether ``conclude`` will reboot the host.
        pending: whether a requested reboot had not happened when this object was made.
    """

    def __init__(
        self, journal: Journal, door: RebootDoor, run_dir: Path, *, allowed: bool = False, arm: bool = False
    ) -> None:
        self.journal = journal
        self.door = door
        self.allowed = allowed
        self.arm = arm
        self._run_dir = run_dir
        self.goes_down = False
        self.pending = self._look()

    def _look(self) -> bool:
        """Note the current boot, and return True if a requested reboot has not happened yet."""
        boot, before = self.door.boot(), self.journal.recall("boot")
        entries = self.journal.recall("reboots", [])
        if before is not None and boot != before:
            entries = [{"booted": boot, **entry} for entry in entries]
        self.journal.remember(boot=boot, reboots=entries)
        return any("booted" not in entry for entry in entries)

    def happened(self) -> tuple[str, ...]:
        """Return the reasons of the run's past reboots."""
        return tuple(entry["reason"] for entry in self.journal.recall("reboots") if "booted" in entry)

    def waiting(self) -> RebootPendingError | None:
        """Return the error for a run that cannot go on before the host is rebooted; None if it can."""
        if not self.pending:
            return None
        entry = self.journal.recall("reboots")[-1]
        return RebootPendingError(f"the host has not been rebooted yet: {entry['reason']}")

    def arrange(self, outcome: Outcome, mask: Callable[[str], str]) -> None:
        """Arm the unit if the run ended because a reboot is needed, and put the next step into the error.

        Args:
            outcome: how the run ended; its error is replaced.
            mask: takes secrets out of a text.
        """
        if not isinstance(outcome.error, RebootPendingError):
            return
        entries = self.journal.recall("reboots")
        reason = entries[-1]["reason"]
        if len(entries) > MOST_REBOOTS or sum(entry["made"] for entry in entries) >= MOST_REBOOTS:
            outcome.error = DependencyFailedError(
                f"another reboot is needed, and a run may have {MOST_REBOOTS}: {reason}",
                remedy="see in the logs of these steps why the host is not as it should be after a reboot",
                details=tuple(f"{entry['step']}: {entry['reason']}" for entry in entries),
            )
            outcome.exit_code = outcome.error.exit_code
            return
        unit = self._unit(mask)
        if not (self.allowed or self.arm):
            outcome.error = RebootPendingError(
                f"the host must be rebooted: {reason}", remedy=self._by_hand(" (with --yes vcagent reboots)")
            )
        elif obstacle := self._obstacle():
            outcome.error = RebootPendingError(
                f"the host must be rebooted: {reason}; {obstacle}", remedy=self._by_hand()
            )
        else:
            self._arm(outcome, unit, entries)

    def _arm(self, outcome: Outcome, unit: ResumeUnit, entries: list[dict[str, Any]]) -> None:
        reason = entries[-1]["reason"]
        try:
            self.door.arm(unit)
        except OSError as error:
            outcome.error = RebootPendingError(
                f"the host must be rebooted: {reason}; {unit.name} cannot be written: {error}",
                remedy=self._by_hand(),
            )
            return
        watch = f"the run then goes on by itself; watch it with: journalctl -fu {unit.name}"
        if not self.allowed:
            outcome.error = RebootPendingError(
                f"the host must be rebooted: {reason}", remedy=f"reboot it; {watch}"
            )
            return
        entries[-1]["made"] += 1
        self.journal.remember(reboots=entries)
        self.goes_down = True
        outcome.error = RebootPendingError(f"the host is rebooted now: {reason}", remedy=watch)

    def conclude(self, outcome: Outcome) -> None:
        """Reboot if that was arranged; disarm the unit if the run waits for no reboot. Called last."""
        if self.goes_down:
            self.door.reboot()
        elif not isinstance(outcome.error, RebootPendingError):
            self.disarm()

    def disarm(self) -> None:
        """Remove the run's unit, if it exists; a unit that remains finds the run complete at boot."""
        with suppress(OSError):
            self.door.disarm(self._unit(str).name)

    def _obstacle(self) -> str:
        if lost := self._lost():
            return f"it cannot go on by itself, because secrets are not kept: {', '.join(lost)}"
        return self.door.obstacle()

    def _by_hand(self, more: str = "") -> str:
        lost = "".join(f" --parameters {name}=…" for name in self._lost())
        return f"reboot it, then go on with: vcagent resume {self._run_dir}{lost}{more}"

    def _lost(self) -> list[str]:
        """Return the names of the run's parameters whose values are not kept, because they are secrets."""
        parameters = self.journal.recall("request")["parameters"]
        return [name for name, value in parameters.items() if MASK in str(value)]

    def _unit(self, mask: Callable[[str], str]) -> ResumeUnit:
        return ResumeUnit(
            run_dir=self._run_dir,
            command=(*program(sys.argv[0]), "resume", str(self._run_dir)),
            working_dir=Path.cwd(),
            environment=kept_environment(os.environ, mask),
        )
