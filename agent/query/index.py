"""The index: the records of runs in one DuckDB file, brought up to date before each question.

JSON lines of 10 million records are some 6 GB, which no question could read in two seconds. The index is
made from a run's files once, and again when they change. It holds nothing else: it can be deleted.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.core.errors import HostError, UsageError, host_errors
from agent.core.safe_files import make_folder
from agent.query.tables import FORMAT, TABLES, create_sql, insert_sql, view_sql
from agent.store.results import CONTEXTS_FILE, METRICS_FILE, RUN_FILE, open_own

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

_FILES = (RUN_FILE, METRICS_FILE, CONTEXTS_FILE)
_BATCH_BYTES = 256 << 20
_BATCH_RUNS = 1000
_SLOW_BYTES = 64 << 20
"""From here on, reading runs takes seconds."""
_LEAST_DUCKDB = 2
_MEMORY = "512MB"
"""DuckDB's part of the memory."""
_MOST_THREADS = 8
"""Each reads JSON into 32 MB; a hundred of them would not leave any."""
_SPILL = "spill-"


class _Run(NamedTuple):
    """A run's files as they are now.

    Args:
        state: their sizes and times; another one means that they changed.
        sizes: the sizes in bytes of those that are not empty, by name.
    """

    state: str
    sizes: Mapping[str, int]


