"""Destinations of metric records."""

from __future__ import annotations

from agent.sinks.base import Piece, RecordsRefusedError, Sink, SinkUnavailableError, feed
from agent.sinks.csv_file import CsvSink
from agent.sinks.delivering import FINISH_WAIT_S, Delivering, flush
from agent.sinks.jsonl_file import JsonlSink
from agent.sinks.opening import SinkContext, add_sink_secrets, open_sinks, own_files

__all__ = [
    "FINISH_WAIT_S", "CsvSink", "Delivering", "JsonlSink", "Piece", "RecordsRefusedError", "Sink",
    "SinkContext", "SinkUnavailableError", "add_sink_secrets", "feed", "flush", "open_sinks", "own_files",
]  # fmt: skip
