"""Opens the sinks of a run: the files that every run has, and the sinks that were requested by name.

Another distribution adds a sink by an entry point of the group ``vcagent.sinks``: a callable that takes the
sink's settings (the text after the colon of ``--sink NAME:settings``) and a ``SinkContext``, and returns a
``Sink``. It raises UsageError for invalid settings, and does not connect yet.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.core.errors import UsageError
from agent.core.names import canonical, did_you_mean
from agent.sinks.base import writable
from agent.sinks.csv_file import CsvSink
from agent.sinks.jsonl_file import JsonlSink
from agent.store.results import METRICS_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.core.secrets import Secrets
    from agent.sinks.base import Sink

SINK_GROUP = "vcagent.sinks"
_MOST_CHARACTERS = 8192
"""The longest settings; the longest path has 4096 characters, and a connection string less than 1000."""


@dataclass(frozen=True)
class SinkContext:
    """The information about a run that its sinks get.

    Args:
        run_dir: the run's folder.
        run_id: the run.
        host: facts about the host that every record carries: ``version`` of the agent, ``platform``,
            ``system`` that started the run.
        context: returns the context of records by its id (``ContextDocument``).
        mask: takes secrets out of a text; records contain none, but files of tools may.
        working_dir: the folder in which the run was started; relative paths in settings start there.
    """

    run_dir: Path
    run_id: str
    host: Mapping[str, Any] = field(default_factory=dict)
    context: Callable[[str], Mapping[str, Any]] = lambda _: {}
    mask: Callable[[str], str] = str
    working_dir: Path = field(default_factory=Path.cwd)


@cache
def _registered() -> Mapping[str, EntryPoint]:
    return {canonical(point.name): point for point in entry_points(group=SINK_GROUP)}


def known_sinks() -> list[str]:
    """Return the names that ``--sink`` accepts."""
    return sorted(point.name for point in _registered().values())


def own_files(context: SinkContext) -> list[Sink]:
    """Open the two files that every run has."""
    return [
        JsonlSink(context.run_dir / METRICS_FILE),
        CsvSink(context.run_dir / "metrics.csv", context.host, context.context),
    ]


def open_sinks(asked: Sequence[str], context: SinkContext) -> list[Sink]:
    """Open the requested sinks, without connecting yet.

    Args:
        asked: sinks as ``NAME`` or ``NAME:settings``; equal entries count once. ``${VARIABLE}`` in the
            settings is a variable of the environment, which is the place for secrets.
        context: the run.

    Raises:
        UsageError: if a sink is unknown, cannot be loaded, or refuses its settings.
    """
    sinks = []
    for text in dict.fromkeys(asked):
        name, _, settings = text.partition(":")
        sinks.append(_opened(name, _expanded(name, settings), context))
    names = [sink.name for sink in (*own_files(context), *sinks)]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two sinks are called {doubled}", remedy="give each --sink once")
    return sinks


def _opened(name: str, settings: str, context: SinkContext) -> Sink:
    """Open a sink; its factory may be foreign code.

    Raises:
        UsageError: if the sink is unknown, or refuses its settings in whatever way.
    """
    factory = _factory(name)
    remedy = f"correct the settings after --sink {name}:"
    if len(settings) > _MOST_CHARACTERS:
        raise UsageError(f"the settings of the sink {name} have {len(settings)} characters", remedy=remedy)
    if not writable(settings).isprintable() or writable(settings) != settings:
        raise UsageError(
            f"the settings of the sink {name} have a control character, or one that is not UTF-8",
            remedy=remedy,
        )
    try:
        return factory(settings, context)
    except UsageError:
        raise
    except Exception as error:
        reason = type(error).__name__  # its text may repeat a secret
        raise UsageError(
            f"the sink {name} does not understand its settings ({reason})", remedy=remedy
        ) from error


def add_sink_secrets(secrets: Secrets, asked: Sequence[str]) -> None:
    """Add the secrets in the settings of sinks, so that they are masked everywhere, also in answers."""
    for text in map(os.path.expandvars, asked):
        for start, end in secrets.spans(text):
            secrets.add(text[start:end], declared=True)


def _expanded(name: str, settings: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise UsageError(
                f"the sink {name} needs the variable {match[1]}, which is not set",
                remedy=f"export {match[1]}=…",
            )
        return os.environ[match[1]]

    return re.sub(r"\$\{(\w+)\}", value, settings)


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
