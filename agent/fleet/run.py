"""A fleet run from the command line's wishes to its outcome; a resumed one goes on from its journal."""

from __future__ import annotations

import dataclasses
import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.errors import ExitCode, UsageError, masking
from agent.fleet.controller import Controller
from agent.fleet.failed import FAILED_FILE
from agent.fleet.inventory import read_inventory
from agent.fleet.options import FleetOptions
from agent.fleet.outcome import write_outcome
from agent.fleet.record import FleetRecord, fleet_folder, recorded
from agent.journal import Journal, now
from agent.names import canonical
from agent.profile import find, load_sources
from agent.request import RunRequest, kept_sources
from agent.results import JOURNAL, ResultsFolder, new_run_id
from agent.secrets import MASK, Secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from agent.fleet.display import FleetDisplay
    from agent.fleet.inventory import FleetHost
    from agent.fleet.ssh.credentials import Credentials

__all__ = [
    "FinishedFleet",
    "Wishes",
    "fleet_folder",
    "recorded",
    "resume_fleet",
    "retry_fleet",
    "start_fleet",
]


@dataclass(frozen=True)
class FinishedFleet:
    """What is left of a fleet run: its folder, how it ended, ``fleet.json``."""

    run_dir: Path
    exit_code: ExitCode
    description: Mapping[str, Any]


@dataclass(frozen=True)
class Wishes:
    """What every command that works on a fleet needs.

    Args:
        credentials: passwords.
        display: shows what happens.
        ask_sudo_password: asks for a password that turned out to be needed; None where nobody can be asked.
    """

    credentials: Credentials
    display: FleetDisplay
    ask_sudo_password: Callable[[], str] | None = None


def start_fleet(
    hosts: Sequence[FleetHost],
    request: RunRequest,
    options: FleetOptions,
    environment: Iterable[str],
    wishes: Wishes,
) -> FinishedFleet:
    """Run a profile on hosts.

    Args:
        hosts: the hosts.
        request: what each of them is to do; its results folder is the controller's.
        options: how the fleet is worked on.
        environment: names of variables that the agents get.
        wishes: passwords and the display.

    Raises:
        ProfileError: if the profile cannot be used.
        UsageError: if an option cannot be used, or a variable is not set.
        HostError: if host keys are not known.
    """
    sources = [find(reference) for reference in request.profiles]
    profile = load_sources(sources, overrides=request.parameters, metadata=request.metadata)
    request = dataclasses.replace(request, experiment_id=request.experiment_id or str(uuid.uuid4()))
    variables = _variables(environment)
    secrets = _secrets(request, hosts, wishes.credentials, variables)
    folder = fleet_folder(request.results_dir)
    folder.prepare()
    with masking(secrets.mask):
        run_id = new_run_id(profile.name, now())
        run_dir = folder.create(run_id)
        with ResultsFolder(run_dir).locked(run_id), Journal(run_dir / JOURNAL) as journal:
            record = FleetRecord(journal)
            record.begin(
                hosts=hosts,
                request=request,
                sources=sources,
                options=options,
                environment=variables,
                mask=secrets.mask,
                mask_value=secrets.mask_value,
            )
            return _work(
                run_dir,
                record=record,
                hosts=hosts,
                request=request,
                sources=sources,
                options=options,
                variables=variables,
                secrets=secrets,
                wishes=wishes,
            )


def resume_fleet(
    results_dir: Path,
    run: str | None,
    parameters: Mapping[str, str],
    wishes: Wishes,
    *,
    accept_new_host_keys: bool = False,
) -> FinishedFleet:
    """Go on with a fleet run whose controller ended before its hosts did.

    Args:
        results_dir: the folder of all runs.
        run: the fleet run; None for the latest.
        parameters: secrets that were given with ``--parameters`` and were not kept.
        wishes: passwords and the display.
        accept_new_host_keys: whether unknown host keys are written down and trusted.

    Raises:
        UsageError: if there is no such run, it is complete, or a secret is to be given again.
    """
    run_dir = recorded(results_dir, run)
    with ResultsFolder(run_dir).locked(run_dir.name), Journal(run_dir / JOURNAL) as journal:
        record = FleetRecord(journal)
        if record.recall("kind") != "fleet":
            raise UsageError(
                f"{run_dir} is no fleet run", remedy="vcagent resume goes on with a host's own run"
            )
        if record.recall("exit_code") in (ExitCode.OK, ExitCode.FLEET_PARTIAL):
            raise UsageError(
                f"fleet run {run_dir.name} is complete",
                remedy=f"vcagent fleet retry {run_dir.name} tries its failed hosts again",
            )
        request = RunRequest.from_json(record.recall("request"), parameters)
        sources = kept_sources(record.recall("sources"), request.profiles)
        options = dataclasses.replace(
            FleetOptions.from_json(record.recall("options")), accept_new_host_keys=accept_new_host_keys
        )
        hosts = _with_secrets(record.hosts(), parameters)
        variables = _variables(record.recall("environment"))
        secrets = _secrets(request, hosts, wishes.credentials, variables)
        record.end(None)
        with masking(secrets.mask):
            return _work(
                run_dir,
                record=record,
                hosts=hosts,
                request=request,
                sources=sources,
                options=options,
                variables=variables,
                secrets=secrets,
                wishes=wishes,
            )


