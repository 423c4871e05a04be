"""A fleet run from its hosts to its results: who starts when, who is given up, what is kept."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from agent.errors import ExitCode, HostError, VcagentError, unexpected
from agent.fleet.bundle import Bundles
from agent.fleet.display import counted
from agent.fleet.errors import HostUnfitError, UnknownHostKeyError
from agent.fleet.host_run import Surroundings
from agent.fleet.scheduling import Scheduler
from agent.fleet.status import HostPhase
from agent.fleet.waves import Waves, share_of
from agent.interruption import Interruption
from agent.journal import now
from agent.profile import load_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from agent.fleet.display import FleetDisplay
    from agent.fleet.host_run import HostRun, Way
    from agent.fleet.inventory import FleetHost
    from agent.fleet.options import FleetOptions
    from agent.fleet.record import FleetRecord
    from agent.fleet.ssh.credentials import Credentials
    from agent.fleet.status import HostStatus
    from agent.profile import Source
    from agent.request import RunRequest
    from agent.secrets import Secrets

__all__ = ["HOSTS", "Controller"]

HOSTS = "hosts"
"""The folder of the hosts' files in that of the fleet run."""

_LINE_S = 60.0
"""How often it is said how far the fleet is, where there is no table."""


class Controller:
    """Works on the hosts of one fleet run.

    Args:
        run_dir: the fleet run's folder.
        hosts: the hosts, in order.
        request: what each of them is to do.
        sources: the texts of the profiles.
        options: how the fleet is worked on.
        credentials: passwords.
        environment: variables that the agents get; their values may be secret.
        secrets: what is never shown.
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
        *,
        run_dir: Path,
        hosts: Sequence[FleetHost],
        request: RunRequest,
        sources: Sequence[Source],
        options: FleetOptions,
        credentials: Credentials,
        environment: Mapping[str, str],
        secrets: Secrets,
        record: FleetRecord,
        display: FleetDisplay,
        ask_sudo_password: Callable[[], str] | None = None,
    ) -> None:
        self._options = options
        self._secrets = secrets
        self._record = record
        self._display = display
        self._ask_sudo_password = ask_sudo_password
        around = Surroundings(
            run_id=run_dir.name,
            folder=run_dir / HOSTS,
            options=options,
            bundles=Bundles(options.bundles, options.wheels),
            mask=secrets.mask,
        )
        self._way = _way(around, credentials)
        statuses = record.statuses()
        self._runs = {
            host.name: self._way.host_run(
                host,
                _host_request(host, request, sources, environment),
                statuses[host.name],
                self._changed,
            )
            for host in hosts
        }
        for given in {tuple(sorted(host.parameters.items())) for host in hosts}:
            load_sources(sources, overrides={**request.parameters, **dict(given)}, metadata=request.metadata)
        count = len(hosts)
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
            HostError: if host keys are not known: nothing was started then.
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
                self._way.close(complete=complete)
        if not complete:
            return ExitCode.INTERRUPTED
        return (
            ExitCode.OK if all(run.status.is_good for run in self._runs.values()) else ExitCode.FLEET_PARTIAL
        )

    def _check(self, interruption: Interruption) -> bool:
        """See which hosts can be worked on; nothing is changed on any."""
        fresh = [
            run for run in self._runs.values() if not run.status.starts and not run.status.phase.is_final
        ]
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
            with self._display.paused():
                password = self._ask_sudo_password()
            self._secrets.add(password)
            again = [self._runs[name] for name in lacking]
            for run in again:
                run.take_sudo_password(password)
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
        return True

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


def _way(around: Surroundings, credentials: Credentials) -> Way:
    from agent.fleet.ssh.way import OverSsh

    return OverSsh(around, credentials)


def _known(error: BaseException) -> VcagentError:
    if isinstance(error, VcagentError):
        return error
    return unexpected(error, "the controller") if isinstance(error, Exception) else HostError(repr(error))


def _host_request(
    host: FleetHost, request: RunRequest, sources: Sequence[Source], environment: Mapping[str, str]
) -> dict[str, Any]:
    """What the agent on a host is to do; it travels through standard input alone."""
    return {
        "request": {
            **request.to_json(),
            "profiles": [source.label for source in sources],
            "parameters": {**request.parameters, **host.parameters},
            "client_id": host.name,
            "package_dir": None,
        },
        "sources": [vars(source) for source in sources],
        "environment": dict(environment),
    }
