"""Records as Parquet files, partitioned by experiment: ``--sink parquet:FOLDER``.

``FOLDER/experiment_id=E/RUN-000000000001.parquet``; the number is that of the file's first record. A file
whose success was not noted is written again under the same name, so that no record appears twice.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from typing_extensions import override

from agent.core.records import CONTEXT_KEY, categorization
from agent.sinks.base import Sink, refusing_unwritable
from agent.sinks.remote_files import RemoteFolder
from agent.sinks.settings import needed, parse_settings

if TYPE_CHECKING:
    from agent.core.records import MetricRecord
    from agent.sinks.opening import SinkContext

_CONTEXT_COLUMNS = ("metadata_host", "metadata_runtime", "metadata_scenario", "metadata_dependencies")
_TEXTS = (
    "run_id", "experiment_id", "client_id", "profile", "system", "tool_name", "tool_version", "scenario",
    "metric", "unit", "relativity", "categorization", "description", "tags",
    "metadata", *_CONTEXT_COLUMNS, "tool_results",
)  # fmt: skip


class ParquetSink(Sink):
    """Writes Parquet files to a folder, one for each batch.

    Args:
        folder: the folder.
        context: the run.
    """

    interval_s = 30.0  # avoids a file per second
    batch = 100_000

    def __init__(self, folder: RemoteFolder, context: SinkContext) -> None:
        needed("parquet", "parquet", "pyarrow", "pyarrow.parquet")
        self.name = f"parquet {folder.name}"
        self._folder = folder
        self._context = context
        self._texts: dict[str, dict[str, str]] = {}

    @override
    def write(self, records: list[MetricRecord], position: int) -> int:
        import io

        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        with refusing_unwritable():
            pq.write_table(self._table(records), buffer, compression="zstd")
        first = records[0]
        name = f"{quote(first.run_id, safe='')}-{first.record_id:012d}.parquet"
        folder = f"experiment_id={quote(first.experiment_id, safe='')}"
        self._folder.put(f"{folder}/{name}", buffer.getvalue())
        return first.record_id

    def _table(self, records: list[MetricRecord]) -> Any:
        import pyarrow as pa

        moment, text = pa.timestamp("us", tz="UTC"), pa.dictionary(pa.int32(), pa.string())
        columns: dict[str, Any] = {
            "record_id": pa.array([record.record_id for record in records], pa.int64()),
            "value": pa.array([record.value for record in records], pa.float64()),
            "verbosity": pa.array([record.verbosity for record in records], pa.int8()),
        }
        for name in ("timestamp", "scenario_start", "scenario_end"):
            columns[name] = pa.array([getattr(record, name) for record in records], moment)
        rows = [self._row(record) for record in records]
        for name in _TEXTS:
            values = [row[name] or None for row in rows]
            columns[name] = pa.array(values, pa.string()).dictionary_encode().cast(text)
        return pa.table(columns)

    def _row(self, record: MetricRecord) -> dict[str, str]:
        metadata = dict(record.metadata)
        whole = self._of_context(str(metadata.pop(CONTEXT_KEY, "")))
        return {
            "run_id": record.run_id,
            "experiment_id": record.experiment_id,
            "client_id": record.client_id,
            "profile": record.profile,
            "tool_name": record.tool_name,
            "tool_version": record.tool_version,
            "scenario": record.scenario,
            "metric": record.metric,
            "unit": record.unit,
            "relativity": record.relativity.value,
            "categorization": categorization(metadata),
            "description": record.description,
            "tags": ",".join(record.tags),
            "metadata": json.dumps(metadata) if metadata else "",
            **whole,
        }

    def _of_context(self, name: str) -> dict[str, str]:
        if name not in self._texts:
            context = self._context.context(name)
            texts = {key: json.dumps(context[key]) if context.get(key) else "" for key in _CONTEXT_COLUMNS}
            texts |= {key: str(context.get(key, "")) for key in ("system", "tool_results")}
            self._texts[name] = texts
        return self._texts[name]


def open_parquet(settings: str, context: SinkContext) -> Sink:
    """Open ``parquet:FOLDER`` or ``parquet:URL[,option=value]``."""
    read = parse_settings("parquet", settings, "/data/records", None)
    return ParquetSink(RemoteFolder("parquet", read.target, read.options, context.working_dir), context)