class Index:
    """The index of one user, for runs of any folder.

    Args:
        folder: where it is kept; made if it is missing.
        tell: called with a sentence before work that takes seconds.
    """

    def __init__(self, folder: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self._folder = folder
        self._tell = tell

    @contextmanager
    def opened(self, run_dirs: Sequence[Path]) -> Iterator[DuckDBPyConnection]:
        """Yield a connection that can read the tables of these runs, and nothing else.

        Args:
            run_dirs: the folders of the runs, absolute.

        Raises:
            UsageError: if DuckDB is not installed.
            HostError: if the index or a run cannot be read or written.
        """
        import_duckdb()
        import duckdb

        runs = {folder: run for folder in map(str, run_dirs) if (run := _files_of(folder))}
        with host_errors(f"the index in {self._folder}"):
            make_folder(self._folder, 0o700)
            status = self._folder.stat()
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                raise HostError(
                    f"others may write to the index in {self._folder}",
                    remedy="name a folder of your own: --index-dir",
                )
            lock = open_own(self._folder / ".lock")
        file = self._folder / f"runs-{FORMAT}-{duckdb.__version__}.duckdb"
        with os.fdopen(lock):
            with _duckdb_errors(self._folder):
                if not _is_fresh(file, runs, lock):
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    self._update(file, runs)
                    fcntl.flock(lock, fcntl.LOCK_SH)
            with duckdb.connect(config=_limits(self._folder)) as connection:
                with _duckdb_errors(self._folder):
                    _choose(connection, file, list(runs))
                yield connection

    def _update(self, file: Path, runs: Mapping[str, _Run]) -> None:
        """Bring the index up to date for these runs, and forget the ones that are gone."""
        for other in self._folder.glob("runs-*.duckdb*"):
            if not other.name.startswith(file.name):
                other.unlink()
        for left_behind in self._folder.glob(f"{_SPILL}*"):  # of processes that were killed
            shutil.rmtree(left_behind, ignore_errors=True)
        with _connected(file, _limits(self._folder)) as database:
            known = _known(database)
            gone = [
                folder
                for folder in known
                if folder not in runs and not os.path.lexists(os.path.join(folder, RUN_FILE))  # noqa: PTH118
            ]
            changed = [folder for folder, run in runs.items() if known.get(folder) != run.state]
            size = sum(sum(runs[folder].sizes.values()) for folder in changed)
            if size >= _SLOW_BYTES:
                self._tell(f"reading {len(changed)} new or changed runs, {size / 1e6:,.0f} MB …")
            _forget(database, [*gone, *(folder for folder in changed if folder in known)])
            for batch in _batches(changed, runs):
                _add(database, {folder: runs[folder] for folder in batch})


def import_duckdb() -> None:
    """Check that DuckDB 2 is installed.

    Raises:
        UsageError: if not; names the pip command.
    """
    import sys

    from agent.core.extras import extra_remedy

    remedy = extra_remedy("query")
    if sys.version_info < (3, 11):
        remedy = "run vcagent with Python 3.11 or newer: DuckDB 2 needs it"
    try:
        import duckdb
    except ImportError as error:
        raise UsageError(
            f"questions in SQL need the Python package of 'duckdb': {error}", remedy=remedy
        ) from error
    if int(duckdb.__version__.partition(".")[0]) < _LEAST_DUCKDB:
        raise UsageError(
            f"questions in SQL need DuckDB {_LEAST_DUCKDB}, not {duckdb.__version__}", remedy=remedy
        )


@contextmanager
def _duckdb_errors(folder: Path) -> Iterator[None]:
    """Turn errors of making or opening the index into one with a remedy."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise HostError(
            f"the runs cannot be read into the index in {folder}: {error}",
            remedy="see whether the disk is full and the runs are readable; the index may be deleted",
        ) from error


def _limits(folder: Path) -> dict[str, Any]:
    """Return settings for memory that does not grow with the runs: the rest is on the disk."""
    return {
        "memory_limit": _MEMORY,
        "threads": min(_MOST_THREADS, len(os.sched_getaffinity(0))),
        "temp_directory": str(folder / f"{_SPILL}{os.getpid()}"),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }


def _files_of(folder: str) -> _Run | None:
    """Return a run's files; None if it does not have a readable name or a run.json."""
    state, sizes = [], {}
    for name in _FILES:
        try:
            status = os.lstat(f"{folder}/{name}")
        except OSError:
            state.append("-")
            continue
        state.append(f"{status.st_size} {status.st_mtime_ns}")
        if status.st_size and stat.S_ISREG(status.st_mode):
            sizes[name] = status.st_size
    try:
        folder.encode()
    except UnicodeEncodeError:
        return None
    return _Run(", ".join(state), sizes) if RUN_FILE in sizes else None


def _is_fresh(file: Path, runs: Mapping[str, _Run], lock: int) -> bool:
    """Return True if the index has these runs as they are now; it stays locked for reading."""
    import duckdb

    fcntl.flock(lock, fcntl.LOCK_SH)
    if not file.is_file():
        return False
    try:
        with duckdb.connect(str(file), read_only=True) as database:
            known = _known(database)
    except duckdb.Error:  # was cut short, or damaged
        return False
    return all(known.get(folder) == run.state for folder, run in runs.items())


@contextmanager
def _connected(file: Path, settings: dict[str, Any]) -> Iterator[DuckDBPyConnection]:
    """Open the index for writing; one that is damaged is made again."""
    import duckdb

    try:
        database = duckdb.connect(str(file), config=settings)
    except duckdb.Error:
        file.unlink(missing_ok=True)
        file.with_name(f"{file.name}.wal").unlink(missing_ok=True)
        database = duckdb.connect(str(file), config=settings)
    with database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute("SET preserve_insertion_order = false")
        database.execute("CREATE TABLE IF NOT EXISTS folders (place INTEGER, folder VARCHAR, state VARCHAR)")
        database.execute("CREATE SEQUENCE IF NOT EXISTS places")
        for name in TABLES:
            database.execute(create_sql(name))
        yield database


def _known(database: DuckDBPyConnection) -> dict[str, str]:
    return dict(database.execute("SELECT folder, state FROM folders").fetchall())


def _forget(database: DuckDBPyConnection, folders: list[str]) -> None:
    if not folders:
        return
    database.begin()
    found = database.execute(
        "SELECT place FROM folders WHERE list_contains($1::VARCHAR[], folder)", [folders]
    ).fetchall()
    places = [place for (place,) in found]
    for name in ("folders", *TABLES):
        database.execute(
            f"DELETE FROM {name} WHERE place IN (SELECT unnest($1::INTEGER[]))",  # noqa: S608 - a constant
            [places],
        )
    database.commit()


def _batches(folders: Sequence[str], runs: Mapping[str, _Run]) -> Iterator[list[str]]:
    """Yield the folders in batches that take bounded memory."""
    batch: list[str] = []
    size = 0
    for folder in folders:
        batch.append(folder)
        size += sum(runs[folder].sizes.values())
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_RUNS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _add(database: DuckDBPyConnection, runs: Mapping[str, _Run]) -> None:
    """Read runs into the index."""
    database.begin()
    try:
        database.execute(
            "CREATE OR REPLACE TEMP TABLE added AS SELECT nextval('places')::INTEGER AS place, folder, state "
            "FROM (SELECT unnest($1::VARCHAR[]) AS folder, unnest($2::VARCHAR[]) AS state)",
            [list(runs), [run.state for run in runs.values()]],
        )
        database.execute("INSERT INTO folders SELECT * FROM added")
        _read_documents(database, runs)
        for name in ("runs", "cases", "steps"):
            database.execute(insert_sql(name))
        for name, file in {"metrics": METRICS_FILE, "contexts": CONTEXTS_FILE}.items():
            if files := _batch_of(database, runs, file):
                database.execute(insert_sql(name), {"files": files})
        database.commit()
    except BaseException:
        database.rollback()
        raise


def _batch_of(database: DuckDBPyConnection, runs: Mapping[str, _Run], file: str) -> list[str]:
    """Note which file belongs to which run; return the files that are not empty."""
    database.execute(
        "CREATE OR REPLACE TEMP TABLE batch AS SELECT place, folder, folder || '/' || $1 AS file FROM added",
        [file],
    )
    return [f"{folder}/{file}" for folder, run in runs.items() if file in run.sizes]


def _read_documents(database: DuckDBPyConnection, runs: Mapping[str, _Run]) -> None:
    """Read run.json of the batch's runs; a damaged one counts as empty, so that the run is listed."""
    database.execute(
        "CREATE OR REPLACE TEMP TABLE documents AS SELECT place, folder, part, "
        "coalesce(part->>'$.run_id', parse_filename(folder)) AS run_id FROM ("
        "SELECT batch.place, batch.folder, "
        "CASE WHEN json_valid(text) THEN text::JSON ELSE '{}'::JSON END AS part FROM ("
        "SELECT filename, try(decode(content)) AS text FROM read_blob($1)) AS found "
        "JOIN batch ON batch.file = found.filename)",
        [_batch_of(database, runs, RUN_FILE)],
    )


def _choose(connection: DuckDBPyConnection, file: Path, folders: list[str]) -> None:
    """Let a connection see the chosen runs of the index, and nothing else of this host.

    A run that is in two folders is seen once.
    """
    connection.execute(f"ATTACH '{str(file).replace(chr(39), chr(39) * 2)}' AS idx (READ_ONLY)")
    connection.execute(
        "CREATE TABLE chosen AS SELECT min(place) AS place FROM idx.runs "
        "WHERE folder IN (SELECT unnest($1::VARCHAR[])) GROUP BY run_id",
        [folders],
    )
    (whole,) = connection.execute(
        "SELECT (SELECT count(*) FROM chosen) = (SELECT count(*) FROM idx.folders)"
    ).fetchall()[0]
    condition = "" if whole else "WHERE place IN (SELECT place FROM chosen)"
    for name in TABLES:
        connection.execute(view_sql(name, condition))
    for setting in (
        "TimeZone = 'UTC'",
        "python_enable_replacements = false",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")
