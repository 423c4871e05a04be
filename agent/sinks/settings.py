"""What stands behind the colon of ``--sink NAME:settings``, and what a sink needs that is not installed."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from agent.core.errors import UsageError
from agent.core.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType


@dataclass(frozen=True)
class Settings:
    """Settings of a sink: ``TARGET,name=value,…``.

    Args:
        target: where records go: a URL, a file, an address.
        options: by name.
    """

    target: str
    options: Mapping[str, str] = field(default_factory=dict)


def parse_settings(sink: str, text: str, example: str, names: Iterable[str] | None = ()) -> Settings:
    """Read the settings of a sink.

    Args:
        sink: the sink's name.
        text: the settings.
        example: settings that would do, for the error.
        names: the options that there are; None if any is taken.

    Raises:
        UsageError: if the target is missing, or an option is not known.
    """
    target, *pairs = text.split(",")
    remedy = f"--sink {sink}:{example}"
    if not target.strip():
        raise UsageError(f"the sink {sink} needs a destination", remedy=remedy)
    options = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise UsageError(f"the sink {sink} does not understand {pair!r}", remedy=remedy)
        if names is not None and name.strip() not in set(names):
            raise UsageError(
                f"the sink {sink} has no option {name.strip()!r}",
                remedy=did_you_mean(name.strip(), list(names)),
            )
        options[name.strip()] = value.strip()
    return Settings(target.strip(), options)


def needed(sink: str, extra: str, *modules: str) -> ModuleType:
    """Import what a sink needs; return the last of the modules.

    Raises:
        UsageError: if it is not installed; names the pip command.
    """
    loaded = None
    for module in modules:
        try:
            loaded = importlib.import_module(module)
        except ImportError as error:
            raise UsageError(
                f"the sink {sink} needs the Python package of {module.partition('.')[0]!r}: {error}",
                remedy=f"{sys.executable} -m pip install 'vcagent[{extra}]'",
            ) from error
    assert loaded is not None  # noqa: S101 - there is always one
    return loaded


def without_credentials(url: str) -> str:
    """Return a URL as a name: without user, password and query, which may hold a signature."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
