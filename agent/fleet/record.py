"""The record of a fleet run beside its hosts' files: enough to resume after the controller has died."""

from __future__ import annotations

import dataclasses
import fcntl
import re
import threading
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from agent.core.errors import VcagentError, host_errors
from agent.fleet.inventory import FleetHost
from agent.fleet.remote.standing import held
from agent.fleet.status import HostStatus
from agent.run.request import keep_sources
from agent.store.documents import FleetDocument
from agent.store.journal import Journal, now
from agent.store.results import JOURNAL, LOCK, ResultsFolder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.fleet.assignment import Assignment

_SECRET_FIELDS = ("password", "sudo_password")


def fleet_folder(results_dir: Path) -> ResultsFolder:
    """Return the folder of all fleet runs, beside the runs of this host."""
    return ResultsFolder(results_dir / "fleet")


def recorded(results_dir: Path, run: str | None) -> Path:
    """Return the folder of a fleet run.

    Raises:
        UsageError: if no run has that name.
    """
    return fleet_folder(results_dir).find(run)


def is_worked_on(run_dir: Path) -> bool:
    """Return True if a controller is working on a fleet run."""
    if held(run_dir / LOCK):
        return True
    # Processes of other users or machines are not visible; only the lock itself shows them.
    with suppress(FileNotFoundError), (run_dir / LOCK).open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


_WHAT = "the fleet run's journal"


def unwritten(run_dir: Path) -> FleetDocument:
    """Return what the journal of a fleet run knows before its first ``fleet.json``; else nothing."""
    if not (run_dir / JOURNAL).is_file():
        return FleetDocument()
    with suppress(VcagentError), Journal(run_dir / JOURNAL) as journal:
        profiles = [source["name"] for source in journal.recall("sources", [])]
        hosts = [{"name": host["name"]} for host in journal.recall("hosts", [])]
        values = {"profiles": profiles, "start": journal.recall("started")}
        return FleetDocument.model_validate({**values, "hosts": hosts})
    return FleetDocument()


class FleetRecord:
    """The journal of a fleet run. Safe to use from several threads.

    Statuses are collected and written together, because each write to the journal waits for the disk. If the
    controller is killed, the latest ones are lost; the next controller gets them from the hosts.

    Args:
        journal: the journal of the run.

    Attributes:
        has_reached: whether this controller reached a host, also if no status of it could be written.
    """

    def __init__(self, journal: Journal) -> None:
        self.has_reached = False
        self._journal = journal
        self._lock = threading.Lock()
        self._collected: dict[str, HostStatus] = {}

    def begin(self, assignment: Assignment) -> None:
        """Store the assignment without its secrets."""
        fleet, secrets = assignment.fleet, assignment.secrets
        folders = host_folders([host.name for host in fleet.hosts])
        with host_errors(_WHAT):
            self._journal.remember(
                kind="fleet",
                hosts=[secrets.mask_value(host_to_json(host)) for host in fleet.hosts],
                request=secrets.mask_value(fleet.request.to_json()),
                sources=keep_sources(assignment.sources, secrets.mask),
                options=fleet.options.to_json(),
                environment=sorted(fleet.environment),
                started=now().isoformat(),
                **{_key(name): HostStatus(name, folder).to_json() for name, folder in folders.items()},
            )

    def hosts(self) -> list[FleetHost]:
        """Return the hosts, in order."""
        return [host_from_json(values) for values in self._journal.recall("hosts", [])]

    def statuses(self) -> dict[str, HostStatus]:
        """Return the status of each host."""
        self.flush()
        names = [str(values["name"]) for values in self._journal.recall("hosts", [])]
        return {name: HostStatus.from_json(self._journal.recall(_key(name))) for name in names}

    def put(self, status: HostStatus) -> None:
        """Store the status of a host; ``flush`` writes it."""
        with self._lock:
            self._collected[status.name] = status
            self.has_reached |= status.was_reached

    def flush(self) -> None:
        """Write the collected statuses.

        Raises:
            HostError: if the journal cannot be written.
        """
        with self._lock:
            collected, self._collected = self._collected, {}
        if collected:
            with host_errors(_WHAT):
                self._journal.remember(
                    seen=now().isoformat(),
                    **{_key(name): status.to_json() for name, status in collected.items()},
                )

    def recall(self, key: str, default: Any = None) -> Any:
        """Return the value that was stored under a key."""
        return self._journal.recall(key, default)

    def begin_again(self) -> None:
        """Record that another controller resumes the run, and how long earlier ones worked on it."""
        with host_errors(_WHAT):
            self._journal.remember(worked_s=self.worked_s(), resumed=now().isoformat())
        self.end(None)

    def worked_s(self) -> float:
        """Return the seconds in which a controller worked on the run, without gaps between controllers."""
        began = self.recall("resumed") or self.recall("started")
        ended = self.recall("ended") or self.recall("seen") or began
        last = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
        return float(self.recall("worked_s", 0.0)) + max(0.0, last.total_seconds())

    def end(self, exit_code: int | None, stopped: str = "") -> None:
        """Record how the run ended; None if it continues."""
        self.flush()
        with host_errors(_WHAT):
            self._journal.remember(
                ended=now().isoformat() if exit_code is not None else None,
                exit_code=exit_code,
                stopped=stopped,
                written=False,
            )

    @property
    def is_written(self) -> bool:
        """True if the files that are derived from the hosts' files were written after the end."""
        return bool(self.recall("written", default=True))

    def set_written(self) -> None:
        """Record that the derived files are written."""
        self._journal.remember(written=True)


def _key(name: str) -> str:
    return f"host:{name}"


def host_folders(names: Sequence[str]) -> dict[str, str]:
    """Return a unique folder name for each host: its own name, if that is a valid file name."""
    taken: set[str] = set()
    folders = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:100].lstrip(".") or "host"
        folder, number = plain, 2
        while folder in taken:
            folder, number = f"{plain}~{number}", number + 1
        taken.add(folder)
        folders[name] = folder
    return folders


def host_to_json(host: FleetHost) -> dict[str, Any]:
    """Return a host as the journal stores it: without its passwords."""
    values = dataclasses.asdict(host)
    return {name: value for name, value in values.items() if name not in _SECRET_FIELDS}


def host_from_json(values: Mapping[str, Any]) -> FleetHost:
    """Create a host from the values of ``host_to_json``."""
    lists = {name: tuple(values[name]) for name in ("identity_files", "groups")}
    return FleetHost(**{**values, **lists})
