"""Additional copies of metrics.jsonl and metrics.csv, such as on a share: ``--sink jsonl:FOLDER``.

Each run has its own file in the folder, named after the run.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from typing_extensions import override

from agent.core.records import CONTEXT_KEY
from agent.core.safe_files import make_folder
from agent.sinks.base import FileSink
from agent.sinks.csv_file import CsvSink
from agent.sinks.jsonl_file import JsonlSink
from agent.sinks.settings import local_path, parse_settings

if TYPE_CHECKING:
    from pathlib import Path

    from agent.core.records import MetricRecord
    from agent.sinks.base import Sink
    from agent.sinks.opening import SinkContext


def _place(sink: str, settings: str, context: SinkContext, ending: str) -> Path:
    """Return the run's file in the folder that the settings name."""
    target = parse_settings(sink, settings, "/data/runs").target
    return local_path(sink, target, "/data/runs", context.working_dir) / f"{context.run_id}.{ending}"


class _InFolder(FileSink):
    """A file in a folder that is made if it does not exist."""

    @override
    def start(self) -> None:
        make_folder(self.path.parent)


class _CsvCopy(_InFolder, CsvSink):
    """A file with VirtualClient's columns."""


class _WholeJsonlSink(_InFolder, JsonlSink):
    """A file of records with their contexts, readable without the run's folder."""

    def __init__(self, path: Path, context: SinkContext) -> None:
        super().__init__(path)
        self._whole = lru_cache(maxsize=256)(lambda name: json.dumps(context.context(name)))

    @override
    def line(self, record: MetricRecord) -> str:
        whole = self._whole(str(record.metadata.get(CONTEXT_KEY, "")))
        return f'{super().line(record)[:-2]}, "context": {whole}}}\n'


def open_jsonl(settings: str, context: SinkContext) -> Sink:
    """Open ``jsonl:FOLDER``: one record per line, each with its whole context."""
    path = _place("jsonl", settings, context, "jsonl")
    sink = _WholeJsonlSink(path, context)
    sink.name = f"jsonl {path}"
    return sink


def open_csv(settings: str, context: SinkContext) -> Sink:
    """Open ``csv:FOLDER``: VirtualClient's 29 columns."""
    path = _place("csv", settings, context, "csv")
    sink = _CsvCopy(path, context.host, context.context)
    sink.name = f"csv {path}"
    return sink
