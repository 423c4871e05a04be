"""metrics.jsonl: one record a line, all of its fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.sinks.base import FileSink
from agent.store.journal import record_to_json

if TYPE_CHECKING:
    from agent.core.records import MetricRecord

__all__ = ["JsonlSink"]


class JsonlSink(FileSink):
    """Records as JSON lines."""

    def line(self, record: MetricRecord) -> str:
        """See FileSink."""
        stored = record.stored or record_to_json(record)
        return f'{{"record_id": {record.record_id}, {stored[1:]}\n'
