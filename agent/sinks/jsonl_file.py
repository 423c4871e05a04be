"""metrics.jsonl: one record per line, with all its fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from agent.sinks.base import FileSink
from agent.store.journal import record_to_json

if TYPE_CHECKING:
    from agent.core.records import MetricRecord


class JsonlSink(FileSink):
    """Writes records as JSON lines."""

    @override
    def line(self, record: MetricRecord) -> str:
        stored = record.stored or record_to_json(record)
        return f'{{"record_id": {record.record_id}, {stored[1:]}\n'
