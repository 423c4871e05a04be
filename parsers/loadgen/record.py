"""Reads one record of ``mlperf_log_detail.txt``: its value and time, even if it is not valid JSON."""

from __future__ import annotations

import re

from parsers.json_text import read_json

_FIELDS = re.compile(r'"value"\s*:\s*(?P<value>.*?)\s*,\s*"time_ms"\s*:\s*(?P<time>[^,}\s]+)', re.DOTALL)


def decode(line: bytes) -> tuple[object, float | None] | None:
    """Return the value and time of a JSON record, or None if the record is not JSON."""
    try:
        record = read_json(line[line.find(b"{") :], strict=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or "value" not in record:
        return None
    time_ms = record.get("time_ms")
    return record["value"], float(time_ms) if isinstance(time_ms, float) else None


def salvage(line: bytes) -> tuple[object, float | None] | None:
    """Return value and time of a complete record that is not valid JSON: bare quotes, nan, inf."""
    found = _FIELDS.search(line.decode("utf-8", "replace"))
    if found is None:
        return None
    text = found["value"]
    value: object
    try:
        value = text[1:-1] if text.startswith('"') else float(text)
    except ValueError:
        return None
    try:
        return value, float(found["time"])
    except ValueError:
        return value, None


def message_of(line: bytes, name: bytes) -> str:
    """Return the text of an error or warning, or its key if it has no text."""
    decoded = decode(line) or salvage(line)
    text = str(decoded[0]) if decoded is not None else ""
    return " ".join(text.split()) or name.decode("ascii", "replace")
