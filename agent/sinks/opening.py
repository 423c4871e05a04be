"""Open the sinks of a run: the two that every run has, and those that were asked for by name.

Another distribution adds a sink by an entry point of the group ``vcagent.sinks``: a callable that takes the
sink's settings (the text behind the colon of ``--sink NAME:settings``) and a ``SinkContext``, and returns a
``Sink``. It raises UsageError for settings that cannot be used, and connects to nothing yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from agent.core.errors import UsageError
from agent.core.names import canonical, did_you_mean
from agent.sinks.csv_file import CsvSink
from agent.sinks.jsonl_file import JsonlSink
from agent.store.results import METRICS_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from agent.sinks.base import Sink

SINK_GROUP = "vcagent.sinks"


@dataclass(frozen=True)
class SinkContext:
    """What a sink may know of its run.

    Args:
        run_dir: the run's folder.
        run_id: the run.
        host: facts about the host that every record carries: ``version`` of the agent, ``platform``.
    """

    run_dir: Path
    run_id: str
    host: Mapping[str, Any] = field(default_factory=dict)


@cache
def _registered() -> Mapping[str, EntryPoint]:
    return {canonical(point.name): point for point in entry_points(group=SINK_GROUP)}


def known_sinks() -> list[str]:
    """Return the names that ``--sink`` takes."""
    return sorted(point.name for point in _registered().values())


def open_sinks(asked: Sequence[str], context: SinkContext) -> list[Sink]:
    """Open ``metrics.jsonl``, ``metrics.csv`` and the sinks that were asked for.

    Args:
        asked: sinks as ``NAME`` or ``NAME:settings``; two with the same name and settings are one.
        context: the run.

    Raises:
        UsageError: if a sink is unknown, cannot be loaded, or refuses its settings.
    """
    sinks: list[Sink] = [
        JsonlSink(context.run_dir / METRICS_FILE),
        CsvSink(context.run_dir / "metrics.csv", context.host),
    ]
    for text in dict.fromkeys(asked):
        name, _, settings = text.partition(":")
        sinks.append(_factory(name)(settings, context))
    names = [sink.name for sink in sinks]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two sinks are called {doubled}", remedy="give each --sink once")
    return sinks


def _factory(name: str) -> Callable[[str, SinkContext], Sink]:
    point = _registered().get(canonical(name))
    if point is None:
        known = known_sinks()
        raise UsageError(
            f"no sink is called {name!r}",
            remedy=did_you_mean(name, known)
            if known
            else "install the distribution that has it; metrics.jsonl and metrics.csv are always written",
        )
    try:
        factory: Callable[[str, SinkContext], Sink] = point.load()
    except Exception as error:
        owner = point.dist.name if point.dist else "an unknown distribution"
        raise UsageError(
            f"the sink {point.name} of {owner} cannot be loaded: {type(error).__name__}: {error}",
            where=f"{SINK_GROUP}: {point.value}",
            remedy=f"reinstall {owner}, or leave --sink {point.name} out",
        ) from error
    return factory
