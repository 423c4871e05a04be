"""A sink as another distribution might provide it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.sinks import Sink

if TYPE_CHECKING:
    from agent.core.records import MetricRecord
    from agent.sinks import SinkContext

TAKEN: list[float] = []


class ListSink(Sink):
    def __init__(self, settings: str) -> None:
        self.name = f"list {settings}"
        self.fails = settings == "fails"

    def write(self, records: list[MetricRecord], position: int) -> int:
        if self.fails:
            raise RuntimeError("the plug-in is broken")
        TAKEN.extend(each.value for each in records)
        return position + len(records) + 1


def open_list(settings: str, context: SinkContext) -> Sink:
    assert context.run_id
    if settings == "wrong":
        raise UsageError("list takes no 'wrong'", remedy="leave it out")
    if settings == "raise":
        raise KeyError("hunter22")
    return ListSink(settings)
