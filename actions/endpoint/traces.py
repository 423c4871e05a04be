"""Read traces of requests: when each arrived, and the lengths of its prompt and its answer.

Two formats are supported: JSON lines of Mooncake's traces (``{"timestamp": 27482, "input_length": 6955,
"output_length": 52, "hash_ids": [46, 47]}``, milliseconds, a hash for each 512 tokens; kvcache-ai/Mooncake,
FAST25-release), and the CSV of the Azure LLM inference traces (``TIMESTAMP,ContextTokens,GeneratedTokens``;
Azure/AzurePublicDataset). Either format may use the other's names.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from agent.core.errors import HostError
from agent.core.names import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

BLOCK_TOKENS = 512
"""Number of prompt tokens for each of a trace's hash_ids."""
_MS_PER_S = 1000.0
_FRACTION = re.compile(r"(\.\d{1,6})\d*")
_NAMES = {
    "moment": ("timestamp", "arrived_at", "arrival_time", "time"),
    "input": ("input_length", "ContextTokens", "input_tokens", "prompt_tokens", "request tokens"),
    "output": ("output_length", "GeneratedTokens", "output_tokens", "completion_tokens", "response tokens"),
}
_MOST_TOKENS = 10**7


@dataclass(frozen=True)
class TracedRequest:
    """One request of a trace.

    Args:
        offset_s: seconds since the first request of the trace.
        input_tokens: length of the prompt.
        output_tokens: length of the answer, at least 1.
        blocks: the hash of each 512 tokens of the prompt; equal hashes mean equal tokens. Empty if the trace
            does not have hashes.
    """

    offset_s: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


def read_trace(path: Path) -> list[TracedRequest]:
    """Read a trace; return its requests in the order of arrival.

    Raises:
        HostError: if the file cannot be read, or a line lacks a time or a length.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise HostError(f"the trace {path} cannot be read: {error}", remedy="correct traceFile") from error
    found = []
    for number, row in _rows(path, text):
        try:
            found.append(_request(row))
        except (ValueError, TypeError, KeyError) as error:
            raise _malformed(path, number, str(error)) from error
    if not found:
        raise HostError(f"the trace {path} holds no request", remedy="correct traceFile")
    found.sort(key=lambda entry: entry[0])
    first_s = found[0][0]
    return [TracedRequest(moment_s - first_s, *rest) for moment_s, *rest in found]  # type: ignore[arg-type]


def _rows(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield each request, with canonical keys, and the number of its line."""
    if not text.lstrip().startswith("{"):
        for number, row in enumerate(csv.DictReader(io.StringIO(text)), 2):
            yield number, {canonical(str(key)): value for key, value in row.items()}
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise _malformed(path, number, f"is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise _malformed(path, number, "is not a JSON object")
        yield number, {canonical(key): value for key, value in row.items()}


def _request(row: Mapping[str, Any]) -> tuple[float, int, int, tuple[int, ...]]:
    lengths = [int(_value(row, name)) for name in ("input", "output")]
    if lengths[0] < 1 or lengths[1] < 0 or max(lengths) > _MOST_TOKENS:
        raise ValueError(f"has lengths of {lengths[0]} and {lengths[1]} tokens")
    blocks = row.get(canonical("hash_ids")) or ()
    return _seconds(_value(row, "moment")), lengths[0], max(lengths[1], 1), tuple(map(int, blocks))


def _value(row: Mapping[str, Any], name: str) -> Any:
    for spelling in _NAMES[name]:
        if (value := row.get(canonical(spelling))) not in (None, ""):
            return value
    raise KeyError(f"has none of {', '.join(_NAMES[name])}")


def _seconds(value: Any) -> float:
    """Return a time in seconds; a whole number is in milliseconds, any other is in seconds or a date."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value / _MS_PER_S
    if isinstance(value, float):
        return value
    text = str(value).strip()
    try:
        return float(text)
    except ValueError:
        # Azure writes seven digits after the point, and in some files a time zone.
        moment = datetime.fromisoformat(_FRACTION.sub(r"\1", text, count=1).replace("Z", "+00:00"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def _malformed(path: Path, number: int, what: str) -> HostError:
    return HostError(
        f"{path}:{number} {what.strip(chr(39))}",
        remedy='write lines such as {"timestamp": 27482, "input_length": 6955, "output_length": 52}, with '
        "timestamp in milliseconds, or a CSV with TIMESTAMP, ContextTokens and GeneratedTokens",
    )
