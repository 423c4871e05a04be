"""Settings of sinks, from the text after the colon of ``--sink NAME:settings``; imports of their packages."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from agent.core.errors import UsageError
from agent.core.extras import extra_remedy
from agent.core.names import did_you_mean
from agent.core.secrets import Secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType


_SHOWN = 200
"""The most characters of a destination in a message."""


@dataclass(frozen=True)
class Settings:
    """Settings of a sink: ``TARGET,name=value,…``.

    Args:
        target: the destination of the records: a URL, a file, an address.
        options: the options by name.
    """

    target: str
    options: Mapping[str, str] = field(default_factory=dict)


def parse_settings(sink: str, text: str, example: str, names: Iterable[str] | None = ()) -> Settings:
    """Read the settings of a sink.

    Args:
        sink: the sink's name.
        text: the settings.
        example: settings that would be valid, for the error.
        names: the known options; None if any option is accepted.

    Raises:
        UsageError: if the target is missing, or an option is unknown.
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


def require_address(sink: str, target: str, schemes: Iterable[str], example: str) -> None:
    """Refuse a URL that leads to no server: unknown scheme, no host, no valid port.

    Raises:
        UsageError: if it does not.
    """
    try:
        parts = urlsplit(target)
        port = parts.port
    except ValueError:  # brackets, or a port that is not a number
        parts, port = urlsplit(""), None
    if parts.scheme in schemes and re.fullmatch(r"[\w.:%-]*\w[\w.:%-]*", parts.hostname or "") and port != 0:
        return
    raise UsageError(
        f"the sink {sink} cannot use the address {_shown(target)}", remedy=f"--sink {sink}:{example}"
    )


def local_path(sink: str, target: str, example: str, working_dir: Path) -> Path:
    """Return the path of a sink that writes to this host; ``~`` is the home folder.

    A relative path starts at the run's working folder, also where records are delivered later.

    Raises:
        UsageError: if it is a URL, or leads to no home folder.
    """
    if "://" in target:
        raise UsageError(
            f"the sink {sink} writes to a folder of this host, not to {_shown(target)}",
            remedy=f"--sink {sink}:{example}; for a URL, use the sink content or parquet",
        )
    try:
        return working_dir / Path(target).expanduser()
    except RuntimeError as error:
        raise UsageError(
            f"the sink {sink} cannot find the folder {_shown(target)}: {error}",
            remedy=f"--sink {sink}:{example}",
        ) from error


def _shown(target: str) -> str:
    """Return a destination for a message: short, and without credentials, also of another sink's settings."""
    try:
        plain = without_credentials(target) if "://" in target else target
    except ValueError:
        plain = target.partition("://")[0] + "://…"
    shown = plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}…"
    return repr(Secrets().mask(shown))


def needed(sink: str, extra: str, *modules: str) -> ModuleType:
    """Import the modules that a sink needs; return the last one.

    Raises:
        UsageError: if a module is not installed; the remedy is the pip command.
    """
    loaded = None
    for module in modules:
        try:
            loaded = importlib.import_module(module)
        except ImportError as error:
            raise UsageError(
                f"the sink {sink} needs the Python package of {module.partition('.')[0]!r}: {error}",
                remedy=extra_remedy(extra),
            ) from error
    assert loaded is not None  # noqa: S101 - at least one module is given
    return loaded


def without_credentials(url: str) -> str:
    """Return a URL without user, password and query, which may hold a signature, for use in messages."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
