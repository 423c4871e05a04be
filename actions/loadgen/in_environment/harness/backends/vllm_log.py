"""Read vLLM's log: its progress during the start, and the cause of its end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NO_ROOM_FOR_CACHE = re.compile(
    r"No available memory for the cache blocks|larger than the available KV cache memory"
)
"""Messages of vLLM (0.22, ``v1/core/kv_cache_utils.py``) that its share of the memory is too small."""
OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|less than desired GPU memory utilization|" + NO_ROOM_FOR_CACHE.pattern,
    re.IGNORECASE,
)
"""Messages of vLLM (0.22) and PyTorch that the GPU's memory is too small."""
_RAISED = re.compile(r"(?:^|\s)((?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt))(: .+)?$")
_SAYS_NOTHING = (
    "Engine core initialization failed",
    "EngineCore encountered an issue",
    "See root cause above",
)
_NEWS = re.compile(r"^(?:\(.*?\) )?INFO \S+ \S+ \[\S+:\d+\] (.+)")
_TAIL_BYTES = 256 * 1024
_LONGEST = 500
_LONGEST_NEWS = 80


def last_words(log: Path) -> str:
    """Return the exception that caused the engine's end, in one line; empty if the log has none.

    vLLM's processes raise exceptions in a chain: the first one since the log's last start is the cause, later
    ones only report that another process has ended.
    """
    raised = [match for line in _tail(log) if (match := _RAISED.search(line))]
    causes = [match for match in raised if not any(phrase in (match[2] or "") for phrase in _SAYS_NOTHING)]
    if not causes:
        return ""
    memory = next((match for match in causes if OUT_OF_MEMORY.search(match[0])), None)
    found = memory or causes[0]
    return f"{found[1]}{found[2] or ''}"[:_LONGEST]


def last_news(log: Path) -> str:
    """Return vLLM's last message about its progress, such as ``Loading weights took 1.66 seconds``."""
    said = [match[1] for line in _tail(log) if (match := _NEWS.search(line))]
    return said[-1][:_LONGEST_NEWS] if said else ""


def _tail(log: Path) -> list[str]:
    """Return the last lines; none if the log does not exist."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
