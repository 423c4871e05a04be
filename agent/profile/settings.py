"""Applies ``--set scenario.parameter=value``: sets parameters of single elements, declared or not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.core.errors import UsageError
from agent.core.names import canonical, did_you_mean
from agent.core.secret_shapes import is_secret_name
from agent.profile.resolution import resolve_one
from agent.profile.syntax import SyntaxProblem
from agent.profile.values import text_of
from agent.profile.variables import Variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.profile.schema import Element, Profile

_MAPPING = re.compile(r"""\{\s*(?:[\w"'][^{}]*:.*)?\}""", re.DOTALL)
"""Matches a mapping, but not an expression such as ``{Name}``."""


def set_parameters(
    profile: Profile, settings: Mapping[str, str], variables: Variables | None = None
) -> Profile:
    """Return the profile with changed parameters of its elements.

    Args:
        profile: the profile.
        settings: values by ``scenario.parameter``; a type selects the elements of that type. Further dots
            lead into a mapping: ``server.container.image``.
        variables: for scenarios that are written as expressions.

    Raises:
        UsageError: if no element has such a scenario or type, or the value is secret.
        ProfileError: if a parameter of that name cannot be set.
    """
    for place, text in settings.items():
        profile = _set(profile, place, text, variables or Variables())
    return profile


def _set(profile: Profile, place: str, text: str, variables: Variables) -> Profile:
    names = {id(element): _names(element, profile, variables) for element in profile.elements()}
    known = {name.lower(): name for found in names.values() for name in found}
    scenario, path = _split(place, known)
    if is_secret_name(path[-1]):
        raise UsageError(
            f"--set: {place} has a secret's name, and a command line is not secret",
            remedy="give it in the environment or in a file, as the element's own parameters allow",
        )
    value = _value(place, text)

    def changed(element: Element) -> Element:
        components = tuple(map(changed, element.components))
        if scenario not in {name.lower() for name in names[id(element)]}:
            return replace(element, components=components)
        return replace(element, components=components, parameters=_laid(element.parameters, path, value))

    return replace(
        profile,
        dependencies=tuple(map(changed, profile.dependencies)),
        actions=tuple(map(changed, profile.actions)),
        monitors=tuple(map(changed, profile.monitors)),
    )


def _names(element: Element, profile: Profile, variables: Variables) -> set[str]:
    """Return the names of an element: its scenario and its type."""
    from agent.core.errors import ProfileError

    try:
        scenario = text_of(resolve_one("Scenario", element, profile, variables))
    except ProfileError:
        scenario = ""
    return {name for name in (scenario, element.type) if name}


def _split(place: str, known: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the scenario, which may contain dots itself, and the path of the parameter."""
    parts = place.split(".")
    for count in range(len(parts) - 1, 0, -1):
        scenario = ".".join(parts[:count]).strip().lower()
        if scenario in known and all(part.strip() for part in parts[count:]):
            return scenario, [part.strip() for part in parts[count:]]
    if len(parts) == 1:
        raise UsageError(
            f"--set: {place!r} names no parameter", remedy="write --set scenario.parameter=value"
        )
    raise UsageError(
        f"--set: no element has the scenario or type {parts[0]!r}",
        remedy=did_you_mean(parts[0], known.values()),
    )


def _value(place: str, text: str) -> Any:
    """Return a value parsed as YAML; an expression stays a text."""
    from agent.profile.yaml_text import plain_scalar, read_yaml

    if not (text.startswith("[") or _MAPPING.fullmatch(text.strip())):
        return plain_scalar(text) if text else ""
    try:
        return read_yaml(text).data
    except SyntaxProblem as problem:
        raise UsageError(
            f"--set: the value of {place} is neither a list nor a mapping: {problem.message}",
            remedy="write [a, b] or {a: 1}",
        ) from None


def _laid(parameters: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """Return the parameters with another value at a path."""
    name, *rest = path
    written = next((key for key in parameters if canonical(key) == canonical(name)), name)
    if rest:
        inner = parameters.get(written)
        value = _laid(inner if isinstance(inner, dict) else {}, rest, value)
    return {**parameters, written: value}
