"""A fleet run from the command line's wishes to its outcome; a resumed one goes on from its journal."""

from __future__ import annotations

import dataclasses
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.core.errors import ExitCode, UsageError, VcagentError, masking
from agent.core.names import canonical
from agent.core.safe_files import require_trust
from agent.core.secrets import MASK
from agent.fleet.assignment import Assignment, FleetRequest, assigned
from agent.fleet.controller import Controller
from agent.fleet.descriptors import make_room
from agent.fleet.failed import FAILED_FILE
from agent.fleet.inventory import limited, read_inventory
from agent.fleet.options import FleetOptions
from agent.fleet.outcome import write_outcome
from agent.fleet.record import FleetRecord, fleet_folder, recorded
from agent.fleet.status import HostPhase
from agent.fleet.transports import transport
from agent.profile import find, load_sources, set_parameters
from agent.run.request import RunRequest, kept_sources
from agent.store.journal import Journal, now
from agent.store.results import JOURNAL, ResultsFolder, new_run_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from agent.fleet.display import FleetDisplay
    from agent.fleet.inventory import FleetHost
    from agent.fleet.ssh.credentials import Credentials


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


def start_fleet(fleet: FleetRequest, wishes: Wishes) -> FinishedFleet:
    """Run a profile on hosts.

    Args:
        fleet: what is to be done on which hosts.
        wishes: passwords and the display.

    Raises:
        ProfileError: if the profile cannot be used.
        UsageError: if an option cannot be used, or a variable is not set.
        HostError: if host keys are not known, or Slurm does not take the job.
    """
    request = fleet.request
    transport(fleet.options.via).check(fleet.options, fleet.hosts, request)
    sources = [find(reference) for reference in request.profiles]
    profile = load_sources(sources, overrides=request.parameters, metadata=request.metadata)
    set_parameters(profile, request.settings)
    request = dataclasses.replace(request, experiment_id=request.experiment_id or str(uuid.uuid4()))
    assignment = assigned(dataclasses.replace(fleet, request=request), sources, wishes.credentials)
    folder = fleet_folder(request.results_dir)
    if request.run_id:
        folder.check_name(request.run_id)
    require_trust(folder.path, "results folder", "--results-dir")
    folder.prepare()
    with masking(assignment.secrets.mask):
        run_id = request.run_id or new_run_id(profile.name, now())
        before = folder.latest_name()
        run_dir = folder.create(run_id)
        try:
            with ResultsFolder(run_dir).locked(run_id), Journal(run_dir / JOURNAL) as journal:
                record = FleetRecord(journal)
                record.begin(assignment)
                return _work(run_dir, assignment, record, wishes)
        except VcagentError:  # it was refused: nothing was started
            if folder.latest_name() == run_id:
                folder.point_latest(before)
            raise


def resume_fleet(
    results_dir: Path,
    run: str | None,
    parameters: Mapping[str, str],
    wishes: Wishes,
    *,
    accept_new_host_keys: bool = False,
) -> FinishedFleet:
    """Go on with a fleet run whose controller ended, or gave hosts up, before these were done.

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
    require_trust(run_dir, "run folder", "--results-dir, and start the profile anew")
    with ResultsFolder(run_dir).locked(run_dir.name), Journal(run_dir / JOURNAL) as journal:
        record = FleetRecord(journal)
        if record.recall("kind") != "fleet":
            raise UsageError(
                f"{run_dir} is no fleet run", remedy="vcagent resume goes on with a host's own run"
            )
        given_up = [status for status in record.statuses().values() if status.may_go_on]
        if record.recall("exit_code") in (ExitCode.OK, ExitCode.FLEET_PARTIAL) and not given_up:
            raise UsageError(
                f"fleet run {run_dir.name} is complete",
                remedy=f"vcagent fleet retry {run_dir.name} tries its failed hosts again",
            )
        fleet = _recalled(record, record.hosts(), parameters, accept_new_host_keys=accept_new_host_keys)
        transport(fleet.options.via).check(fleet.options, fleet.hosts, fleet.request)
        sources = kept_sources(record.recall("sources"), fleet.request.profiles)
        assignment = assigned(fleet, sources, wishes.credentials)
        record.end(None)
        for status in given_up:
            record.put(dataclasses.replace(status, phase=HostPhase.LOST, reason="", ended=None))
        with masking(assignment.secrets.mask):
            return _work(run_dir, assignment, record, wishes)


def retry_fleet(
    results_dir: Path,
    run: str | None,
    parameters: Mapping[str, str],
    wishes: Wishes,
    *,
    accept_new_host_keys: bool = False,
) -> FinishedFleet:
    """Run again, as a new fleet run, on the hosts that failed, were not reached or not started.

    Args:
        results_dir: the folder of all runs.
        run: the fleet run; None for the latest.
        parameters: secrets that were given with ``--parameters`` and were not kept.
        wishes: passwords and the display.
        accept_new_host_keys: whether unknown host keys are written down and trusted.

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
    hosts = limited(read_inventory([str(failed)]), "")
    with Journal(run_dir / JOURNAL) as journal:
        fleet = _recalled(FleetRecord(journal), hosts, parameters, accept_new_host_keys=accept_new_host_keys)
    return start_fleet(fleet, wishes)


def _work(run_dir: Path, assignment: Assignment, record: FleetRecord, wishes: Wishes) -> FinishedFleet:
    make_room(len(assignment.fleet.hosts), wishes.display.note)
    controller = Controller(run_dir, assignment, record, wishes.display, wishes.ask_sudo_password)
    exit_code = controller.run()
    record.end(int(exit_code), controller.stopped)
    return FinishedFleet(run_dir, exit_code, write_outcome(run_dir, record))


def _recalled(
    record: FleetRecord,
    hosts: Iterable[FleetHost],
    parameters: Mapping[str, str],
    *,
    accept_new_host_keys: bool = False,
) -> FleetRequest:
    """What an earlier run was to do, on these hosts; a parameter that was secret is to be given again.

    Raises:
        UsageError: if one is not.
    """
    options = FleetOptions.from_json(record.recall("options"))
    return FleetRequest(
        _with_secrets(hosts, parameters),
        RunRequest.from_json(record.recall("request"), parameters),
        dataclasses.replace(options, accept_new_host_keys=accept_new_host_keys),
        record.recall("environment"),
    )


def _with_secrets(hosts: Iterable[FleetHost], parameters: Mapping[str, str]) -> list[FleetHost]:
    """Hosts as they were kept, without parameters that were not."""
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
