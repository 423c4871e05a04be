"""Report progress as JSON lines on standard output, for the process that started the harness."""

from __future__ import annotations

import json
import sys
from time import perf_counter

_INTERVAL_S = 0.5


class Progress:
    """Reports the progress of the run; each line is flushed at once.

    Args:
        expected: number of samples that LoadGen will issue; None if unknown.
        note: the purpose of the test, unless it is the test itself.
    """

    def __init__(self, expected: int | None = None, note: str = "") -> None:
        self.expected = expected
        self._note = note
        self._start = perf_counter()
        self._last: tuple[str, float] = ("", 0.0)

    def report(
        self, phase: str, *, issued: int = 0, completed: int = 0, tokens: int = 0, detail: str = ""
    ) -> None:
        """Write one line, unless the same phase wrote one in the last half second.

        Args:
            phase: ``connect``, ``load``, ``warmup``, ``run`` or ``drain`` (all issued, not all answered).
            issued: samples sent in this phase.
            completed: samples answered.
            tokens: output tokens of the answers.
            detail: the engine's current step while it loads.
        """
        now = perf_counter()
        phase_before, then = self._last
        if phase == phase_before and now - then < _INTERVAL_S:
            return
        self._last = (phase, now)
        line = {
            "event": "progress",
            "phase": phase,
            "issued": issued,
            "completed": completed,
            "expected": self.expected if phase in {"run", "drain"} else None,
            "elapsed_s": round(now - self._start, 3),
            "tokens": tokens,
            **({"note": self._note} if self._note else {}),
            **({"detail": detail} if detail else {}),
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
