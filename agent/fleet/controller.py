"""The controller of a fleet run: starts the hosts in order, handles failures, and collects the results."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from agent.core.counts import count_of
from agent.core.errors import ExitCode, HostError, UsageError, VcagentError, unexpected
from agent.core.interruption import Interruption
from agent.fleet.bundle import Bundles
from agent.fleet.display import counted
from agent.fleet.errors import HostUnfitError, UnknownHostKeyError
from agent.fleet.host_run import STOPPED, HostPart, Surroundings, Way
from agent.fleet.scheduling import Scheduler
from agent.fleet.status import HostPhase
from agent.fleet.stop_request import STOP_FILE, taken_stop
from agent.fleet.transports import transport
from agent.fleet.waves import Waves, share_of
from agent.profile import load_sources
from agent.store.journal import now

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from agent.fleet.assignment import Assignment
    from agent.fleet.display import FleetDisplay
    from agent.fleet.host_run import HostRun
    from agent.fleet.inventory import FleetHost
    from agent.fleet.record import FleetRecord
    from agent.fleet.status import HostStatus

HOSTS = "hosts"
"""The subfolder of the fleet run that contains the hosts' files."""

_LINE_S = 60.0
"""Seconds between two progress lines if the display is not a table."""


class Controller:
    """Works on the hosts of one fleet run.

    Args:
        run_dir: the fleet run's folder.
        assignment: the assignment.
        record: stores the status of each host.
        display: shows the status of each host.
        ask_sudo_password: asks for a sudo password that turned out to be needed; None if nobody can be asked.
        stopping: whether to end the runs that have begun on these hosts.

    Attributes:
        stopped: why the remaining hosts were not started; empty if all were started.

    Raises:
        ProfileError: if the profile cannot be used with a host's parameters.
        UsageError: if an option or the SSH configuration cannot be used.
    """

    def __init__(
        self,
        run_dir: Path,
        assignment: Assignment,
        record: FleetRecord,
        display: FleetDisplay,
        ask_sudo_password: Callable[[], str] | None = None,
        *,
        stopping: bool = False,
    ) -> None:
        fleet, options = assignment.fleet, assignment.fleet.options
        self._options = options
        self._secrets = assignment.secrets
        self._record = record
        self._display = display
        self._ask_sudo_password = ask_sudo_password
        self._sudo_password: str | None = None
        around = Surroundings(
            run_id=run_dir.name,
            folder=run_dir / HOSTS,
            options=options,
            bundles=Bundles(options.bundles, options.wheels),
            mask=assignment.secrets.mask,
            mask_value=assignment.secrets.mask_value,
        )
        self._way = transport(around.options.via).way(around, assignment.credentials)
        self._way.expect(fleet.hosts)
        statuses = record.statuses()
        self._runs = {
            host.name: self._way.host_run(
                HostPart(host, _host_request(host, assignment), statuses[host.name], self._changed)
            )
            for host in fleet.hosts
        }
        if stopping:
            for run in self._runs.values():
                run.stopping = True
        else:
            for given in {tuple(sorted(host.parameters.items())) for host in fleet.hosts}:
                overrides = {**fleet.request.parameters, **dict(given)}
                load_sources(assignment.sources, overrides=overrides, metadata=fleet.request.metadata)
        count = len(fleet.hosts)
        self._waves = Waves(
            list(self._runs),
            options.canary,
            share_of(options.batch, count, "--batch"),
            share_of(options.max_failures, count, "--max-failures"),
        )
        self._scheduler = Scheduler(options.pool)
        self._stop_file = run_dir / STOP_FILE
        self._ready: set[str] = set()
        self._active: set[str] = set()
        self._ended: set[str] = set()
        self._failed: set[str] = set()
        self._unknown: dict[str, UnknownHostKeyError] = {}
        self._notes = 0
        self._said = time.monotonic()
        # A transport that prepares all hosts at once needs the list of usable hosts first.
        self._may_start = not options.strict_host_keys and type(self._way).prepare is Way.prepare
        self.stopped = ""
        for run in self._runs.values():
            self._settle(run)

    def run(self) -> ExitCode:
        """Work on every host until it has ended.

        Returns:
            OK if all hosts succeeded, FLEET_PARTIAL if some did not, INTERRUPTED if the controller was
            interrupted: the runs on the hosts then continue.

        Raises:
            HostError: if no host key is known (or one is unknown and keys are strict), or if Slurm rejects
                the job: nothing was started then. Also if the journal cannot be written.
            UsageError: if a run that is to be followed needs a password and nobody can be asked for it.
        """
        interruption = Interruption()
        self._display.expect(run.status for run in self._runs.values())
        complete = False
        with interruption.listening(), self._display:
            try:
                complete = self._work(interruption)
            finally:
                self._scheduler.close()
                for run in self._runs.values():
                    run.close()
                self._way.close(
                    complete=complete and not any(run.status.may_go_on for run in self._runs.values())
                )
        if not complete:
            return ExitCode.INTERRUPTED
        return (
            ExitCode.OK if all(run.status.is_good for run in self._runs.values()) else ExitCode.FLEET_PARTIAL
        )

    def _work(self, interruption: Interruption) -> bool:
        """Check the hosts without changing them; start each after its check, when its turn comes."""
        left = [run for run in self._runs.values() if not run.status.phase.is_final]
        if followed := [run for run in left if run.has_begun and run.lacks_sudo_password]:
            self._give_sudo_password(followed)
        fresh = [run for run in left if not run.has_begun]
        first = set(self._waves.next(set(), set(), set()))
        if fresh:
            self._display.note(f"checking {count_of(len(fresh), 'host')}")
        for run in fresh:
            self._start_check(run, keep_open=run.host.name in first)
        self._start_more()
        if not self._scheduler.run(lambda: self._look(interruption)):
            return False
        if not self._may_start:
            self._refuse_unknown(at_most=0)
            self._way.prepare(self._display.note)
            self._may_start = True
            self._start_more()
            if not self._scheduler.run(lambda: self._look(interruption)):
                return False
        self._refuse_unknown(at_most=len(self._runs) - 1)
        if self._unknown:
            self._display.note(
                f"skipped {count_of(len(self._unknown), 'host')} whose host keys are not known: "
                f"{', '.join(self._unknown)}"
            )
        self.stopped = self._waves.stopped(self._failed)
        for run in self._runs.values():
            if not run.status.phase.is_final:
                run.set(phase=HostPhase.SKIPPED, reason=self.stopped, ended=now().isoformat())
        return True

    def _refuse_unknown(self, at_most: int) -> None:
        """Raise an error if more hosts than this have unknown keys.

        Raises:
            HostError: if there are more; nothing was started then.
        """
        if len(self._unknown) <= at_most:
            return
        lines = {error.line: None for error in self._unknown.values()}
        raise HostError(
            f"{count_of(len(lines), 'host key')} unknown; nothing was started",
            details=tuple(lines),
            remedy="compare the fingerprints with the hosts' own (ssh-keygen -lf on their consoles), "
            "then repeat the command with --accept-new-host-keys",
        )

    def _give_sudo_password(self, runs: Sequence[HostRun]) -> None:
        """Ask for the sudo password once, for all hosts."""
        if self._sudo_password is None:
            if self._ask_sudo_password is None:
                raise UsageError(
                    f"sudo wants its password on {count_of(len(runs), 'host')} whose runs are to be followed",
                    remedy="give it again: --ask-sudo-password, or VCAGENT_SUDO_PASSWORD",
                )
            with self._display.paused():
                self._sudo_password = self._ask_sudo_password()
            self._secrets.add(self._sudo_password)
        for run in runs:
            run.take_sudo_password(self._sudo_password)

    def _start_check(self, run: HostRun, *, keep_open: bool) -> None:
        def checked(_: Any, error: BaseException | None) -> None:
            if error is None:
                self._ready.add(run.host.name)
            elif self._wants_sudo_password(run, error):
                self._give_sudo_password([run])
                self._start_check(run, keep_open=keep_open)
                return
            else:
                self._fail(run, error)
            for note in self._way.notes()[self._notes :]:
                self._notes += 1
                self._display.note(note)
            self._start_more()

        self._scheduler.start(run.check(keep_open=keep_open), checked)

    def _wants_sudo_password(self, run: HostRun, error: BaseException) -> bool:
        """Return True if a check failed because sudo needs a password, and it can be asked for."""
        return (
            isinstance(error, HostUnfitError)
            and "sudo wants a password" in error.message
            and self._ask_sudo_password is not None
            and not run.has_sudo_password
        )

    def _fail(self, run: HostRun, error: BaseException) -> None:
        known = _known(error)
        if isinstance(known, UnknownHostKeyError):
            self._unknown[run.host.name] = known
        run.fail(known)
        self._settle(run)

    def _settle(self, run: HostRun) -> None:
        """Record that a host has ended."""
        if run.status.phase.is_final:
            self._ended.add(run.host.name)
            if not run.status.is_good and run.status.phase is not HostPhase.SKIPPED:
                self._failed.add(run.host.name)

    def _start_more(self) -> None:
        if not self._may_start:
            return
        # A run that an earlier controller started is followed at once, regardless of the waves.
        adopted = {name for name, run in self._runs.items() if run.has_begun}
        due = self._waves.next(self._active | self._ended | adopted, self._ended, self._failed, self._ready)
        for name in [*(adopted - self._active - self._ended), *due]:
            self._active.add(name)
            run = self._runs[name]

            def done(_: Any, error: BaseException | None, run: HostRun = run) -> None:
                if error is not None:
                    self._fail(run, error)
                self._settle(run)
                self._start_more()

            self._scheduler.start(run.carry_out(), done)

    def _look(self, interruption: Interruption) -> bool:
        self._record.flush()
        if time.monotonic() - self._said > _LINE_S:
            self._said = time.monotonic()
            self._display.note(counted(run.status for run in self._runs.values()))
        for name in taken_stop(self._stop_file):
            self._stop(name)
        return not interruption.stop.is_set()

    def _stop(self, name: str) -> None:
        """End the run of one host, or do not start it."""
        run = self._runs.get(name)
        if run is None or run.status.phase.is_final or run.stopping:
            return

        def told(_: Any, error: BaseException | None) -> None:
            if error is not None:
                self._display.note(f"{name}: the stop request failed: {error}")

        if name in self._active:
            self._scheduler.start(run.stop(), told)
        else:
            run.stopping = True
            run.set(phase=HostPhase.SKIPPED, reason=STOPPED, ended=now().isoformat())
            self._settle(run)
            run.close()

    def _changed(self, status: HostStatus) -> None:
        self._record.put(status)
        self._display.update(status)


def _known(error: BaseException) -> VcagentError:
    if isinstance(error, VcagentError):
        return error
    return unexpected(error, "the controller") if isinstance(error, Exception) else HostError(repr(error))


def _host_request(host: FleetHost, assignment: Assignment) -> dict[str, Any]:
    """Return the request for the agent on a host; it contains secrets."""
    request = assignment.fleet.request
    return {
        "request": {
            **request.to_json(),
            "profiles": [source.label for source in assignment.sources],
            "parameters": {**request.parameters, **host.parameters},
            "client_id": host.name,
            "run_id": "",
        },
        "sources": [vars(source) for source in assignment.sources],
        "environment": dict(assignment.variables),
    }
