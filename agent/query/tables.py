"""The tables of ``vcagent query``: their columns, and how each is read from a run's files."""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """A column.

    Args:
        name: its name.
        type: its type in DuckDB. Timestamps are in UTC.
        source: the SQL expression that reads it.
        meaning: what it holds.
    """

    name: str
    type: str
    source: str
    meaning: str


class Table(NamedTuple):
    """A table.

    Args:
        meaning: what a row is.
        rows: the SQL after FROM that gives what the columns are read from: ``place``, and the rest.
        columns: its columns.
    """

    meaning: str
    rows: str
    columns: tuple[Column, ...]


def _text(name: str, meaning: str, path: str = "") -> Column:
    return Column(name, "VARCHAR", f"part->>'$.{path or name}'", meaning)


def _json(name: str, meaning: str, path: str = "") -> Column:
    return Column(name, "JSON", f"part->'$.{path or name}'", meaning)


def _texts(name: str, meaning: str, path: str) -> Column:
    return Column(name, "VARCHAR[]", f"json_extract_string(part, '$.{path}')", meaning)


def _cast(name: str, kind: str, meaning: str, path: str = "") -> Column:
    return Column(name, kind, f"try_cast(part->>'$.{path or name}' AS {kind})", meaning)


def _moment(path: str) -> str:
    return f"try_cast(part->>'$.{path}' AS TIMESTAMPTZ) AT TIME ZONE 'UTC'"


_RUN_ID = Column("run_id", "VARCHAR", "run_id", "the run")
_TIMES = (
    Column("start_time", "TIMESTAMP", _moment("start"), "when it started"),
    Column("end_time", "TIMESTAMP", _moment("end"), "when it ended"),
    Column("duration_s", "DOUBLE", f"epoch(({_moment('end')}) - ({_moment('start')}))", "seconds between"),
)


def _parts(name: str) -> str:
    return f"(SELECT place, run_id, unnest(json_extract(part, '$.{name}[*]')) AS part FROM documents)"  # noqa: S608 - of constants


_LINES = (
    "read_json($files, format = 'newline_delimited', ignore_errors = true, columns = {$columns}, "
    "filename = 'file') AS line JOIN batch ON batch.file = line.file"
)


def _read(name: str, meaning: str, kind: str = "VARCHAR") -> Column:
    return Column(name, kind, f"line.{name}", meaning)


def _utc(name: str, meaning: str) -> Column:
    return Column(name, "TIMESTAMP", f"line.{name} AT TIME ZONE 'UTC'", meaning)


