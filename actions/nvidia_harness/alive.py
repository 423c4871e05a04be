"""Show that a long, silent stage is alive: its last line, the time since then, the load of the GPUs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from agent.core.progress import duration
from parsers.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from agent.core.progress import Progress

_INTERVAL_S = 2.0
_WORTH_TELLING_S = 20.0
_LINE_LIMIT = 120


class Alive:
    """A context manager for one stage; pass each line of its output to ``line``.

    Args:
        progress: gets the messages.
        title: the stage, for people.
        usual_s: usual duration in seconds; None if unknown.
        gpu_use: returns the current utilisation of the GPUs in percent; None if unknown.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        progress: Progress,
        title: str,
        *,
        usual_s: float | None = None,
        gpu_use: Callable[[], list[float] | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress = progress
        self._title = title
        self._usual_s = usual_s
        self._gpu_use = gpu_use
        self._clock = clock
        self._started = self._heard = clock()
        self._last = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True, name="alive")

    def __enter__(self) -> Self:
        """Start the messages."""
        self._progress.update(self.message())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the messages."""
        self._ended.set()
        self._thread.join()

    def line(self, text: str) -> None:
        """Record a line of the stage's output."""
        shown = plain(text).strip()
        if shown:
            self._last, self._heard = shown[:_LINE_LIMIT], self._clock()

    def message(self) -> str:
        """Return the current message."""
        parts = [f"{self._title}, {duration(self._clock() - self._started)}"]
        if self._usual_s:
            parts.append(f"usually {duration(self._usual_s)}")
        if use := self._gpu_use():
            parts.append(f"GPUs at {sum(use) / len(use):.0f} %")
        if self._last:
            silent_s = self._clock() - self._heard
            since = f" ({duration(silent_s)} ago)" if silent_s > _WORTH_TELLING_S else ""
            parts.append(f"last line{since}: {self._last}")
        return " · ".join(parts)

    def _tick(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            self._progress.update(self.message())


def gpu_use() -> Callable[[], list[float] | None]:
    """Return a function for the utilisation of the GPUs, in percent each; needs nvidia-ml-py and a driver."""
    from agent.core.errors import HostError

    try:
        from agent.facts.nvml_library import NvmlSession

        session = NvmlSession()
    except (ImportError, HostError):
        return lambda: None

    def ask() -> list[float] | None:
        try:
            readings = [session.read(gpu, slow=False).gauges for gpu in session.gpus]
        except HostError:
            return None
        return [gauges["utilization"] * 100 for gauges in readings if "utilization" in gauges] or None

    return ask
