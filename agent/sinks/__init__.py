"""Where metric records go: one file a sink."""

from __future__ import annotations

from agent.sinks.base import Sink, feed
from agent.sinks.csv_file import CsvSink
from agent.sinks.jsonl_file import JsonlSink

__all__ = ["CsvSink", "JsonlSink", "Sink", "feed"]