TABLES: dict[str, Table] = {
    "runs": Table(
        "a run",
        "documents",
        (
            _RUN_ID,
            _text("experiment_id", "groups runs"),
            _text("client_id", "the host's name in records"),
            _text("profile", "the profile's name", "profile.name"),
            *_TIMES,
            _text("verdict", "VALID, INVALID, FAILED, NOT_APPLICABLE", "verdict.validity"),
            _cast("exit_code", "INTEGER", "absent while the run goes on"),
            _text("exit_reason", "why it ended"),
            _json("parameters", "the profile's parameters; secrets are masked", "profile.parameters"),
            _json("metadata", "what --metadata gave"),
            _json("versions", "versions of tools, by name"),
            _json("facts", "the host, by the names of facts"),
            _json("containers", "images with their digests"),
            Column("folder", "VARCHAR", "folder", "the run's folder"),
        ),
    ),
    "cases": Table(
        "a case of a run, with its verdict",
        _parts("cases"),
        (
            _RUN_ID,
            _text("scenario", "unique within the run"),
            _text("tool_name", "the tool that measured"),
            _text("tool_version", "its version"),
            _text("verdict", "VALID, INVALID, FAILED, NOT_APPLICABLE", "validity"),
            _texts("reasons", "why it does not count", "reasons[*].message"),
            _texts("warnings", "doubts about its numbers", "warnings[*]"),
            *_TIMES,
            _cast("complete", "BOOLEAN", "false if the tool's output was truncated"),
            _json("details", "settings in effect"),
            _text("case_dir", "the raw logs, below the run's folder"),
        ),
    ),
    "metrics": Table(
        "a record: one number",
        f"{_LINES} WHERE line.metric IS NOT NULL AND line.value IS NOT NULL",
        (
            _read("run_id", "the run"),
            _read("record_id", "unique within the run, increasing", "BIGINT"),
            _utc("timestamp", "when it was measured"),
            _read("experiment_id", "groups runs"),
            _read("client_id", "the host's name in records"),
            _read("profile", "the profile's name"),
            _read("tool_name", "the tool that measured; a monitor's name ends with Monitor"),
            _read("tool_version", "its version"),
            _read("scenario", "the case; empty for what monitors record"),
            _utc("scenario_start", "when the case started"),
            _utc("scenario_end", "when it ended"),
            _read("metric", "its name"),
            _read("value", "the number", "DOUBLE"),
            _read("unit", "its base unit: seconds, tokens/s, bytes, ratio …"),
            _read("relativity", "HigherIsBetter, LowerIsBetter, Undefined"),
            _read("verbosity", "1 for headline numbers", "INTEGER"),
            _read("description", "what it means"),
            _read("tags", "such as summary, for what monitors sum up for a case", "VARCHAR[]"),
            _read("metadata", "further context", "JSON"),
            Column("context_id", "VARCHAR", "line.metadata->>'$.context_id'", "its row in contexts"),
        ),
    ),
    "contexts": Table(
        "what several records have in common",
        f"{_LINES} WHERE line.context_id IS NOT NULL",
        (
            _read("run_id", "the run"),
            _read("context_id", "what metrics.context_id names"),
            _read("system", "the system that started the run"),
            _read("metadata", "what --metadata gave", "JSON"),
            _read("metadata_host", "processors, memory, GPUs, OS", "JSON"),
            _read("metadata_runtime", "how the agent was called, versions, GPU settings", "JSON"),
            _read("metadata_scenario", "type, parameters, command", "JSON"),
            _read("metadata_dependencies", "versions on the host", "JSON"),
            _read("tool_results", "the tool's own output, cut"),
        ),
    ),
    "steps": Table(
        "a step of a run",
        _parts("steps"),
        (
            _RUN_ID,
            _text("key", "unique within the run"),
            _text("title", "the element's scenario, or its type if it has none"),
            _text("component", "the element's place in the profile"),
            _text("type", "the element's type"),
            _text("kind", "dependency, action or monitor"),
            _text("name", "the step's name"),
            _text("reason", "why it is needed"),
            _text("command", "what is run; secrets are masked"),
            _text("status", "done, failed, pending …"),
            _text("message", "how it ended"),
            _cast("attempts", "INTEGER", "how often it was tried"),
            *_TIMES,
            _text("log", "its log, below the run's folder"),
        ),
    ),
}
"""The tables by name, in the order in which they are described."""

FORMAT = 2
"""To be raised with each change of the tables: an index of another format is made again."""


def create_sql(name: str) -> str:
    """Return the statement that creates a table of the index; ``place`` is the number of the run's folder."""
    columns = ", ".join(f'"{column.name}" {column.type}' for column in TABLES[name].columns)
    return f"CREATE TABLE IF NOT EXISTS {name} (place INTEGER, {columns})"


def insert_sql(name: str) -> str:
    """Return the statement that adds the runs of a batch; ``$files`` are the files to read, if any."""
    table = TABLES[name]
    lines = ", ".join(f"'{column}': '{kind}'" for column, kind in _line(table).items())
    rows = table.rows.replace("{$columns}", f"{{{lines}}}")
    values = ", ".join(column.source for column in table.columns)
    return f"INSERT INTO {name} SELECT place, {values} FROM {rows}"  # noqa: S608 - of constants


def view_sql(name: str, condition: str) -> str:
    """Return the statement that shows the chosen runs of a table of the index."""
    columns = ", ".join(f'"{column.name}"' for column in TABLES[name].columns)
    return f"CREATE VIEW {name} AS SELECT {columns} FROM idx.{name} {condition}"  # noqa: S608 - of constants


def _line(table: Table) -> dict[str, str]:
    """Return the types of the keys that are read from a line of JSON."""
    return {
        column.name: "TIMESTAMPTZ" if column.type == "TIMESTAMP" else column.type
        for column in table.columns
        if column.source.startswith(f"line.{column.name}")
    }
