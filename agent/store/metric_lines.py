"""Reads metrics.jsonl as records; an incomplete line is ignored."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from agent.core.records import MetricRecord, Relativity, metric_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path


def is_monitor(tool_name: str) -> bool:
    """Return True if records of this tool watch the host instead of measuring a workload."""
    return tool_name.lower().endswith("monitor")


def read_records(path: Path, unread: list[str] | None = None) -> Iterator[MetricRecord]:
    """Yield the records of a ``metrics.jsonl``; none if the file does not exist.

    Args:
        path: the file.
        unread: receives the lines that are not records, such as an incomplete last line.
    """
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file):
            try:
                record = _record({"record_id": number, **json.loads(line)})
            except (ValueError, KeyError, TypeError):
                if unread is not None:
                    unread.append(line)
                continue
            yield record


def as_records(records: Iterable[Mapping[str, Any] | MetricRecord]) -> Iterator[MetricRecord]:
    """Yield records from the values of lines of ``metrics.jsonl``; existing records stay unchanged."""
    for number, record in enumerate(records):
        yield record if isinstance(record, MetricRecord) else _record({"record_id": number, **record})


def _record(values: dict[str, Any]) -> MetricRecord:
    for key in ("timestamp", "scenario_start", "scenario_end"):
        values[key] = moment(values[key])
    values["relativity"] = Relativity(values["relativity"])
    values["value"] = float(values["value"])
    values["tags"] = tuple(values.get("tags") or ())
    record = MetricRecord(**values)
    metric_of(record)  # refuses values that are not numbers
    return record


def moment(value: object) -> datetime | None:
    """Return a time from run.json as an aware time, or None."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value.replace("Z", "+00:00"))
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=timezone.utc)
