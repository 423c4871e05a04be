"""From references on the command line to one validated profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Traversable

    from agent.profile.schema import Profile

__all__ = ["load"]


def load(
    references: Sequence[str],
    *,
    overrides: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    search: Sequence[Traversable] | None = None,
) -> Profile:
    """Read, validate and merge profiles.

    Args:
        references: names, paths or URIs (see ``find``), in order; the first names the telemetry.
        overrides: parameters from the command line; each must be declared by a profile.
        metadata: metadata from the command line; wins over the profiles'.
        search: the folders of installed profiles; None for the package ``profiles``.

    Raises:
        ProfileError: with every problem of a file, each with its line, key and the nearest known name.
    """
    raise NotImplementedError
