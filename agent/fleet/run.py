"""Starts, resumes, stops and retries fleet runs."""

from __future__ import annotations

import dataclasses
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.core.counts import count_of
from agent.core.errors import ExitCode, HostError, UsageError, VcagentError, host_errors, masking
from agent.core.names import canonical
from agent.core.safe_files import require_trust
from agent.core.secrets import MASK
from agent.fleet.assignment import Assignment, FleetRequest, assigned
from agent.fleet.controller import Controller
from agent.fleet.descriptors import make_room
from agent.fleet.failed import FAILED_FILE
from agent.fleet.host_run import STOPPED
from agent.fleet.inventory import Inventory, limited, read_inventory
from agent.fleet.options import FleetOptions
from agent.fleet.outcome import write_outcome
from agent.fleet.record import FleetRecord, fleet_folder, is_worked_on, recorded
from agent.fleet.status import HostPhase
from agent.fleet.stop_request import ask_to_stop, forget_stop
from agent.fleet.transports import transport
from agent.profile import find, load_sources, set_parameters
from agent.run.request import RunRequest, kept_sources
from agent.store.journal import Journal, now
from agent.store.results import JOURNAL, ResultsFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from agent.fleet.display import FleetDisplay
    from agent.fleet.inventory import FleetHost
    from agent.fleet.ssh.credentials import Credentials


@dataclass(frozen=True)
class FinishedFleet:
    """The result of a fleet run: its folder, its exit code, and the content of ``fleet.json``."""

    run_dir: Path
    exit_code: ExitCode
    description: Mapping[str, Any]


@dataclass(frozen=True)
class Wishes:
    """The inputs of every command that works on a fleet.

    Args:
        credentials: passwords and passphrases.
        display: shows the progress.
        ask_sudo_password: asks for a sudo password that turned out to be needed; None if nobody can be asked.
    """

    credentials: Credentials
    display: FleetDisplay
    ask_sudo_password: Callable[[], str] | None = None


