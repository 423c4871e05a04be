"""Finds the class that implements a type: through entry points, never by an import of its own."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from agent.core.errors import ProfileError
from agent.core.names import canonical, did_you_mean, nearest
from agent.core.plug_ins import broken, load_plug_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.component.component import Component

COMPONENT_GROUP = "vcagent.components"


@lru_cache(maxsize=1)
def _registered() -> dict[str, EntryPoint]:
    return {canonical(point.name): point for point in entry_points(group=COMPONENT_GROUP)}


def known_types() -> list[str]:
    """Return the names of all installed types."""
    return sorted(point.name for point in _registered().values())


def unknown_types(types: Iterable[tuple[str, str]]) -> ProfileError | None:
    """Return one error for all types that are not implemented, or None.

    Args:
        types: pairs of a type's name and its place.
    """
    lines = []
    for name, place in types:
        if canonical(name) not in _registered():
            close = nearest(name, known_types())
            hint = f"; nearest known types: {', '.join(close)}" if close else ""
            lines.append(f"{place}: type {name!r} is not implemented{hint}")
    if not lines:
        return None
    return ProfileError(
        "the profile uses types that are not implemented" if len(lines) > 1 else lines[0],
        details=tuple(lines) if len(lines) > 1 else (),
        remedy=f"implemented types: {', '.join(known_types())}",
    )


def component_class(name: str) -> type[Component]:
    """Return the class that implements a type.

    Raises:
        ProfileError: if there is none.
        PlugInError: if it cannot be loaded.
    """
    point = _registered().get(canonical(name))
    if point is None:
        raise ProfileError(f"type {name!r} is not implemented", remedy=did_you_mean(name, known_types()))
    from agent.component.component import Component

    loaded: type[Component] = load_plug_in(point, "the type")
    if not (isinstance(loaded, type) and issubclass(loaded, Component)):
        raise broken(point, "the type", TypeError("it is not a Component"))
    return loaded
