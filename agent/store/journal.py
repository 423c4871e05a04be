"""Records plans, steps and measurements: one SQLite file per run, written before and after every step.

A step's end, its cases and its records are one transaction, so that a kill at any moment leaves either
all of them or none. Sinks read from the journal, which stores their positions.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import sqlite3
import threading
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.core.errors import HostError, UsageError, is_disk_full
from agent.core.records import MetadataValue, MetricRecord, Relativity
from agent.core.safe_files import open_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Self

_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS steps (
    position INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE,
    component TEXT NOT NULL, type TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
    reason TEXT NOT NULL, command TEXT NOT NULL, log TEXT NOT NULL,
    status TEXT NOT NULL, attempts INTEGER NOT NULL, started TEXT, ended TEXT,
    message TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS steps_of_component ON steps (component);
CREATE TABLE IF NOT EXISTS cases (
    id INTEGER PRIMARY KEY AUTOINCREMENT, step TEXT NOT NULL REFERENCES steps(key), value TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS undos (
    id INTEGER PRIMARY KEY AUTOINCREMENT, step TEXT NOT NULL REFERENCES steps(key), value TEXT NOT NULL,
    undone TEXT
);
CREATE TABLE IF NOT EXISTS records (id INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sinks (
    name TEXT PRIMARY KEY, record_id INTEGER NOT NULL, position INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS contexts (id TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS deliveries (
    sink TEXT PRIMARY KEY, failures INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '',
    failed TEXT, delivered TEXT
);
CREATE TABLE IF NOT EXISTS refused (
    sink TEXT NOT NULL, record_id INTEGER NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (sink, record_id)
);
CREATE TABLE IF NOT EXISTS pieces (sink TEXT NOT NULL, piece TEXT NOT NULL, PRIMARY KEY (sink, piece));
CREATE TABLE IF NOT EXISTS refused_pieces (
    sink TEXT NOT NULL, piece TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (sink, piece)
);
"""


_NETWORK = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "9p",
            "afs",
            "ceph",
            "glusterfs",
            "lustre",
            "gpfs",
            "beegfs",
        ),
        *("ocfs2", "gfs2", "orangefs", "pvfs2", "panfs", "wekafs", "virtiofs", "sshfs", "s3fs", "davfs"),
    }
)
"""Types of file systems (proc(5), mountinfo) that other machines may have mounted as well."""

_CONTEXT = ("experiment_id", "run_id", "client_id", "profile", "tool_name", "tool_version", "scenario")
_SPAN = ("scenario_start", "scenario_end")
_KIND = ("unit", "relativity", "verbosity", "description", "tags")

_CONTEXT_ID_DIGITS = 16
_CONTEXTS_AT_HAND = 256
_RECENT = 1000
"""Records kept in memory for the sinks, which read them within seconds."""


def now() -> datetime:
    """Return the current time, aware, in UTC."""
    return datetime.now(timezone.utc)


class StepStatus(str, Enum):
    """State of a step."""

    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CUT = "cut"
    """Ended by the run's timeout, as intended."""


@dataclass(frozen=True)
class StepRow:
    """A step as stored in the journal; times are ISO 8601 in UTC."""

    key: str
    component: str
    type: str
    kind: str
    name: str
    reason: str
    command: str
    log: str
    status: StepStatus = StepStatus.STARTED
    attempts: int = 1
    started: str | None = None
    ended: str | None = None
    message: str = ""


@dataclass(frozen=True)
class Delivery:
    """How far a sink has come; times are ISO 8601 in UTC.

    Args:
        name: the sink.
        record_id: the last record that it has.
        failures: attempts that failed since the last one that succeeded.
        error: why the last attempt failed; empty if it did not.
        failed: when that was.
        delivered: when it last took something.
        refused: records that it will not take as they are.
    """

    name: str
    record_id: int
    failures: int = 0
    error: str = ""
    failed: str | None = None
    delivered: str | None = None
    refused: int = 0


