"""The status of each host of a fleet run, as the fleet's journal stores it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from agent.core.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping


class HostPhase(str, Enum):
    """The phase of a host."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    QUEUED = "queued"
    """Waiting in a queue for other jobs."""
    PREPARING = "preparing"
    RUNNING = "running"
    REBOOTING = "rebooting"
    LOST = "lost"
    """Temporarily unreachable."""
    GATHERING = "gathering"
    DONE = "done"
    FAILED = "failed"
    UNREACHED = "unreached"
    SKIPPED = "not started"

    @property
    def is_final(self) -> bool:
        """True if the phase is final."""
        return self in (HostPhase.DONE, HostPhase.FAILED, HostPhase.UNREACHED, HostPhase.SKIPPED)


@dataclass(frozen=True)
class HostStatus:
    """The status of a host; times are ISO 8601 in UTC.

    Args:
        name: the host's name in the inventory.
        folder: the host's folder in the fleet run's ``hosts``.
        phase: the current phase.
        step: the current step of the run on the host.
        message: the latest progress message.
        started: the time when the run was started on the host.
        ended: the time when work on the host ended, for any reason.
        exit_code: the run's exit code.
        verdict: VALID, INVALID, FAILED or None.
        reason: the reason for a failure, with the remedy.
        python: the host's Python; empty if not known yet.
        platform: the platform of the bundle that the host needs.
        sudo: how sudo is used on the host.
        run_dir: the run's folder on the host.
        bundle: the bundle that runs it.
        boot: the boot id of the host at the last contact.
        starts: the number of times that the agent was started on the host.
        job: the id of the job that runs the agent, if a queue does.
        duration_s: the duration of the run by the host's clock; None if unknown.
        warning: a problem of the host that does not stop the run, such as a wrong clock.
    """

    name: str
    folder: str
    phase: HostPhase = HostPhase.WAITING
    step: str = ""
    message: str = ""
    started: str | None = None
    ended: str | None = None
    exit_code: int | None = None
    verdict: str | None = None
    reason: str = ""
    python: str = ""
    platform: str = ""
    sudo: str = ""
    run_dir: str = ""
    bundle: str = ""
    boot: str = ""
    starts: int = 0
    job: str = ""
    warning: str = ""
    duration_s: float | None = None

    @property
    def base(self) -> str:
        """The agent's folder on the host, which contains runs and bundles."""
        return self.run_dir.rsplit("/runs/", 1)[0]

    @property
    def was_reached(self) -> bool:
        """True if the agent was copied to the host or started there."""
        return bool(self.starts or self.bundle)

    @property
    def may_go_on(self) -> bool:
        """True if the host was given up although a run may be active, whose results can still be copied."""
        return self.phase is HostPhase.UNREACHED and self.was_reached

    @property
    def is_good(self) -> bool:
        """True if the run on the host succeeded and its result counts."""
        return self.phase is HostPhase.DONE and self.exit_code == ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        """Return values that JSON can represent."""
        return {**dataclasses.asdict(self), "phase": self.phase.value}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> HostStatus:
        """Create the status from the values of ``to_json``; other fields of ``fleet.json`` are ignored."""
        own = {field.name: values[field.name] for field in dataclasses.fields(cls) if field.name in values}
        return cls(**{**own, "phase": HostPhase(values["phase"])})
