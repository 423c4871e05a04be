"""Measure the end of an Offline test, when fewer answers are left than the engine works on at once.

The GPUs are then no longer full. A longer test has the same end, so that its share, and with it the loss, is
smaller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.core.records import Metric, Relativity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_COMPLETED = "completed_s"


def tail_share(completed_s: Sequence[float], at_once: int) -> float:
    """Return the share of a test's time after the moment from which fewer than ``at_once`` answers were left.

    Args:
        completed_s: when each answer was complete, in seconds since the first query.
        at_once: how many answers the engine works on at the same time.
    """
    times = sorted(completed_s)
    full = len(times) - at_once
    began_s = times[full - 1] if full > 0 else 0.0
    return 1 - began_s / times[-1] if times[-1] > 0 else 1.0


def tail_metrics(result: Mapping[str, Any], case_dir: Path) -> Iterator[Metric]:
    """Yield the tail's share of an Offline test; nothing if the engine does not say how much it does at once.

    Args:
        result: ``harness_result.json``.
        case_dir: the test's folder, with ``samples.csv``.
    """
    engine = result.get("engine") or {}
    at_once = int(engine.get("max_num_seqs") or 0) * int(engine.get("data_parallel_size") or 1)
    completed_s = _completions(case_dir / "samples.csv") if at_once else []
    if not completed_s:
        return
    yield Metric(
        "tail_share",
        tail_share(completed_s, at_once),
        "ratio",
        Relativity.LOWER,
        f"share of the time with fewer than {at_once} answers left, as many as the engine works on at "
        "once: a longer minDuration makes it smaller",
        verbosity=2,
    )


def _completions(path: Path) -> list[float]:
    try:
        header, *rows = path.read_text(encoding="ascii").splitlines()
        place = header.split(",").index(_COMPLETED)
        values = [row.split(",")[place] for row in rows]
        return [float(value) for value in values if value]
    except (OSError, ValueError, IndexError):
        return []