def start_fleet(fleet: FleetRequest, wishes: Wishes) -> FinishedFleet:
    """Run a profile on hosts.

    Args:
        fleet: the request: profile, hosts and options.
        wishes: passwords and the display.

    Raises:
        ProfileError: if the profile cannot be used.
        UsageError: if an option cannot be used, or a variable is not set.
        HostError: if host keys are not known, or Slurm rejects the job.
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
        run_id = request.run_id or folder.new_run_id(profile.name, now())
        before = folder.latest_name()
        record: FleetRecord | None = None
        try:
            run_dir = folder.create(run_id)
            with ResultsFolder(run_dir).locked(run_id), Journal(run_dir / JOURNAL) as journal:
                record = FleetRecord(journal)
                record.begin(assignment)
                return _work(run_dir, assignment, record, wishes)
        except (VcagentError, OSError):
            # The run was refused. On a full disk the pointer may stay.
            with suppress(OSError):
                if folder.latest_name() == run_id and not (record and record.has_reached):
                    folder.point_latest(before)
            raise


def has_begun(run_dir: Path) -> bool:
    """Return True if the run reached any host, or its journal cannot be read."""
    with suppress(HostError), Journal(run_dir / JOURNAL) as journal:
        return any(status.was_reached for status in FleetRecord(journal).statuses().values())
    return True


def resume_fleet(
    results_dir: Path,
    run: str | None,
    parameters: Mapping[str, str],
    wishes: Wishes,
    *,
    accept_new_host_keys: bool = False,
) -> FinishedFleet:
    """Resume a fleet run whose controller ended or gave up hosts before they had finished.

    Args:
        results_dir: the folder of all runs.
        run: the fleet run; None for the latest.
        parameters: secret parameters that were given with ``--parameters`` and were not stored.
        wishes: passwords and the display.
        accept_new_host_keys: whether unknown host keys are trusted and saved.

    Raises:
        UsageError: if the run does not exist, is complete, or a secret must be given again.
    """
    run_dir = recorded(results_dir, run)
    require_trust(run_dir, "run folder", "--results-dir, and start the profile again")
    forget_stop(run_dir)
    with ResultsFolder(run_dir).locked(run_dir.name), Journal(run_dir / JOURNAL) as journal:
        record = FleetRecord(journal)
        if record.recall("kind") != "fleet":
            raise UsageError(
                f"{run_dir} is not a fleet run", remedy="to resume a run of this host: vcagent resume"
            )
        given_up = [status for status in record.statuses().values() if status.may_go_on]
        exit_code = record.recall("exit_code")
        if exit_code in (ExitCode.OK, ExitCode.FLEET_PARTIAL) and not given_up:
            if not record.is_written:  # the disk was full at the end
                return FinishedFleet(run_dir, ExitCode(exit_code), _outcome(run_dir, record))
            raise UsageError(
                f"fleet run {run_dir.name} is complete",
                remedy=f"to try its failed hosts again: vcagent fleet retry {run_dir.name}",
            )
        fleet = _recalled(record, record.hosts(), parameters, accept_new_host_keys=accept_new_host_keys)
        transport(fleet.options.via).check(fleet.options, fleet.hosts, fleet.request)
        sources = kept_sources(record.recall("sources"), fleet.request.profiles)
        assignment = assigned(fleet, sources, wishes.credentials)
        record.begin_again()
        for status in given_up:
            record.put(dataclasses.replace(status, phase=HostPhase.LOST, reason="", ended=None))
        with masking(assignment.secrets.mask):
            return _work(run_dir, assignment, record, wishes)


@dataclass(frozen=True)
class StoppedFleet:
    """The result of a stop request.

    Args:
        run_dir: the fleet run's folder.
        hosts: the hosts whose runs are to end, or have ended.
        finished: the result of the fleet run; None if a running controller ends the runs.
    """

    run_dir: Path
    hosts: Sequence[str]
    finished: FinishedFleet | None


def stop_fleet(results_dir: Path, run: str | None, limit: str, wishes: Wishes) -> StoppedFleet:
    """End the runs on hosts and start no others: through the running controller, or directly without one.

    The results so far are copied to the controller.

    Args:
        results_dir: the folder of all runs.
        run: the fleet run; None for the latest.
        limit: a host pattern; empty for all.
        wishes: passwords and the display.

    Raises:
        UsageError: if the run does not exist, or there is nothing to stop.
        HostError: if the running controller does not answer.
    """
    run_dir = recorded(results_dir, run)
    with Journal(run_dir / JOURNAL) as journal:
        names = _to_stop(FleetRecord(journal), limit, run_dir.name)
    if is_worked_on(run_dir) and ask_to_stop(run_dir, names):
        return StoppedFleet(run_dir, names, None)
    require_trust(run_dir, "run folder", "--results-dir, and end the runs on the hosts")
    with ResultsFolder(run_dir).locked(run_dir.name), Journal(run_dir / JOURNAL) as journal:
        record = FleetRecord(journal)
        names = _to_stop(record, limit, run_dir.name)
        statuses = record.statuses()
        begun = [name for name in names if statuses[name].starts or statuses[name].bundle]
        for name in names:
            if name in begun:
                record.put(dataclasses.replace(statuses[name], phase=HostPhase.LOST, reason="", ended=None))
            else:
                ended = now().isoformat()
                record.put(
                    dataclasses.replace(statuses[name], phase=HostPhase.SKIPPED, reason=STOPPED, ended=ended)
                )
        exit_code = _end_runs(run_dir, record, begun, wishes)
        if all(status.phase.is_final for status in record.statuses().values()):
            record.end(int(exit_code))
        finished = FinishedFleet(run_dir, exit_code, _outcome(run_dir, record))
    return StoppedFleet(run_dir, names, finished)


def _to_stop(record: FleetRecord, limit: str, run: str) -> list[str]:
    """Return the selected hosts that have not ended.

    Raises:
        UsageError: if there are none.
    """
    hosts = {host.name: host for host in record.hosts()}
    groups: dict[str, tuple[str, ...]] = {"all": tuple(hosts)}
    for host in hosts.values():
        for group in host.groups:
            groups[group] = (*groups.get(group, ()), host.name)
    statuses = record.statuses()
    chosen = [host.name for host in limited(Inventory(hosts, groups), limit)]
    left = [name for name in chosen if not statuses[name].phase.is_final or statuses[name].may_go_on]
    if not left:
        raise UsageError(
            f"nothing to stop: {count_of(len(chosen), 'host')} of {run} already ended",
            remedy=f"to see them: vcagent fleet status {run}",
        )
    return left


def _end_runs(run_dir: Path, record: FleetRecord, names: Sequence[str], wishes: Wishes) -> ExitCode:
    """End runs that an earlier controller started."""
    if not names:
        return ExitCode.FLEET_PARTIAL
    hosts = [host for host in record.hosts() if host.name in names]
    # The request is no longer needed, so its secrets do not have to be given again.
    request = RunRequest.from_json({**record.recall("request"), "parameters": {}}, {})
    fleet = FleetRequest(hosts, request, FleetOptions.from_json(record.recall("options")))
    transport(fleet.options.via).check(fleet.options, hosts, request)
    sources = kept_sources(record.recall("sources"), request.profiles)
    assignment = assigned(fleet, sources, wishes.credentials)
    make_room(len(hosts), wishes.display.note)
    with masking(assignment.secrets.mask):
        controller = Controller(
            run_dir, assignment, record, wishes.display, wishes.ask_sudo_password, stopping=True
        )
        return controller.run()


def retry_fleet(
    results_dir: Path,
    run: str | None,
    parameters: Mapping[str, str],
    wishes: Wishes,
    *,
    accept_new_host_keys: bool = False,
) -> FinishedFleet:
    """Start a new fleet run on the hosts that failed, were unreachable, or were not started.

    These are all hosts of a run that was refused before it started anything.

    Args:
        results_dir: the folder of all runs.
        run: the fleet run; None for the latest.
        parameters: secret parameters that were given with ``--parameters`` and were not stored.
        wishes: passwords and the display.
        accept_new_host_keys: whether unknown host keys are trusted and saved.

    Raises:
        UsageError: if the run does not exist, or has no host to try again.
        HostError: if root may not trust the run's folder.
    """
    run_dir = recorded(results_dir, run)
    require_trust(run_dir, "run folder", "--results-dir, and start the profile again")
    failed = run_dir / FAILED_FILE
    was_refused = not failed.is_file() and not has_begun(run_dir)
    if not failed.is_file() and not was_refused:
        raise UsageError(
            f"fleet run {run_dir.name} has no failed hosts",
            remedy=f"vcagent fleet status {run_dir.name} shows its hosts",
        )
    with Journal(run_dir / JOURNAL) as journal:
        record = FleetRecord(journal)
        hosts = record.hosts() if was_refused else limited(read_inventory([str(failed)]), "")
        fleet = _recalled(record, hosts, parameters, accept_new_host_keys=accept_new_host_keys)
    return start_fleet(fleet, wishes)


def _work(run_dir: Path, assignment: Assignment, record: FleetRecord, wishes: Wishes) -> FinishedFleet:
    make_room(len(assignment.fleet.hosts), wishes.display.note)
    controller = Controller(run_dir, assignment, record, wishes.display, wishes.ask_sudo_password)
    exit_code = controller.run()
    record.end(int(exit_code), controller.stopped)
    return FinishedFleet(run_dir, exit_code, _outcome(run_dir, record))


def _outcome(run_dir: Path, record: FleetRecord) -> dict[str, Any]:
    with host_errors(f"the folder of the fleet run, {run_dir},"):
        description = write_outcome(run_dir, record)
        record.set_written()
    return description


def _recalled(
    record: FleetRecord,
    hosts: Iterable[FleetHost],
    parameters: Mapping[str, str],
    *,
    accept_new_host_keys: bool = False,
) -> FleetRequest:
    """Return the request of an earlier run for these hosts; secret parameters must be given again.

    Raises:
        UsageError: if a secret is missing.
    """
    options = FleetOptions.from_json(record.recall("options"))
    return FleetRequest(
        _with_secrets(hosts, parameters),
        RunRequest.from_json(record.recall("request"), parameters),
        dataclasses.replace(options, accept_new_host_keys=accept_new_host_keys),
        record.recall("environment"),
    )


def _with_secrets(hosts: Iterable[FleetHost], parameters: Mapping[str, str]) -> list[FleetHost]:
    """Return the hosts with the secret parameters that were not stored."""
    complete = []
    for host in hosts:
        lost = [name for name, value in host.parameters.items() if MASK in value]
        if missing := [name for name in lost if canonical(name) not in map(canonical, parameters)]:
            raise UsageError(
                f"host {host.name} has the parameter {missing[0]}, which is secret and was not stored",
                remedy=f'give it again, for all hosts: --parameters "{missing[0]}=…"',
            )
        kept = {name: value for name, value in host.parameters.items() if name not in lost}
        complete.append(dataclasses.replace(host, parameters=kept))
    return complete