class Journal:
    """The journal of one run; safe to use from several threads.

    Args:
        path: the SQLite file; created if missing.

    Raises:
        UsageError: if the file is not a journal.
        HostError: if the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._recent: deque[MetricRecord] = deque(maxlen=_RECENT)
        self._contexts: dict[str, dict[str, Any]] = {}
        _require_ordinary(path)
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=30)
        try:
            self._database.row_factory = sqlite3.Row
            # A write-ahead log needs memory that all readers share, which network file systems do not have.
            mode = "DELETE" if is_on_network(path) else "WAL"
            self._database.execute(f"PRAGMA journal_mode={mode}")
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.executescript(_SCHEMA)
            status = path.stat()
            self._identity = (status.st_dev, status.st_ino)
        except sqlite3.DatabaseError as error:
            self._database.close()
            if is_disk_full(error):
                raise HostError(
                    f"the journal {path} cannot be written: {error}",
                    remedy="free some space, then resume or start the run (the disk is full, or broken)",
                ) from error
            raise UsageError(
                f"{path} cannot be read as a journal of vcagent: {error}",
                remedy="see whether the disk is full; the raw results in its folder are untouched",
            ) from error

    def __enter__(self) -> Self:
        """Return the journal, which is open until the context ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def require_in_place(self) -> None:
        """Check that the file being written is still the one at its path.

        Raises:
            OSError: if it was removed or replaced: later entries are lost.
        """
        status = self.path.stat()
        if (status.st_dev, status.st_ino) != self._identity:
            raise FileNotFoundError(errno.ENOENT, "it was removed while the run was active", str(self.path))

    def close(self) -> None:
        """Fold the write-ahead log into the file and close it."""
        with self._lock:
            self._database.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            finally:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")

    def _rows(self, query: str, arguments: Sequence[Any] = ()) -> list[sqlite3.Row]:
        with self._lock:
            return self._database.execute(query, arguments).fetchall()

    def remember(self, **values: Any) -> None:
        """Store facts of the run itself, by name; JSON values."""
        with self._transaction() as database:
            _remember(database, values)

    def recall(self, key: str, default: Any = None) -> Any:
        """Return the value stored under a name."""
        rows = self._rows("SELECT value FROM run WHERE key = ?", (key,))
        return json.loads(rows[0]["value"]) if rows else default

    def start_step(self, row: StepRow, undo: Mapping[str, Any] | None = None, title: str = "") -> StepRow:
        """Note that a step starts; a step that was started before counts one attempt more.

        Args:
            row: the step.
            undo: what is needed to take it back; that of an earlier attempt is kept as well.
            title: what people call the step; kept as ``at``.
        """
        started = now().isoformat()
        with self._transaction() as database:
            database.execute(
                """INSERT INTO steps
                       (key, component, type, kind, name, reason, command, log, status, attempts, started)
                   VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'started', 1, ?)
                   ON CONFLICT (key) DO UPDATE SET status = 'started', attempts = attempts + 1,
                       reason = excluded.reason, command = excluded.command,
                       started = excluded.started, ended = NULL, message = ''""",
                (
                    row.key,
                    row.component,
                    row.type,
                    row.kind,
                    row.name,
                    row.reason,
                    row.command,
                    row.log,
                    started,
                ),
            )
            if title:
                _remember(database, {"at": title})
            if undo is not None:
                database.execute("INSERT INTO undos (step, value) VALUES (?, ?)", (row.key, json.dumps(undo)))
        return replace(row, started=started)

    def end_step(
        self,
        key: str,
        status: StepStatus,
        *,
        message: str = "",
        cases: Iterable[Mapping[str, Any]] = (),
        records: Iterable[MetricRecord] = (),
        remember: Mapping[str, Any] | None = None,
    ) -> None:
        """Record a step's end with its cases, its records and facts of the run in one transaction."""
        with self._lock:
            with self._transaction() as database:
                _remember(database, remember or {})
                database.execute(
                    "UPDATE steps SET status = ?, ended = ?, message = ? WHERE key = ?",
                    (status.value, now().isoformat(), message, key),
                )
                database.executemany(
                    "INSERT INTO cases (step, value) VALUES (?, ?)",
                    [(key, json.dumps(dict(case))) for case in cases],
                )
                added = _insert(database, records)
            self._recent.extend(added)

    def add_records(self, records: Iterable[MetricRecord]) -> None:
        """Store records without a step, such as a monitor's."""
        with self._lock:
            with self._transaction() as database:
                added = _insert(database, records)
            self._recent.extend(added)

    def steps(self) -> list[StepRow]:
        """Return all steps, in the order of their first start."""
        return [_step(row) for row in self._rows("SELECT * FROM steps ORDER BY position")]

    def step(self, key: str) -> StepRow | None:
        """Return a step by its key, or None if it never started."""
        rows = self._rows("SELECT * FROM steps WHERE key = ?", (key,))
        return _step(rows[0]) if rows else None

    def steps_of(self, component: str) -> list[StepRow]:
        """Return the steps of one component that ever started."""
        return [_step(row) for row in self._rows("SELECT * FROM steps WHERE component = ?", (component,))]

    def mark_cut(self) -> None:
        """Mark interrupted steps as ended by the run's timeout, which is not a failure."""
        with self._transaction() as database:
            database.execute("UPDATE steps SET status = 'cut' WHERE status = 'interrupted'")

    def undos(self) -> list[tuple[int, str, dict[str, Any]]]:
        """Return the changes not undone yet (number, step's key, values), in the order of their steps."""
        rows = self._rows("SELECT id, step, value FROM undos WHERE undone IS NULL ORDER BY id")
        return [(row["id"], row["step"], json.loads(row["value"])) for row in rows]

    def undone_steps(self) -> set[str]:
        """Return the keys of the undone steps."""
        return {row["step"] for row in self._rows("SELECT step FROM undos WHERE undone IS NOT NULL")}

    def undone(self, number: int) -> None:
        """Record that a step was undone."""
        with self._transaction() as database:
            database.execute("UPDATE undos SET undone = ? WHERE id = ?", (now().isoformat(), number))

    def cases(self) -> list[dict[str, Any]]:
        """Return the cases of all finished steps, in the order of their ends."""
        return [
            {**json.loads(row["value"]), "step": row["step"]}
            for row in self._rows("SELECT step, value FROM cases ORDER BY id")
        ]

    def add_context(self, value: Mapping[str, Any]) -> str:
        """Keep what records have in common, once; return its id, which follows from the content."""
        text = json.dumps({**value, "context_id": ""}, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:_CONTEXT_ID_DIGITS]
        with self._transaction() as database:
            database.execute(
                "INSERT OR IGNORE INTO contexts VALUES (?, ?)",
                (name, json.dumps({**value, "context_id": name})),
            )
        return name

    def context(self, name: str) -> dict[str, Any]:
        """Return a context by its id; empty if there is none. Nobody changes it."""
        known = self._contexts.get(name)
        if known is None:
            rows = self._rows("SELECT value FROM contexts WHERE id = ?", (name,))
            known = json.loads(rows[0]["value"]) if rows else {}
            if len(self._contexts) >= _CONTEXTS_AT_HAND:
                self._contexts.clear()
            self._contexts[name] = known
        return known

    def contexts(self, after: int = 0) -> list[tuple[int, str]]:
        """Return contexts in the order in which they came: number, and text as JSON.

        Args:
            after: the number that they follow.
        """
        rows = self._rows("SELECT rowid, value FROM contexts WHERE rowid > ? ORDER BY rowid", (after,))
        return [(row["rowid"], row["value"]) for row in rows]

    def last_record_id(self) -> int:
        """Return the id of the newest record; 0 if there is none."""
        return int(self._rows("SELECT COALESCE(MAX(id), 0) AS id FROM records")[0]["id"])

    def records_after(self, record_id: int, limit: int = 5000) -> list[MetricRecord]:
        """Return the records that follow a record, oldest first."""
        with self._lock:
            recent = self._recent
            if recent and recent[0].record_id <= record_id + 1:
                return [record for record in recent if record.record_id > record_id][:limit]
        rows = self._rows(
            "SELECT id, value FROM records WHERE id > ? ORDER BY id LIMIT ?", (record_id, limit)
        )
        return [record_from_json(row["id"], row["value"]) for row in rows]

    def sink_position(self, name: str) -> tuple[int, int]:
        """Return the last record that a sink has, and its own position (a file's size in bytes)."""
        rows = self._rows("SELECT record_id, position FROM sinks WHERE name = ?", (name,))
        return (rows[0]["record_id"], rows[0]["position"]) if rows else (0, 0)

    def move_sink(self, name: str, record_id: int, position: int) -> None:
        """Record a sink's position."""
        with self._transaction() as database:
            database.execute(
                """INSERT INTO sinks VALUES (?, ?, ?) ON CONFLICT (name)
                   DO UPDATE SET record_id = excluded.record_id, position = excluded.position""",
                (name, record_id, position),
            )

    def deliveries(self) -> list[Delivery]:
        """Return how far each sink has come, by name."""
        rows = self._rows(
            """SELECT sinks.name, record_id, COALESCE(failures, 0) AS failures, COALESCE(error, '') AS error,
                      failed, delivered,
                      (SELECT COUNT(*) FROM refused WHERE refused.sink = sinks.name) AS refused
               FROM sinks LEFT JOIN deliveries ON sink = sinks.name ORDER BY sinks.name"""
        )
        return [Delivery(**dict(row)) for row in rows]

    def note_delivery(self, name: str, error: str = "") -> None:
        """Note that a sink took what it was given, or why it did not."""
        moment = now().isoformat()
        with self._transaction() as database:
            database.execute("INSERT OR IGNORE INTO sinks VALUES (?, 0, 0)", (name,))
            database.execute("INSERT OR IGNORE INTO deliveries (sink) VALUES (?)", (name,))
            database.execute(
                "UPDATE deliveries SET failures = failures + 1, error = ?, failed = ? WHERE sink = ?"
                if error
                else "UPDATE deliveries SET failures = 0, error = ?, delivered = ? WHERE sink = ?",
                (error, moment, name),
            )

    def refuse(self, name: str, record_ids: Iterable[int], reason: str) -> None:
        """Note records that a sink will never take as they are; the journal keeps them."""
        with self._transaction() as database:
            database.executemany(
                "INSERT OR REPLACE INTO refused VALUES (?, ?, ?)",
                [(name, record_id, reason) for record_id in record_ids],
            )

    def refused(self, name: str) -> list[tuple[MetricRecord, str]]:
        """Return the records that a sink refused, each with the reason."""
        rows = self._rows(
            """SELECT id, value, reason FROM records JOIN refused ON record_id = id
               WHERE sink = ? ORDER BY id""",
            (name,),
        )
        return [(record_from_json(row["id"], row["value"]), row["reason"]) for row in rows]

    def accept(self, name: str, record_ids: Iterable[int]) -> None:
        """Note that a sink has taken records that it refused before."""
        with self._transaction() as database:
            database.executemany(
                "DELETE FROM refused WHERE sink = ? AND record_id = ?",
                [(name, record_id) for record_id in record_ids],
            )

    def forget_sink(self, name: str) -> None:
        """Take a sink for one that has nothing yet."""
        with self._transaction() as database:
            database.execute("DELETE FROM sinks WHERE name = ?", (name,))
            for table in ("deliveries", "refused", "pieces", "refused_pieces"):
                database.execute(f"DELETE FROM {table} WHERE sink = ?", (name,))  # noqa: S608 - names of ours

    def has_piece(self, name: str, piece: str) -> bool:
        """Return True if a sink has a piece of what the run leaves, such as a file."""
        return bool(self._rows("SELECT 1 FROM pieces WHERE sink = ? AND piece = ?", (name, piece)))

    def add_piece(self, name: str, piece: str) -> None:
        """Note that a sink has a piece."""
        with self._transaction() as database:
            database.execute("INSERT OR IGNORE INTO pieces VALUES (?, ?)", (name, piece))
            database.execute("DELETE FROM refused_pieces WHERE sink = ? AND piece = ?", (name, piece))

    def refuse_piece(self, name: str, piece: str, reason: str) -> None:
        """Note a piece that a sink will never take as it is; the run's folder keeps it."""
        with self._transaction() as database:
            database.execute("INSERT OR REPLACE INTO refused_pieces VALUES (?, ?, ?)", (name, piece, reason))

    def refused_pieces(self, name: str) -> dict[str, str]:
        """Return the pieces that a sink refused, each with the reason."""
        rows = self._rows("SELECT piece, reason FROM refused_pieces WHERE sink = ? ORDER BY rowid", (name,))
        return {row["piece"]: row["reason"] for row in rows}


