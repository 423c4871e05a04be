"""Runs one host over SSH, from the first connection to the copied results."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from agent.core.errors import ExitCode, VcagentError
from agent.fleet.bundle import Platform
from agent.fleet.commands import bundle_command, privileged
from agent.fleet.errors import (
    ConnectionLostError,
    DeadlineError,
    HostUnfitError,
    NotFollowedError,
    UnknownHostKeyError,
    UnreachableError,
)
from agent.fleet.host_run import STOPPED, HostRun
from agent.fleet.remote.standing import RunState, Standing
from agent.fleet.remote.watching import HEARTBEAT_S
from agent.fleet.scheduling import Wait
from agent.fleet.ssh.arriving import EXCHANGE_S, arrived, clock_warning, probed
from agent.fleet.ssh.gathering import gathered
from agent.fleet.status import HostPhase
from agent.store.journal import now

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.fleet.host_run import HostPart, Surroundings
    from agent.fleet.scheduling import Task
    from agent.fleet.ssh.connecting import Connector
    from agent.fleet.ssh.credentials import Credentials
    from agent.fleet.ssh.route import Hop
    from agent.fleet.ssh.session import Command, Session

_SILENCE_S = 2.5 * HEARTBEAT_S
_REBOOT_S = 1800.0
_LAST_S = 120.0
"""Seconds for a stopped run to end, and for its results to be copied."""
_MOST_STARTS = 6
_BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 15.0)


class SshHostRun(HostRun):
    """One host that is reached over SSH.

    Args:
        part: the host's part in the run.
        around: the settings that all hosts share.
        connector: opens connections.
        route: the route to the host.
        credentials: the passwords for the host.
    """

    def __init__(
        self,
        part: HostPart,
        around: Surroundings,
        *,
        connector: Connector,
        route: tuple[Hop, ...],
        credentials: Credentials,
    ) -> None:
        super().__init__(part, around)
        self._connector = connector
        self._route = route
        self._credentials = credentials
        self._session: Session | None = None
        self._heard_at = 0.0
        self._heard_running = False
        self._limit_s = self._around.options.host_timeout_s
        self._until: float | None = None

    @property
    @override
    def lacks_sudo_password(self) -> bool:
        return self.status.sudo == "password" and self._credentials.sudo_password is None

    @property
    @override
    def has_sudo_password(self) -> bool:
        return self._credentials.sudo_password is not None

    @override
    def take_sudo_password(self, password: str) -> None:
        self._credentials = replace(self._credentials, sudo_password=password)

    def close(self) -> None:
        """Close the connection."""
        if self._session:
            self._session.close()
            self._session = None

    @override
    def check(self, *, keep_open: bool) -> Task[None]:
        self.set(phase=HostPhase.CONNECTING)
        session = yield from self._connected()
        found = yield from probed(
            session,
            self.host.python,
            sudo=self._around.options.sudo if self.host.sudo is None else self.host.sudo,
            sudo_password=self._credentials.sudo_password,
            host_dir=self.host.host_dir or self._around.options.host_dir,
        )
        self.set(
            phase=HostPhase.WAITING,
            warning=clock_warning(found["clock_off_s"]),
            python=found["python"],
            platform=str(Platform(found["version"], found["machine"], found["libc"])),
            sudo=found["sudo"],
            run_dir=f"{found['base']}/runs/{self._around.run_id}.{self.status.folder}",
        )
        if not keep_open:
            self.close()

    @override
    def carry_out(self) -> Task[None]:
        self._until = time.monotonic() + self._limit_s if self._limit_s else None
        try:
            if not self.has_begun:
                if self.stopping:
                    raise HostUnfitError(STOPPED)
                yield from self._kept_up(lambda: self._started(resume=False))
            standing = yield from self._followed()
            yield from self._brought_home()
        except DeadlineError as error:
            yield from self._cut_short(error)
            raise
        self.judge(standing)
        self.close()

    @override
    def stop(self) -> Task[None]:
        self.stopping = True
        # Without a connection, the next one begins with the stop.
        if self.status.bundle and self._session is not None and self._session.is_open:
            with suppress(UnreachableError):
                yield from self._stopped()

    @property
    @override
    def has_begun(self) -> bool:
        return bool(self.status.starts or (self.stopping and self.status.bundle))

    def _brought_home(self) -> Task[None]:
        self.set(phase=HostPhase.GATHERING, step="", message="")
        yield from self._kept_up(self._gathered)

    def _cut_short(self, error: DeadlineError) -> Task[None]:
        """Stop a run that took too long, and copy its results so far, within a time limit.

        Raises:
            UnreachableError: if the host cannot be reached: its run may still be active.
        """
        if not self.status.bundle:
            return
        self._until = time.monotonic() + _LAST_S
        try:
            yield from self._stopped()
        except UnreachableError as lost:
            raise UnreachableError(
                f"{error.message}, and the stop request failed: {lost.message}", remedy=self._resume
            ) from lost
        with suppress(VcagentError):
            yield from self._kept_up(self._watched)
            yield from self._brought_home()

    @property
    def _stop_again(self) -> str:
        return f"its run may still be active; when reachable: vcagent fleet stop {self._around.run_id}"

    @property
    def _resume(self) -> str:
        return f"its run may still be active; when reachable: vcagent fleet resume {self._around.run_id}"

    def _connected(self) -> Task[Session]:
        if self._session is None or not self._session.is_open:
            self.close()
            self._session = yield from self._connector.connect(self._route, self._credentials)
        return self._session

    def _started(self, *, resume: bool) -> Task[Standing]:
        """Send the bundle to the host if it is missing, and start the run."""
        self.set(phase=HostPhase.PREPARING, message=f"preparing the agent for {self.status.platform}")
        bundle = self._around.bundles.bundle(Platform.from_text(self.status.platform))
        self.set(bundle=bundle.name)
        standing = yield from arrived(
            (yield from self._connected()),
            self.status,
            bundle,
            {**self._request, "resume": resume},
            sudo_password=self._credentials.sudo_password,
            tell=lambda message: self.set(message=message),
        )
        self.set(
            phase=HostPhase.RUNNING,
            started=self.status.started or now().isoformat(),
            starts=self.status.starts + 1,
            boot=standing.boot,
            message="",
        )
        return standing

    def _followed(self) -> Task[Standing]:
        """Follow the run across lost connections and reboots until it has ended."""
        rebooted_at: float | None = None
        while True:
            boot = self.status.boot
            standing: Standing = yield from self._kept_up(self._watched)
            if self.stopping:
                return standing
            new_boot = bool(boot) and standing.boot != boot
            pending = standing.state is RunState.ENDED and standing.exit_code == ExitCode.REBOOT_PENDING
            cut = standing.state in (RunState.DEAD, RunState.ABSENT) or (
                standing.exit_code == ExitCode.INTERRUPTED and (new_boot or not self._heard_running)
            )
            if pending and not new_boot and self._request["request"]["allow_reboot"]:
                if rebooted_at is None:
                    rebooted_at = time.monotonic()
                elif time.monotonic() - rebooted_at > _REBOOT_S:
                    raise HostUnfitError(f"the host did not reboot within {_REBOOT_S / 60:.0f} minutes")
                self.set(phase=HostPhase.REBOOTING, message="waiting for the reboot")
                yield from self._await_reboot(time.monotonic() - rebooted_at)
                continue
            if (pending and new_boot) or cut:
                rebooted_at = None
                if self.status.starts >= _MOST_STARTS:
                    raise HostUnfitError(
                        f"the agent was started {self.status.starts} times and died each time"
                    )
                yield from self._kept_up(lambda: self._started(resume=True))
                continue
            return standing

    def _await_reboot(self, waited_s: float) -> Task[None]:
        """Wait for the reboot; start it here if the agent could not resume after it and did not start it."""
        yield Wait(2.0)
        if waited_s < 15.0:  # noqa: PLR2004 - long enough for systemd to close the connection
            return
        with suppress(UnreachableError):
            session = yield from self._connected()
            command, data = privileged(
                "sh -c 'systemctl reboot || reboot'", self.status.sudo, self._credentials.sudo_password
            )
            reboot = session.start(command, EXCHANGE_S)
            reboot.write(data)
            reboot.end_input()
            yield Wait(15.0)

    def _kept_up(self, work: Callable[[], Task[Any]]) -> Task[Any]:
        """Do some work over as many connections as it needs; give up if the host stays unreachable."""
        silent_since = time.monotonic()
        attempt = 0
        while True:
            before = self._heard_at
            try:
                return (yield from work())
            except (UnknownHostKeyError, NotFollowedError):
                raise
            except UnreachableError as error:
                self.close()
                if self._heard_at != before:
                    silent_since, attempt = time.monotonic(), 0
                silent_s = time.monotonic() - silent_since
                self._check_limit()
                if self.stopping:
                    raise UnreachableError(
                        f"the stop request failed: {error.message}", remedy=self._stop_again
                    ) from error
                if silent_s > self._around.options.reconnect_timeout_s:
                    raise UnreachableError(
                        f"no answer for {silent_s:.0f} s: {error.message}",
                        remedy=self._resume if self.status.bundle else error.remedy,
                    ) from error
                self.set(phase=HostPhase.LOST, message=error.message)
                yield Wait(_BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)])
                attempt += 1

    def _watched(self) -> Task[Standing]:
        """Follow the run until it ends or the connection breaks."""
        if self.stopping:
            yield from self._stopped()
        watch = yield from self._bundle("watch")
        watch.end_input()
        while True:
            line = yield from watch.line(max(0.1, min(_SILENCE_S, self._left_s())))
            self._check_limit()
            if line is None:
                raise ConnectionLostError(f"the host sent nothing for {_SILENCE_S:.0f} s")
            if not line:
                raise NotFollowedError(
                    f"the run cannot be followed on the host: {watch.ended().stderr[-2000:]}",
                    remedy=self._resume,
                )
            standing = Standing.from_json(line)
            self._heard_at = time.monotonic()
            if standing.state is not RunState.RUNNING:
                watch.close()
                return standing
            self._heard_running = True
            self.set(
                phase=HostPhase.RUNNING, step=standing.step, message=standing.message, boot=standing.boot
            )

    def _gathered(self) -> Task[int]:
        count = yield from gathered(
            (yield from self._bundle("send")), self._around.folder / self.status.folder, self._left_s
        )
        return count

    def _stopped(self) -> Task[None]:
        """Ask the run on the host to stop; it can be resumed."""
        stop = yield from self._bundle("stop")
        stop.end_input()
        stop.ended()

    def _bundle(self, verb: str) -> Task[Command]:
        session, at = (yield from self._connected()), self.status
        command, data = privileged(
            bundle_command(at.python, at.base, at.bundle, verb, at.run_dir),
            at.sudo,
            self._credentials.sudo_password,
        )
        started = session.start(command, EXCHANGE_S)
        started.write(data)
        return started

    def _left_s(self) -> float:
        """Return the seconds left for the host."""
        self._check_limit()
        return math.inf if self._until is None else self._until - time.monotonic()

    def _check_limit(self) -> None:
        if self._until is not None and time.monotonic() > self._until:
            self._until = None
            raise DeadlineError(
                f"not done within {self._limit_s:g} s", remedy="allow more time with --host-timeout"
            )
