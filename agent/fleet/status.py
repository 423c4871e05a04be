"""Where each host of a fleet run stands, as the fleet's journal keeps it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from agent.core.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping


class HostPhase(str, Enum):
    """What is going on with a host."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    QUEUED = "queued"
    """In a queue, for others to be done."""
    PREPARING = "preparing"
    RUNNING = "running"
    REBOOTING = "rebooting"
    LOST = "lost"
    """Not heard of for the moment."""
    GATHERING = "gathering"
    DONE = "done"
    FAILED = "failed"
    UNREACHED = "unreached"
    SKIPPED = "not started"

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen."""
        return self in (HostPhase.DONE, HostPhase.FAILED, HostPhase.UNREACHED, HostPhase.SKIPPED)


@dataclass(frozen=True)
class HostStatus:
    """A host's standing; times are ISO 8601 in UTC.

    Args:
        name: the host's name in the inventory.
        folder: its folder in the fleet run's ``hosts``.
        phase: what is going on.
        step: what the run on the host is at.
        message: the last that it said.
        started: when the run was started there.
        ended: when the host was done with, however.
        exit_code: the run's exit code.
        verdict: VALID, INVALID, FAILED or None.
        reason: why it failed, with the remedy.
        python: the host's Python; empty while that is not known.
        platform: what bundle it takes.
        sudo: how sudo is used there.
        run_dir: the run's folder on the host.
        bundle: the bundle that runs it.
        boot: the boot of the host in which it was last heard of.
        starts: how often the agent was started there.
        job: the job that runs it, where a queue does.
        duration_s: how long the run took there, as the host says; None where that is not known.
        warning: what people should know of the host although it works, such as a wrong clock.
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
        """Our folder on the host, in which runs and bundles are."""
        return self.run_dir.rsplit("/runs/", 1)[0]

    @property
    def may_go_on(self) -> bool:
        """Whether it was given up while a run may be at work there, whose results can still come home."""
        return self.phase is HostPhase.UNREACHED and bool(self.starts or self.bundle)

    @property
    def is_good(self) -> bool:
        """Whether the run there ended, and its result counts."""
        return self.phase is HostPhase.DONE and self.exit_code == ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can carry."""
        return {**dataclasses.asdict(self), "phase": self.phase.value}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> HostStatus:
        """The inverse of ``to_json``; what else is told of a host in ``fleet.json`` is passed over."""
        own = {field.name: values[field.name] for field in dataclasses.fields(cls) if field.name in values}
        return cls(**{**own, "phase": HostPhase(values["phase"])})