def record_to_json(record: MetricRecord) -> str:
    """Return a record as one line of JSON without its id, which the journal assigns.

    A monitor's records have most members in common: they are written once.
    """
    context = _context(
        record.experiment_id, record.run_id, record.client_id, record.profile, record.tool_name,
        record.tool_version, record.scenario, _written(record.scenario_start), _written(record.scenario_end),
    )  # fmt: skip
    kind = _kind(
        record.unit, record.relativity.value, record.verbosity, record.description, record.tags,
        tuple(record.metadata), *record.metadata.values(),
    )  # fmt: skip
    return (
        f'{{"timestamp": "{_written(record.timestamp)}", {context}, '
        f'"metric": {json_text(record.metric)}, "value": {record.value!r}, {kind}}}'
    )


def json_text(value: MetadataValue) -> str:
    """Return the result of ``json.dumps``, but faster."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    return str(value) if type(value) is int else json.dumps(value)


@lru_cache(maxsize=64)
def _context(*values: str) -> str:
    """Return members of a JSON object, without its braces."""
    return json.dumps(dict(zip((*_CONTEXT, *_SPAN), values, strict=True)))[1:-1]


@lru_cache(maxsize=1024, typed=True)  # 1, 1.0 and True are written differently
def _kind(  # noqa: PLR0917 - what makes one kind of record
    unit: str, relativity: str, verbosity: int, description: str, tags: tuple[str, ...],
    names: tuple[str, ...], *values: MetadataValue,
) -> str:  # fmt: skip
    """Return members of a JSON object, without its braces."""
    members = dict(zip(_KIND, (unit, relativity, verbosity, description, tags), strict=True))
    return json.dumps({**members, "metadata": dict(zip(names, values, strict=True))})[1:-1]


def record_from_json(record_id: int, text: str) -> MetricRecord:
    """Return the record of a line; the inverse of ``record_to_json``."""
    values = json.loads(text)
    for key in ("timestamp", *_SPAN):
        values[key] = _read(values[key])
    values["relativity"] = Relativity(values["relativity"])
    values["tags"] = tuple(values["tags"])
    return MetricRecord(record_id=record_id, stored=text, **values)


_written = lru_cache(maxsize=64)(datetime.isoformat)
_read = lru_cache(maxsize=64)(datetime.fromisoformat)
# A monitor's records have few different times.


def is_on_network(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Return whether a file is, or would be, on a network file system.

    Args:
        path: the file.
        mounts: the file systems, as proc(5) describes them.
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        real = os.path.realpath(path)
    except OSError:
        return False
    nearest, kind = "", ""
    for line in lines:
        place, _, described = line.partition(" - ")
        fields = place.split()
        if len(fields) < 5 or not described:  # noqa: PLR2004 - the fifth is the mount point
            continue
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4]).rstrip("/")
        if len(point) >= len(nearest) and (real == point or real.startswith(f"{point}/")):
            nearest, kind = point, described.split()[0]
    return kind.removeprefix("fuse.") in _NETWORK


def _require_ordinary(path: Path) -> None:
    """Check that a database and SQLite's other files are ordinary files of this account.

    Raises:
        OSError: if one of them is something else.
    """
    os.close(open_file(path, os.O_RDWR | os.O_CREAT))
    for suffix in ("-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            os.close(open_file(path.with_name(path.name + suffix), os.O_RDWR))


def _remember(database: sqlite3.Connection, values: Mapping[str, Any]) -> None:
    database.executemany(
        "INSERT INTO run VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [(key, json.dumps(value)) for key, value in values.items()],
    )


def _insert(database: sqlite3.Connection, records: Iterable[MetricRecord]) -> list[MetricRecord]:
    """Insert records; return them with their ids, as ``records_after`` would read them."""
    added = list(records)
    for record in added:
        record.stored = record_to_json(record)
    database.executemany("INSERT INTO records (value) VALUES (?)", [(record.stored,) for record in added])
    (last,) = database.execute("SELECT last_insert_rowid()").fetchone()
    for record_id, record in enumerate(added, last - len(added) + 1):
        record.record_id = record_id
    return added


def _step(row: sqlite3.Row) -> StepRow:
    values = dict(row)
    values.pop("position")
    return StepRow(**{**values, "status": StepStatus(values["status"])})
