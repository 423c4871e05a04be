"""Loads the references on the command line into one validated profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.core.errors import ProfileError
from agent.profile.finding import find
from agent.profile.merging import merge, override
from agent.profile.structure import read_profile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.abc import Traversable

    from agent.profile.finding import Source
    from agent.profile.schema import Profile


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
        metadata: metadata from the command line; takes precedence over the profiles'.
        search: the folders of installed profiles; None for the package ``profiles``.

    Raises:
        ProfileError: with every problem of a file, each with its line, key and the nearest known name.
    """
    sources = [find(reference, search=search) for reference in references]
    return load_sources(sources, overrides=overrides, metadata=metadata)


def load_sources(
    sources: Sequence[Source],
    *,
    overrides: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Profile:
    """Load profiles like ``load``, from given texts."""
    if not sources:
        raise ProfileError("no profile is given", remedy="name one with --profile")
    return override(merge(list(map(read_profile, sources))), overrides or {}, metadata or {})
