"""``vcagent fleet clean``: removes the files that fleet runs left on their hosts."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from agent.core.errors import HostError, VcagentError, unexpected
from agent.core.safe_files import require_trust
from agent.fleet.commands import doorstep_command, doorstep_input, privileged
from agent.fleet.inventory import Inventory, limited
from agent.fleet.options import FleetOptions
from agent.fleet.record import FleetRecord, fleet_folder, is_worked_on
from agent.fleet.scheduling import Scheduler
from agent.store.journal import Journal, now
from agent.store.results import JOURNAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from agent.fleet.inventory import FleetHost
    from agent.fleet.scheduling import Task
    from agent.fleet.ssh.connecting import Connector
    from agent.fleet.ssh.credentials import Credentials
    from agent.fleet.ssh.route import Hop
    from agent.fleet.status import HostStatus

_CLEAN_S = 600.0


@dataclass(frozen=True)
class Place:
    """The agent's folder on a host, and the runs in it that are to be removed.

    Args:
        host: the host.
        status: the host's last status in the latest of these runs.
        options: the options of that run.
        runs: the folder names of the runs on the host, each with the fleet run's folder on the controller.
    """

    host: FleetHost
    status: HostStatus
    options: FleetOptions
    runs: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Cleaned:
    """The result for one host: removed runs and bundles, their bytes, and what was kept with the reasons."""

    host: str
    removed: Sequence[str] = ()
    bundles: Sequence[str] = ()
    size_bytes: int = 0
    left: Mapping[str, str] = field(default_factory=dict)
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return values that JSON can represent."""
        return {**vars(self), "removed": list(self.removed), "bundles": list(self.bundles)}


def survey(
    results_dir: Path, runs: Sequence[str], limit: str = "", older_than_s: float | None = None
) -> tuple[list[Place], list[str]]:
    """Find what fleet runs left on their hosts, from the journals alone; connects to no host.

    Args:
        results_dir: the folder of all runs.
        runs: the fleet runs; empty for all.
        limit: a host pattern; empty for all.
        older_than_s: keep runs that began less than this many seconds ago.

    Returns:
        The places, and the runs that are kept, each with the reason.

    Raises:
        UsageError: if a run does not exist, or a part of the limit matches no host.
        HostError: if root may not trust a run's folder.
    """
    folder = fleet_folder(results_dir)
    found: dict[tuple[str, str], Place] = {}
    left: list[str] = []
    hosts: dict[str, FleetHost] = {}
    for run_dir in [folder.find(run) for run in runs] if runs else folder.runs():
        if is_worked_on(run_dir):
            left.append(f"{run_dir.name}: a controller is working on it; stop it first: vcagent fleet stop")
            continue
        require_trust(run_dir, "run folder", "--results-dir")  # its journal names hosts and folders to remove
        with Journal(run_dir / JOURNAL) as journal:
            record = FleetRecord(journal)
            began = datetime.fromisoformat(record.recall("started"))
            if older_than_s is not None and now() - began < timedelta(seconds=older_than_s):
                continue
            options = FleetOptions.from_json(record.recall("options"))
            if options.via != "ssh":
                continue  # nothing is left on the nodes of a queue
            statuses = record.statuses()
            for host in record.hosts():
                status = statuses[host.name]
                if not status.run_dir:
                    continue
                if not status.phase.is_final or status.may_go_on:
                    told = f"{run_dir.name}: {host.name} may still run; stop it first: vcagent fleet stop"
                    left.append(f"{told} {run_dir.name}")
                    continue
                hosts[host.name] = host
                key = f"{host.user}@{host.address}:{host.port}", status.base
                runs_there = found[key].runs if key in found else {}
                name = status.run_dir.rsplit("/", 1)[1]
                found[key] = Place(host, status, options, {**runs_there, name: run_dir})
    groups: defaultdict[str, tuple[str, ...]] = defaultdict(tuple, all=tuple(hosts))
    for host in hosts.values():
        for group in host.groups:
            groups[group] += (host.name,)
    chosen = {host.name for host in limited(Inventory(hosts, groups), limit)} if hosts else set()
    return [place for place in found.values() if place.host.name in chosen], left


def clean(
    places: Sequence[Place],
    credentials: Credentials,
    tell: Callable[[Cleaned], None],
    *,
    older_than_s: float | None = None,
    force: bool = False,
) -> list[Cleaned]:
    """Remove the runs, and bundles that no run on the host needs.

    Args:
        places: the places that ``survey`` found.
        credentials: passwords and passphrases.
        tell: called with the result for each host.
        older_than_s: also remove bundles that were unused for this many seconds, even if runs remain.
        force: also remove runs whose changes to the host have not been undone.

    Raises:
        UsageError: if the SSH configuration cannot be used.
    """
    from agent.fleet.ssh.connecting import Connector
    from agent.fleet.ssh.host_config import HostConfigs
    from agent.fleet.ssh.route import route_to

    done: list[Cleaned] = []
    scheduler = Scheduler(max((place.options.pool for place in places), default=1))
    connectors: dict[float, Connector] = {}
    configs: dict[Path, HostConfigs] = {}
    try:
        for place in places:
            options = place.options
            connector = connectors.setdefault(options.connect_timeout_s, Connector(options.connect_timeout_s))
            path = options.ssh_config.expanduser()
            config = configs.setdefault(path, HostConfigs(path)).of(place.host)
            route = route_to(place.host, config, options.known_hosts)
            order = {
                "do": "clean",
                "base": place.status.base,
                "runs": list(place.runs),
                "force": force,
                "bundles_older_than_s": older_than_s,
            }

            def ended(result: Cleaned | None, error: BaseException | None, place: Place = place) -> None:
                cleaned = result or Cleaned(place.host.name, error=str(_known(error)))
                _forget(place, cleaned)
                done.append(cleaned)
                tell(cleaned)

            task = _cleaned(connector, route, credentials.of(place.host), place, order)
            scheduler.start(task, ended)
        scheduler.run(lambda: True)
    finally:
        scheduler.close()
        for connector in connectors.values():
            connector.close()
    return done


def _cleaned(
    connector: Connector,
    route: tuple[Hop, ...],
    credentials: Credentials,
    place: Place,
    order: Mapping[str, Any],
) -> Task[Cleaned]:
    session = yield from connector.connect(route, credentials)
    try:
        status = place.status
        command, data = privileged(doorstep_command(status.python), status.sudo, credentials.sudo_password)
        started = session.start(command, _CLEAN_S)
        started.write(data + doorstep_input(order))
        started.end_input()
        line = yield from started.line(_CLEAN_S)
        if not line:
            said = "it did not answer in time" if line is None else started.ended().stderr
            raise HostError(f"cleaning failed on the host: {said}")
    finally:
        session.close()
    answer = json.loads(line)
    return Cleaned(place.host.name, answer["removed"], answer["bundles"], answer["bytes"], answer["left"])


def _forget(place: Place, cleaned: Cleaned) -> None:
    """Remove what was deleted on the host from the fleet runs' journals."""
    if cleaned.error:
        return
    for name, run_dir in place.runs.items():
        if name in cleaned.left:
            continue
        with Journal(run_dir / JOURNAL) as journal:
            record = FleetRecord(journal)
            for status in record.statuses().values():
                if status.run_dir == f"{place.status.base}/runs/{name}":
                    record.put(replace(status, run_dir=""))
            record.flush()


def _known(error: BaseException | None) -> VcagentError:
    if isinstance(error, VcagentError):
        return error
    return unexpected(error, "fleet clean") if isinstance(error, Exception) else HostError(repr(error))
