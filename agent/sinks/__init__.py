"""Where metric records go."""

from __future__ import annotations

from agent.sinks.base import Sink, feed
from agent.sinks.csv_file import CsvSink
from agent.sinks.jsonl_file import JsonlSink
from agent.sinks.opening import SinkContext, open_sinks

__all__ = ["CsvSink", "JsonlSink", "Sink", "SinkContext", "feed", "open_sinks"]
