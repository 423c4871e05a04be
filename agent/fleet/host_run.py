"""One host from the first connection to its results at home."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent.errors import ExitCode, VcagentError
from agent.fleet.bundle import Platform
from agent.fleet.commands import (
    NO_PYTHON,
    bundle_command,
    doorstep_command,
    doorstep_input,
    first_command,
    privileged,
)
from agent.fleet.errors import (
    ConnectionLostError,
    DeadlineError,
    HostUnfitError,
    UnknownHostKeyError,
    UnreachableError,
)
from agent.fleet.gathering import gathered
from agent.fleet.remote.standing import RunState, Standing
from agent.fleet.remote.watching import HEARTBEAT_S
from agent.fleet.scheduling import Wait
from agent.fleet.status import HostPhase, HostStatus
from agent.journal import now

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from agent.fleet.bundle import Bundles
    from agent.fleet.inventory import FleetHost
    from agent.fleet.options import FleetOptions
    from agent.fleet.scheduling import Task
    from agent.fleet.ssh.connecting import Connector
    from agent.fleet.ssh.credentials import Credentials
    from agent.fleet.ssh.route import Hop
    from agent.fleet.ssh.session import Command, Session

__all__ = ["HostRun", "Surroundings"]

_EXCHANGE_S = 60.0
_SILENCE_S = 2.5 * HEARTBEAT_S
_REBOOT_S = 1800.0
_MOST_STARTS = 6
_BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 15.0)


@dataclass(frozen=True)
class Surroundings:
    """What all hosts of a fleet run share.

    Args:
        run_id: the fleet run.
        folder: where a host's files go, below which each has its own.
        options: how the fleet is worked on.
        connector: opens connections.
        bundles: the agent for each platform.
        mask: takes secrets out of a text.
    """

    run_id: str
    folder: Path
    options: FleetOptions
    connector: Connector
    bundles: Bundles
    mask: Callable[[str], str]


class HostRun:
    """One host of a fleet run.

    Args:
        host: the host.
        route: the way to it.
        credentials: passwords for it.
        request: what the agent there is to do, as JSON; it may hold secrets.
        surroundings: what all hosts share.
        status: where it stood when it was last seen.
        changed: told of every change.

    Attributes:
        status: where it stands.
        error: why it failed; None while it has not.
    """

    def __init__(
        self,
        *,
        host: FleetHost,
        route: tuple[Hop, ...],
        credentials: Credentials,
        request: Mapping[str, Any],
        surroundings: Surroundings,
        status: HostStatus,
        changed: Callable[[HostStatus], None],
    ) -> None:
        self.host = host
        self.status = status
        self.error: VcagentError | None = None
        self._route = route
        self.credentials = credentials
        self._request = request
        self._around = surroundings
        self._changed = changed
        self._session: Session | None = None
        self._heard_at = 0.0
        self._heard_running = False
        self._limit_s = surroundings.options.host_timeout_s
        self._until: float | None = None

    @property
    def wants_sudo(self) -> bool:
        """Whether the agent is to be root there."""
        return self._around.options.sudo if self.host.sudo is None else self.host.sudo

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

    def close(self) -> None:
        """Close the connection."""
        if self._session:
            self._session.close()
            self._session = None

    def check(self, *, keep_open: bool) -> Task[None]:
        """Connect, and see whether the host can run the agent; nothing is changed there.

        Raises:
            UnreachableError: if it cannot be reached.
            HostUnfitError: if it cannot run the agent.
        """
        self.set(phase=HostPhase.CONNECTING)
        session = yield from self._connected()
        command = session.start(first_command(self.host.python), _EXCHANGE_S)
        order = {"do": "probe", "sudo": self.wants_sudo, "password": self.credentials.sudo_password}
        with suppress(ConnectionLostError):  # where there is no Python, nobody reads this
            command.write(doorstep_input(order))
            command.end_input()
        line = yield from command.line(_EXCHANGE_S)
        if line is None:
            raise ConnectionLostError(f"a command there gave no answer within {_EXCHANGE_S:g} s")
        answer = command.ended()
        if answer.exit_code == NO_PYTHON or not line:
            raise HostUnfitError(
                f"no Python 3.10 or newer: {answer.stderr}".rstrip(": "),
                remedy="install python3, or name it with python: in the inventory",
            )
        found = json.loads(line)
        if found["sudo"] not in ("", "root", "free", "password"):
            raise HostUnfitError(
                f"the agent cannot be root: {found['sudo']}",
                remedy="see /etc/sudoers on the host, or be asked for the password: --ask-sudo-password",
            )
        self.set(
            phase=HostPhase.WAITING,
            python=found["python"],
            platform=str(Platform(found["version"], found["machine"], found["libc"])),
            sudo=found["sudo"],
            run_dir=f"{found['base']}/runs/{self._around.run_id}.{self.status.folder}",
        )
        if not keep_open:
            self.close()

    def carry_out(self) -> Task[None]:
        """Run the agent there, to its end and its files at home.

        Raises:
            UnreachableError: if the host was not heard of for too long.
            HostUnfitError: if it cannot run the agent, or takes too long.
        """
        self._until = time.monotonic() + self._limit_s if self._limit_s else None
        try:
            if not self.status.starts:
                yield from self._kept_up(lambda: self._started(resume=False))
            standing = yield from self._followed()
        except DeadlineError:
            with suppress(VcagentError):
                yield from self.stopped()
            raise
        self.set(phase=HostPhase.GATHERING, step="", message="")
        yield from self._kept_up(self._gathered)
        self._judge(standing)
        self.close()

    def _judge(self, standing: Standing) -> None:
        described: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            path = self._around.folder / self.status.folder / "run.json"
            described = json.loads(path.read_text(encoding="utf-8"))
        good = standing.exit_code == ExitCode.OK
        self.set(
            phase=HostPhase.DONE if good else HostPhase.FAILED,
            exit_code=standing.exit_code,
            verdict=(described.get("verdict") or {}).get("validity"),
            reason="" if good else self._around.mask(standing.error or described.get("exit_reason") or ""),
            message="",
            ended=now().isoformat(),
        )

    def _connected(self) -> Task[Session]:
        if self._session is None or not self._session.is_open:
            self.close()
            self._session = yield from self._around.connector.connect(self._route, self.credentials)
        return self._session

    def _started(self, *, resume: bool) -> Task[Standing]:
        """Bring the bundle there if it is missing, and start the run."""
        self.set(phase=HostPhase.PREPARING)
        platform = Platform.from_text(self.status.platform)
        self.set(message=f"making the agent ready for {platform}")
        bundle = self._around.bundles.bundle(platform)
        base = self.status.run_dir.rsplit("/runs/", 1)[0]
        self.set(bundle=bundle.name)
        session = yield from self._connected()
        command, data = privileged(
            doorstep_command(self.status.python), self.status.sudo, self.credentials.sudo_password
        )
        size = bundle.path.stat().st_size
        order = {
            "do": "arrive",
            "base": base,
            "bundle": bundle.name,
            "bytes": size,
            "sha256": bundle.sha256,
            "then": "start",
            "run": self.status.run_dir,
        }
        arrival = session.start(command, _EXCHANGE_S)
        arrival.write(data + doorstep_input(order))
        answer = yield from self._answer(arrival)
        if "error" in answer:
            raise HostUnfitError(answer["error"], remedy="free some space there")
        if answer["missing"]:
            self.set(message=f"sending the agent, {size / 1e6:.1f} MB")
            with bundle.path.open("rb") as file:
                while piece := file.read(1 << 18):
                    arrival.write(piece)
        self.set(message="starting the agent")
        arrival.write(json.dumps({**self._request, "resume": resume}).encode())
        arrival.end_input()
        standing = Standing.from_json(json.dumps((yield from self._answer(arrival))))
        arrival.ended()
        self.set(
            phase=HostPhase.RUNNING,
            started=self.status.started or now().isoformat(),
            starts=self.status.starts + 1,
            boot=standing.boot,
            message="",
        )
        return standing

    def _answer(self, command: Command) -> Task[dict[str, Any]]:
        line = yield from command.line(_EXCHANGE_S)
        if line is None:
            raise ConnectionLostError(f"the host gave no answer within {_EXCHANGE_S:g} s")
        if not line:
            ended = command.ended()
            raise HostUnfitError(f"the agent does not start there: {ended.stderr[-2000:] or ended.exit_code}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _followed(self) -> Task[Standing]:
        """Follow the run over lost connections and reboots until it is over."""
        rebooted_at: float | None = None
        while True:
            boot = self.status.boot
            standing: Standing = yield from self._kept_up(self._watched)
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
        """The agent reboots the host itself where it can go on by itself then; where not, it is done here."""
        yield Wait(2.0)
        if waited_s < 15.0:  # noqa: PLR2004 - long enough for systemd to take the connection away
            return
        with suppress(UnreachableError):
            session = yield from self._connected()
            command, data = privileged(
                "sh -c 'systemctl reboot || reboot'", self.status.sudo, self.credentials.sudo_password
            )
            reboot = session.start(command, _EXCHANGE_S)
            reboot.write(data)
            reboot.end_input()
            yield Wait(15.0)

    def _kept_up(self, work: Callable[[], Task[Any]]) -> Task[Any]:
        """Do something over as many connections as it takes; a host that stays silent is given up."""
        silent_since = time.monotonic()
        attempt = 0
        while True:
            before = self._heard_at
            try:
                return (yield from work())
            except UnknownHostKeyError:
                raise
            except UnreachableError as error:
                self.close()
                if self._heard_at != before:
                    silent_since, attempt = time.monotonic(), 0
                silent_s = time.monotonic() - silent_since
                self._check_limit()
                if silent_s > self._around.options.reconnect_timeout_s:
                    raise UnreachableError(
                        f"not heard of for {silent_s:.0f} s: {error.message}", remedy=error.remedy
                    ) from error
                self.set(phase=HostPhase.LOST, message=error.message)
                yield Wait(_BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)])
                attempt += 1

    def _watched(self) -> Task[Standing]:
        """Follow the run for as long as the connection holds and it runs."""
        watch = yield from self._bundle("watch")
        watch.end_input()
        while True:
            line = yield from watch.line(self._patience_s())
            self._check_limit()
            if line is None:
                raise ConnectionLostError(f"the host says nothing for {_SILENCE_S:.0f} s")
            if not line:
                raise HostUnfitError(f"the agent cannot be followed there: {watch.ended().stderr[-2000:]}")
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
            (yield from self._bundle("send")), self._around.folder / self.status.folder
        )
        return count

    def stopped(self) -> Task[None]:
        """Tell the run there to stop; it can be resumed."""
        stop = yield from self._bundle("stop")
        stop.end_input()
        stop.ended()

    def _bundle(self, verb: str) -> Task[Command]:
        session = yield from self._connected()
        base = self.status.run_dir.rsplit("/runs/", 1)[0]
        command, data = privileged(
            bundle_command(self.status.python, base, self.status.bundle, verb, self.status.run_dir),
            self.status.sudo,
            self.credentials.sudo_password,
        )
        started = session.start(command, _EXCHANGE_S)
        started.write(data)
        return started

    def _patience_s(self) -> float:
        if self._until is None:
            return _SILENCE_S
        return max(0.1, min(_SILENCE_S, self._until - time.monotonic()))

    def _check_limit(self) -> None:
        if self._until is not None and time.monotonic() > self._until:
            self._until = None
            raise DeadlineError(
                f"not done within {self._limit_s:g} s", remedy="give it more time with --host-timeout"
            )
