"""Names a profile's elements as their author knows them: by scenario, else by type."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING

from agent.core.errors import ProfileError
from agent.profile.resolution import resolve_one
from agent.profile.values import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.profile.schema import Element, Profile
    from agent.profile.variables import Variables


def scenario_of(element: Element, profile: Profile, variables: Variables) -> str:
    """Return an element's scenario, resolved; empty if it has none or its value is unknown."""
    try:
        return text_of(resolve_one("Scenario", element, profile, variables))
    except ProfileError:
        return ""


def unique_names(named: Iterable[tuple[Element, str]]) -> dict[str, str]:
    """Return the names by the elements' keys; equal names get their line in the profile.

    Args:
        named: elements, each with a name: ``ExecuteCommand`` becomes ``ExecuteCommand (HEALTH.yaml:7)`` if
            another element has that name too.
    """
    pairs = [(element, name, f"{name} ({_place(element)})") for element, name in named]
    names = Counter(name for _, name, _ in pairs)
    placed = Counter(with_place for _, _, with_place in pairs)
    return {
        element.key: name
        if names[name] == 1
        else (with_place if placed[with_place] == 1 else f"{name} ({element.key})")  # JSON on a single line
        for element, name, with_place in pairs
    }


def element_names(profile: Profile, variables: Variables) -> dict[str, str]:
    """Return a unique name of each element that is not a group, by its key: its scenario, else its type."""
    return unique_names(
        (element, scenario_of(element, profile, variables) or element.type)
        for element in profile.elements()
        if not element.components
    )


def _place(element: Element) -> str:
    line = f":{element.location.line}" if element.location.line is not None else ""
    given = [f"{name}={text_of(value)}" for name, value in element.given.items()]
    return ", ".join((f"{PurePath(element.location.source).name}{line}", *given))
