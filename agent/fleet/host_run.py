"""One host of a fleet run, regardless of how it is reached."""

from __future__ import annotations

import re
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
    """The settings that all hosts of a fleet run share.

    Args:
        run_id: the id of the fleet run.
        folder: the folder of the hosts' files; each host has a subfolder.
        options: how the controller works on the fleet.
        bundles: the bundles of the agent, by platform.
        mask: removes secrets from a text.
        mask_value: removes secrets from a data structure.
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
        request: the request for the agent on the host, as JSON; it may contain secrets.
        status: the last known status of the host.
        changed: called with the new status after every change.
    """

    host: FleetHost
    request: Mapping[str, Any]
    status: HostStatus
    changed: Callable[[HostStatus], None]


class Way(ABC):
    """A way to reach the hosts of a fleet run."""

    def expect(self, hosts: Iterable[FleetHost]) -> None:  # noqa: B027 - not every way has to
        """Receive the list of hosts, before ``host_run`` is called for each."""

    @abstractmethod
    def host_run(self, part: HostPart) -> HostRun:
        """Return the object that runs one host."""

    def prepare(self, tell: Callable[[str], None]) -> None:  # noqa: B027 - not every way has to
        """Prepare, after the checks, everything that the hosts to be started share.

        Args:
            tell: called with a message before a step that takes long.
        """

    def notes(self) -> list[str]:
        """Return messages for the user, once the hosts are checked."""
        return []

    @abstractmethod
    def close(self, *, complete: bool) -> None:
        """Release the resources that the hosts share.

        Args:
            complete: True if all hosts have ended; otherwise those at work continue.
        """


class HostRun(ABC):
    """One host of a fleet run.

    Args:
        part: the host's part in the run.
        around: the settings that all hosts share.

    Attributes:
        status: the current status.
        error: the error that ended the host's run; None if there was none.
        stopping: True if the run is to end early.
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
        """Check that the host can run the agent; nothing is changed there.

        Args:
            keep_open: True if the run is to be started soon after.

        Raises:
            UnreachableError: if the host cannot be reached.
            HostUnfitError: if it cannot run the agent.
        """

    @abstractmethod
    def carry_out(self) -> Task[None]:
        """Run the agent on the host until it ends, and copy its files to the controller.

        Raises:
            UnreachableError: if the host did not answer for too long.
            HostUnfitError: if it cannot run the agent, or takes too long.
        """

    def stop(self) -> Task[None]:
        """End the run while ``carry_out`` is waiting for it; its files are still copied to the controller.

        Raises:
            HostError: if the stop request does not reach the host.
        """
        self.stopping = True
        yield from ()

    @property
    def has_begun(self) -> bool:
        """True if a run may be active on the host."""
        return bool(self.status.starts)

    @property
    def lacks_sudo_password(self) -> bool:
        """True if sudo needs a password on the host and none was given."""
        return False

    @property
    def has_sudo_password(self) -> bool:
        """True if a sudo password was given."""
        return False

    def take_sudo_password(self, password: str) -> None:  # noqa: B027 - not every way has sudo
        """Use this sudo password from now on."""

    def close(self) -> None:  # noqa: B027 - not every way holds anything
        """Close the connection to the host."""

    def set(self, **changes: Any) -> None:
        """Change fields of the status, and report the change."""
        if "message" in changes:
            changes["message"] = self._around.mask(changes["message"])
        status = replace(self.status, **changes)
        if status != self.status:
            self.status = status
            self._changed(status)

    def fail(self, error: VcagentError) -> None:
        """Record that the host has failed, with the error."""
        error.masked(self._around.mask)
        self.error = error
        phase = HostPhase.UNREACHED if isinstance(error, UnreachableError) else HostPhase.FAILED
        self.set(phase=phase, reason=str(error), ended=now().isoformat())
        self.close()

    def judge(self, standing: Standing) -> None:
        """Record how the run ended, after its files were copied to the controller."""
        described = RunDocument()
        folder = self._around.folder / self.status.folder
        with suppress(UsageError):
            described = RunDocument.read(folder)
        good = standing.exit_code == ExitCode.OK
        reason = "" if good else self._around.mask(standing.error or _reason(described, folder))
        reason = reason.removeprefix(f"{standing.step}: ")  # it is shown after the step
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


def _reason(described: RunDocument, folder: Path) -> str:
    """Return why a run did not succeed: the error that ended it, or else the first reason of its verdict.

    Args:
        described: the run.
        folder: the copy of its folder, which replaces the folder on the host.
    """
    told = described.exit_reason
    if not told and described.verdict.reasons:
        first = described.verdict.reasons[0]
        told = str(VcagentError(first.message.partition("\n")[0], remedy=first.remedy))
    if not described.run_id:
        return told
    return re.sub(rf"\S*/{re.escape(described.run_id)}(?=/)", lambda _: str(folder), told)


def _duration_s(described: RunDocument) -> float | None:
    """Return the run's duration by the host's clock: the controller may not have seen its end."""
    if not (described.start and described.end):
        return None
    began, ended = map(datetime.fromisoformat, (described.start, described.end))
    return max(0.0, (ended - began).total_seconds())
