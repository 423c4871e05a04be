"""One host of a fleet run, whichever way it is reached."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from agent.core.errors import ExitCode, UsageError, VcagentError
from agent.fleet.errors import UnreachableError
from agent.fleet.status import HostPhase, HostStatus
from agent.store.documents import RunDocument
from agent.store.journal import now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from agent.fleet.bundle import Bundles
    from agent.fleet.inventory import FleetHost
    from agent.fleet.options import FleetOptions
    from agent.fleet.remote.standing import Standing
    from agent.fleet.scheduling import Task


STOPPED = "stopped by vcagent fleet stop"


@dataclass(frozen=True)
class Surroundings:
    """What all hosts of a fleet run share.

    Args:
        run_id: the fleet run.
        folder: where the hosts' files go, below which each has its own.
        options: how the fleet is worked on.
        bundles: the agent for each platform.
        mask: takes secrets out of a text.
        mask_value: takes them out of a structure.
    """

    run_id: str
    folder: Path
    options: FleetOptions
    bundles: Bundles
    mask: Callable[[str], str]
    mask_value: Callable[[Any], Any]


@dataclass(frozen=True)
class HostPart:
    """One host's part in a fleet run.

    Args:
        host: the host.
        request: what the agent there is to do, as JSON; it may hold secrets.
        status: where it stood when it was last seen.
        changed: told of every change.
    """

    host: FleetHost
    request: Mapping[str, Any]
    status: HostStatus
    changed: Callable[[HostStatus], None]


class Way(ABC):
    """How the hosts of a fleet run are reached."""

    def expect(self, hosts: Iterable[FleetHost]) -> None:  # noqa: B027 - not every way has to
        """Learn which hosts there are, before ``host_run`` is called for each."""

    @abstractmethod
    def host_run(self, part: HostPart) -> HostRun:
        """One host of the run."""

    def prepare(self, tell: Callable[[str], None]) -> None:  # noqa: B027 - not every way has to
        """Do once what all hosts that are still to be started need, after they were checked.

        Args:
            tell: told what takes its time.
        """

    def notes(self) -> list[str]:
        """What people should know once the hosts were checked."""
        return []

    @abstractmethod
    def close(self, *, complete: bool) -> None:
        """Let go of what hosts share.

        Args:
            complete: whether every host is done with; where not, those at work go on.
        """


class HostRun(ABC):
    """One host of a fleet run.

    Args:
        part: what it is to do.
        around: what all hosts share.

    Attributes:
        status: where it stands.
        error: why it failed; None while it has not.
        stopping: whether the run is to end before it is done.
    """

    def __init__(self, part: HostPart, around: Surroundings) -> None:
        self.host = part.host
        self.status = part.status
        self.error: VcagentError | None = None
        self.stopping = False
        self._request = part.request
        self._changed = part.changed
        self._around = around

    @abstractmethod
    def check(self, *, keep_open: bool) -> Task[None]:
        """See whether the host can run the agent; nothing is changed there.

        Args:
            keep_open: whether it is about to be started.

        Raises:
            UnreachableError: if it cannot be reached.
            HostUnfitError: if it cannot run the agent.
        """

    @abstractmethod
    def carry_out(self) -> Task[None]:
        """Run the agent there, to its end and its files at home.

        Raises:
            UnreachableError: if the host was not heard of for too long.
            HostUnfitError: if it cannot run the agent, or takes too long.
        """

    def stop(self) -> Task[None]:
        """End the run, beside the task that carries it out; its files still come home.

        Raises:
            HostError: if the host cannot be told.
        """
        self.stopping = True
        yield from ()

    @property
    def has_begun(self) -> bool:
        """Whether a run may be at work there, as far as is known."""
        return bool(self.status.starts)

    @property
    def lacks_sudo_password(self) -> bool:
        """Whether sudo is known to want a password there, and there is none."""
        return False

    @property
    def has_sudo_password(self) -> bool:
        """Whether there is a password to be tried."""
        return False

    def take_sudo_password(self, password: str) -> None:  # noqa: B027 - not every way has sudo
        """Use this from now on."""

    def close(self) -> None:  # noqa: B027 - not every way holds anything
        """Let the host go."""

    def set(self, **changes: Any) -> None:
        """Note a change of where it stands."""
        if "message" in changes:
            changes["message"] = self._around.mask(changes["message"])
        status = replace(self.status, **changes)
        if status != self.status:
            self.status = status
            self._changed(status)

    def fail(self, error: VcagentError) -> None:
        """Note that the host is done with, and why."""
        error.masked(self._around.mask)
        self.error = error
        phase = HostPhase.UNREACHED if isinstance(error, UnreachableError) else HostPhase.FAILED
        self.set(phase=phase, reason=str(error), ended=now().isoformat())
        self.close()

    def judge(self, standing: Standing) -> None:
        """Note how the run ended, its files being at home."""
        described = RunDocument()
        with suppress(UsageError):
            described = RunDocument.read(self._around.folder / self.status.folder)
        good = standing.exit_code == ExitCode.OK
        reason = "" if good else self._around.mask(standing.error or described.exit_reason)
        if self.stopping and standing.exit_code in (None, ExitCode.INTERRUPTED):
            reason = STOPPED
        self.set(
            phase=HostPhase.DONE if good else HostPhase.FAILED,
            exit_code=standing.exit_code,
            verdict=described.verdict.validity,
            reason=reason,
            message="",
            ended=now().isoformat(),
            duration_s=_duration_s(described),
        )


def _duration_s(described: RunDocument) -> float | None:
    """How long a run took by its host's clock: the controller may have been away when it ended."""
    if not (described.start and described.end):
        return None
    began, ended = map(datetime.fromisoformat, (described.start, described.end))
    return max(0.0, (ended - began).total_seconds())
