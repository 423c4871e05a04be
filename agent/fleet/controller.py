"""A fleet run from its hosts to its results: who starts when, who is given up, what is kept."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from agent.core.errors import ExitCode, HostError, UsageError, VcagentError, unexpected
from agent.core.interruption import Interruption
from agent.fleet.bundle import Bundles
from agent.fleet.display import counted
from agent.fleet.errors import HostUnfitError, UnknownHostKeyError
from agent.fleet.host_run import HostPart, Surroundings
from agent.fleet.scheduling import Scheduler
from agent.fleet.status import HostPhase
from agent.fleet.transports import transport
from agent.fleet.waves import Waves, share_of
from agent.profile import load_sources
from agent.report.quantities import count_of
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
"""The folder of the hosts' files in that of the fleet run."""

_LINE_S = 60.0
"""How often it is said how far the fleet is, where there is no table."""


class Controller:
    """Works on the hosts of one fleet run.

    Args:
        run_dir: the fleet run's folder.
        assignment: what it is to do.
        record: keeps where each host stands.
        display: shows it.
        ask_sudo_password: asks for a password that turned out to be needed; None where nobody can be asked.

    Attributes:
        stopped: why the hosts that were left did not start; empty where all did.

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
        statuses = record.statuses()
        self._runs = {
            host.name: self._way.host_run(
                HostPart(host, _host_request(host, assignment), statuses[host.name], self._changed)
            )
            for host in fleet.hosts
        }
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
        self._active: set[str] = set()
        self._said = time.monotonic()
        self.stopped = ""

    def run(self) -> ExitCode:
        """Bring every host to its end.

        Returns:
            OK if all hosts are good, FLEET_PARTIAL if some are not, INTERRUPTED if the controller was told to
            stop: the hosts go on then.

        Raises:
            HostError: if host keys are not known, or Slurm does not take the job: nothing was started then.
            UsageError: if a run that is to be followed needs a password that nobody can be asked for.
        """
        interruption = Interruption()
        self._display.expect(run.status for run in self._runs.values())
        complete = False
        with interruption.listening(), self._display:
            try:
                complete = self._check(interruption) and self._carry_out(interruption)
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

    def _check(self, interruption: Interruption) -> bool:
        """See which hosts can be worked on; nothing is changed on any."""
        left = [run for run in self._runs.values() if not run.status.phase.is_final]
        if followed := [run for run in left if run.status.starts and run.lacks_sudo_password]:
            self._give_sudo_password(followed)
        fresh = [run for run in left if not run.status.starts]
        first = set(self._waves.next(set(), set(), set())[: 4 * self._options.pool])
        if fresh:
            self._display.note(f"checking {len(fresh)} hosts")
        errors = self._checked(fresh, first, interruption)
        if errors is None:
            return False
        lacking = [
            name for name, error in errors.items()
            if isinstance(error, HostUnfitError) and "sudo wants a password" in error.message
        ]  # fmt: skip
        if lacking and self._ask_sudo_password:
            again = [self._runs[name] for name in lacking]
            self._give_sudo_password(again)
            more = self._checked(again, first, interruption)
            if more is None:
                return False
            errors = {**{name: error for name, error in errors.items() if name not in lacking}, **more}
        for note in self._way.notes():
            self._display.note(note)
        unknown = {error.line: None for error in errors.values() if isinstance(error, UnknownHostKeyError)}
        if unknown:
            raise HostError(
                f"the host keys of {len(unknown)} servers are not known; nothing was started",
                details=tuple(unknown),
                remedy="compare them with the hosts' own (ssh-keygen -lf on their consoles), "
                "then accept them once: --accept-new-host-keys",
            )
        for name, error in errors.items():
            self._runs[name].fail(error)
        self._way.prepare(self._display.note)
        return True

    def _give_sudo_password(self, runs: Sequence[HostRun]) -> None:
        """Ask for it, once for all."""
        if self._ask_sudo_password is None:
            raise UsageError(
                f"sudo wants its password on {count_of(len(runs), 'host')} whose runs are to be followed",
                remedy="give it again: --ask-sudo-password, or VCAGENT_SUDO_PASSWORD",
            )
        if self._sudo_password is None:
            with self._display.paused():
                self._sudo_password = self._ask_sudo_password()
            self._secrets.add(self._sudo_password)
        for run in runs:
            run.take_sudo_password(self._sudo_password)

    def _checked(
        self, runs: Sequence[HostRun], first: set[str], interruption: Interruption
    ) -> dict[str, VcagentError] | None:
        """Check hosts; what is wrong with which. None if it was interrupted."""
        errors: dict[str, VcagentError] = {}
        for run in runs:

            def ended(_: Any, error: BaseException | None, run: HostRun = run) -> None:
                if error is not None:
                    errors[run.host.name] = _known(error)

            self._scheduler.start(run.check(keep_open=run.host.name in first), ended)
        complete = self._scheduler.run(lambda: not interruption.stop.is_set())
        return errors if complete else None

    def _carry_out(self, interruption: Interruption) -> bool:
        self._start_more()
        complete = self._scheduler.run(lambda: self._look(interruption))
        if not complete:
            return False
        self.stopped = self._waves.stopped(self._names(failed=True))
        for run in self._runs.values():
            if not run.status.phase.is_final:
                run.set(phase=HostPhase.SKIPPED, reason=self.stopped, ended=now().isoformat())
        return True

    def _names(self, *, failed: bool = False) -> set[str]:
        """The hosts that have ended; of those only the failed."""
        return {
            name
            for name, run in self._runs.items()
            if run.status.phase.is_final and not (failed and run.status.is_good)
        }

    def _start_more(self) -> None:
        ended = self._names()
        # A run that an earlier controller has started is followed at once, whatever the waves.
        adopted = {name for name, run in self._runs.items() if run.status.starts}
        due = self._waves.next(self._active | ended | adopted, ended, self._names(failed=True))
        for name in [*(adopted - self._active - ended), *due]:
            self._active.add(name)
            run = self._runs[name]

            def done(_: Any, error: BaseException | None, run: HostRun = run) -> None:
                if error is not None:
                    run.fail(_known(error))
                self._start_more()

            self._scheduler.start(run.carry_out(), done)

    def _look(self, interruption: Interruption) -> bool:
        if time.monotonic() - self._said > _LINE_S:
            self._said = time.monotonic()
            self._display.note(counted(run.status for run in self._runs.values()))
        return not interruption.stop.is_set()

    def _changed(self, status: HostStatus) -> None:
        self._record.put(status)
        self._display.update(status)


def _known(error: BaseException) -> VcagentError:
    if isinstance(error, VcagentError):
        return error
    return unexpected(error, "the controller") if isinstance(error, Exception) else HostError(repr(error))


def _host_request(host: FleetHost, assignment: Assignment) -> dict[str, Any]:
    """What the agent on a host is to do; it holds secrets."""
    request = assignment.fleet.request
    return {
        "request": {
            **request.to_json(),
            "profiles": [source.label for source in assignment.sources],
            "parameters": {**request.parameters, **host.parameters},
            "client_id": host.name,
            "package_dir": None,
            "run_id": "",
        },
        "sources": [vars(source) for source in assignment.sources],
        "environment": dict(assignment.variables),
    }
