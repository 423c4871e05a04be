"""metrics.jsonl: one record a line, all of its fields."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from agent.journal import record_to_json
from agent.sinks.base import FileSink

if TYPE_CHECKING:
    from agent.records import MetricRecord

__all__ = ["JsonlSink"]


class JsonlSink(FileSink):
    """Records as JSON lines."""

    def line(self, record: MetricRecord) -> str:
        """See FileSink."""
        return json.dumps({"record_id": record.record_id, **json.loads(record_to_json(record))}) + "\n"
