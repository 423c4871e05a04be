"""Finds the class that implements a type: through entry points, never by an import of its own."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from agent.core.errors import ProfileError
from agent.core.names import canonical, nearest
from agent.core.plug_ins import broken, load_plug_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.component.component import Component

COMPONENT_GROUP = "vcagent.components"
_WHERE_TYPES_ARE = (
    "correct the type, or install the plug-in that has it; docs/reference/components.md lists all types"
)


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
    lines = [
        f"{place}: {_not_implemented(name)}" for name, place in types if canonical(name) not in _registered()
    ]
    if not lines:
        return None
    return ProfileError(
        "the profile uses types that are not implemented" if len(lines) > 1 else lines[0],
        details=tuple(lines) if len(lines) > 1 else (),
        remedy=_WHERE_TYPES_ARE,
    )


def _not_implemented(name: str) -> str:
    """Return an unknown type with the nearest known ones."""
    close = nearest(name, known_types())
    return f"type {name!r} is not implemented" + (f"; did you mean {' or '.join(close)}?" if close else "")


def component_class(name: str) -> type[Component]:
    """Return the class that implements a type.

    Raises:
        ProfileError: if there is none.
        PlugInError: if it cannot be loaded.
    """
    point = _registered().get(canonical(name))
    if point is None:
        raise ProfileError(_not_implemented(name), remedy=_WHERE_TYPES_ARE)
    from agent.component.component import Component

    loaded: type[Component] = load_plug_in(point, "the type")
    if not (isinstance(loaded, type) and issubclass(loaded, Component)):
        raise broken(point, "the type", TypeError("it is not a Component"))
    return loaded
