"""Merges several profiles into one, and applies the command line's parameters."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.core.errors import ProfileError
from agent.core.names import canonical, did_you_mean
from agent.core.secret_shapes import is_secret_name
from agent.profile.guide_names import guide_name
from agent.profile.schema import KINDS, Element, Profile
from agent.profile.syntax import SyntaxProblem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_REFERENCE = re.compile(r"\$\.parameters\.([A-Za-z0-9_-]+)", re.IGNORECASE)


def merge(profiles: Sequence[Profile]) -> Profile:
    """Return one profile with everything of several, in order.

    Name, description and times are the first's; elements are appended; of a parameter or metadata key that
    several declare the first counts (VirtualClient: ExecutionProfileExtensions.MergeWith). The elements of
    each still see their own profile's parameters first; VirtualClient puts those in before it merges.
    """
    merged = profiles[0]
    for other in profiles[1:]:
        elements: dict[str, Any] = {}
        for attribute in map(str.lower, KINDS.values()):
            before: tuple[Element, ...] = getattr(merged, attribute)
            added: tuple[Element, ...] = getattr(other, attribute)
            elements[attribute] = before + tuple(
                _moved(element, f"{attribute}[{len(before) + index}]", len(merged.scopes))
                for index, element in enumerate(added)
            )
        merged = replace(
            merged,
            metadata=_added(merged.metadata, other.metadata),
            parameters=_added(merged.parameters, other.parameters),
            sources=merged.sources + other.sources,
            scopes=merged.scopes + other.scopes,
            sinks=tuple(dict.fromkeys(merged.sinks + other.sinks)),
            **elements,
        )
    return merged


def _moved(element: Element, key: str, scope: int) -> Element:
    components = tuple(
        _moved(component, f"{key}.components[{index}]", scope)
        for index, component in enumerate(element.components)
    )
    return replace(element, key=key, scope=element.scope + scope, components=components)


def _added(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    names = {canonical(name) for name in first}
    return {**first, **{name: value for name, value in other.items() if canonical(name) not in names}}


def override(profile: Profile, overrides: Mapping[str, str], metadata: Mapping[str, Any]) -> Profile:
    """Return the profile with parameters and metadata of the command line in place of its own.

    Every source that declares a parameter gets the new value.

    Raises:
        ProfileError: if no source declares a parameter, or if the value is not of the declared one's kind.
    """
    declared = {canonical(name): name for scope in profile.scopes for name in scope.parameters}
    unknown = {
        name: guide_name(name, declared.values()) or did_you_mean(name, declared.values())
        for name in overrides
        if canonical(name) not in declared
    }
    if unknown:
        first, *more = unknown
        remedies = [f"{name}: {remedy}" if more else remedy for name, remedy in unknown.items() if remedy]
        raise ProfileError(
            f"--parameters: the profile declares no parameter '{first}'"
            + "".join(f", and no '{name}'" for name in more),
            where=", ".join(profile.sources),
            remedy="; ".join(
                (*remedies, "a parameter of one element is set with --set SCENARIO.parameter=value")
            ),
        )
    values = {canonical(name): value for name, value in overrides.items()}
    scopes = tuple(
        replace(scope, parameters=_overridden(scope.parameters, values)) for scope in profile.scopes
    )
    return replace(
        profile,
        metadata=_added(metadata, profile.metadata),
        parameters=_overridden(profile.parameters, values),
        scopes=scopes,
    )


def _overridden(parameters: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: _typed(name, values[canonical(name)], _behind(declared, parameters))
        if canonical(name) in values
        else declared
        for name, declared in parameters.items()
    }


def _behind(declared: Any, parameters: Mapping[str, Any]) -> Any:
    """Return the value that a default of the form ``$.Parameters.Name`` refers to; it determines the kind."""
    values = {canonical(name): value for name, value in parameters.items()}
    for _ in values:
        match = _REFERENCE.fullmatch(declared) if isinstance(declared, str) else None
        if match is None or canonical(match[1]) not in values:
            break
        declared = values[canonical(match[1])]
    return declared


def _typed(name: str, text: str, declared: Any) -> Any:
    """Return a value of the command line, parsed as YAML unless the declared value is text."""
    from agent.profile.yaml_text import plain_scalar, read_yaml

    if declared is None or isinstance(declared, str):
        return text
    if not isinstance(declared, dict | list):
        return plain_scalar(text)
    try:
        value = read_yaml(text).data
    except SyntaxProblem:
        value = None
    if type(value) is not type(declared):
        kind = "a list, as in [a, b]" if isinstance(declared, list) else "a mapping, as in {a: 1}"
        shown = "***" if is_secret_name(name) else text[:60]
        raise ProfileError(f"--parameters: {name} is {kind}, not '{shown}'")
    return value
