"""Read vLLM's log: its progress during the start, and the cause of its end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

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
_STAGES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Initializing a V1 LLM engine|world size \d+ is assigned as"), "starting its processes"),
    (re.compile(r"Starting to load model|Loading weights took"), "reading weights"),
    (re.compile(r"Loading safetensors checkpoint.*\| (?P<done>\d+)/(?P<all>\d+) "), "reading weights"),
    (re.compile(r"Model loading took"), "tracing the model"),  # silent until it has been traced
    (re.compile(r"Dynamo bytecode transform|Compiling a graph|Cache the graph|torch\.compile"), "compiling"),
    (re.compile(r"Initial profiling/warmup run|Profiling CUDA graph memory|Estimated CUDA graph memory"
                r"|Available KV cache memory|KV cache size|Maximum concurrency for"), "measuring its memory"),
    (re.compile(r"Capturing CUDA graphs.*\| (?P<done>\d+)/(?P<all>\d+) "), "capturing graphs"),
    (re.compile(r"Graph capturing finished|init engine \(profile"), "warming up"),
)  # fmt: skip
"""Messages of vLLM (0.22) from which its present work follows, and the words for it."""
_TAIL_BYTES = 256 * 1024
_LONGEST = 500
_GIB = 1 << 30


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


def last_news(log: Path, model: str = "") -> str:
    """Return what vLLM does while it starts, such as ``capturing graphs, 12 of 51``; empty if unknown.

    Args:
        log: vLLM's output; messages of unknown meaning are skipped.
        model: the model's folder, whose files show how many bytes of weights are read.
    """
    return next((words for line in reversed(_tail(log)) if (words := news_of(line, model))), "")


def news_of(line: str, model: str = "") -> str:
    """Return what vLLM does while it starts, from one line of its output; empty if the line does not say."""
    for pattern, words in _STAGES:
        if found := pattern.search(line):
            return f"{words}{_how_much(found.groupdict(), model)}"
    return ""


def _how_much(found: Mapping[str, str], model: str) -> str:
    if "done" not in found:
        return ""
    done, all_ = int(found["done"]), int(found["all"])
    files = sorted(Path(model).glob("*.safetensors")) if model else []
    if len(files) != all_:  # graphs, or weights in another form
        return f", {done} of {all_}"
    sizes = [file.stat().st_size / _GIB for file in files]
    return f", {sum(sizes[:done]):.1f} of {sum(sizes):.1f} GiB"


def _tail(log: Path) -> list[str]:
    """Return the last lines; none if the log does not exist."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