def retry_fleet(
    results_dir: Path, run: str | None, parameters: Mapping[str, str], wishes: Wishes
) -> FinishedFleet:
    """Run again, as a new fleet run, on the hosts that failed, were not reached or not started.

    Args:
        results_dir: the folder of all runs.
        run: the fleet run; None for the latest.
        parameters: secrets that were given with ``--parameters`` and were not kept.
        wishes: passwords and the display.

    Raises:
        UsageError: if there is no such run, or no host to try again.
    """
    run_dir = recorded(results_dir, run)
    failed = run_dir / FAILED_FILE
    if not failed.is_file():
        raise UsageError(
            f"fleet run {run_dir.name} has no failed hosts",
            remedy=f"vcagent fleet status {run_dir.name} tells how it stands",
        )
    with Journal(run_dir / JOURNAL) as journal:
        record = FleetRecord(journal)
        request = RunRequest.from_json(record.recall("request"), parameters)
        options = FleetOptions.from_json(record.recall("options"))
        environment = record.recall("environment")
    hosts = _with_secrets(read_inventory([str(failed)]).hosts.values(), parameters)
    return start_fleet(hosts, request, options, environment, wishes)


def _work(
    run_dir: Path,
    *,
    record: FleetRecord,
    hosts: Sequence[FleetHost],
    request: RunRequest,
    sources: Sequence[Any],
    options: FleetOptions,
    variables: Mapping[str, str],
    secrets: Secrets,
    wishes: Wishes,
) -> FinishedFleet:
    controller = Controller(
        run_dir=run_dir,
        hosts=hosts,
        request=request,
        sources=sources,
        options=options,
        credentials=wishes.credentials,
        environment=variables,
        secrets=secrets,
        record=record,
        display=wishes.display,
        ask_sudo_password=wishes.ask_sudo_password,
    )
    exit_code = controller.run()
    record.end(int(exit_code), controller.stopped)
    return FinishedFleet(run_dir, exit_code, write_outcome(run_dir, record))


def _with_secrets(hosts: Iterable[FleetHost], parameters: Mapping[str, str]) -> list[FleetHost]:
    """Hosts as they were kept; a parameter of one that was secret, and so was not, is to be given again."""
    complete = []
    for host in hosts:
        lost = [name for name, value in host.parameters.items() if MASK in value]
        if missing := [name for name in lost if canonical(name) not in map(canonical, parameters)]:
            raise UsageError(
                f"host {host.name} has the parameter {missing[0]}, which is secret and was not kept",
                remedy=f'give it again for all: --parameters "{missing[0]}=…"',
            )
        kept = {name: value for name, value in host.parameters.items() if name not in lost}
        complete.append(dataclasses.replace(host, parameters=kept))
    return complete


def _variables(names: Iterable[str]) -> dict[str, str]:
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise UsageError(f"--env {missing[0]}: there is no such variable", remedy=f"export {missing[0]}=…")
    return {name: os.environ[name] for name in names}


def _secrets(
    request: RunRequest, hosts: Sequence[FleetHost], credentials: Credentials, variables: Mapping[str, str]
) -> Secrets:
    passwords = (one for host in hosts for one in (host.password, host.sudo_password) if one)
    parameters = (host.parameters for host in hosts)
    return Secrets(
        [*credentials.values(), *variables.values(), *passwords],
        [os.environ, request.parameters, request.metadata, *parameters],
    )
