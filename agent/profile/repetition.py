"""Groups that are run once for each of several values: ``ForEach: {Variant: $.Parameters.Variants}``.

Without any value a group is left out: so a parameter that may be empty decides whether there is one.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.core.errors import ProfileError
from agent.core.names import canonical
from agent.profile.resolution import resolve_one
from agent.profile.schema import GROUPS
from agent.profile.values import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.profile.schema import Element, Profile
    from agent.profile.variables import Variables

__all__ = ["repeat"]

_PARAMETER = "ForEach"


def repeat(profile: Profile, variables: Variables) -> Profile:
    """The profile with a group for each value in place of each group that has ``ForEach``.

    Args:
        profile: the profile.
        variables: for values that are written as expressions.

    Raises:
        ProfileError: if ``ForEach`` is not one name with a list of different values, or is no group's.
    """
    repeated = _Repetition(profile, variables)
    return replace(
        profile,
        dependencies=tuple(repeated.all(profile.dependencies)),
        actions=tuple(repeated.all(profile.actions)),
        monitors=tuple(repeated.all(profile.monitors)),
    )


class _Repetition:
    def __init__(self, profile: Profile, variables: Variables) -> None:
        self.profile = profile
        self.variables = variables

    def all(self, elements: tuple[Element, ...]) -> Iterator[Element]:
        for element in elements:
            yield from self.one(element)

    def one(self, element: Element) -> Iterator[Element]:
        if element.type not in GROUPS:
            yield element
            return
        written = next(
            (name for name in element.parameters if canonical(name) == canonical(_PARAMETER)), None
        )
        if written is None:
            yield replace(element, components=tuple(self.all(element.components)))
            return
        name, values = self._values(element, written)
        kept = {key: value for key, value in element.parameters.items() if key != written}
        for number, value in enumerate(values, 1):
            text = text_of(value)
            mark = text if re.fullmatch(r"[\w.-]+", text, re.ASCII) else str(number)
            copy = _given(
                replace(element, parameters=kept), name, value, element.key, f"{element.key}={mark}"
            )
            yield replace(copy, components=tuple(self.all(copy.components)))

    def _values(self, element: Element, written: str) -> tuple[str, list[Any]]:
        where = f"{element.where(written)}: {element.key}.parameters.{written}"
        wish = resolve_one(written, element, self.profile, self.variables)
        if not isinstance(wish, dict) or len(wish) != 1:
            raise ProfileError(
                f"{written} is one name with its values",
                where=where,
                remedy=f"write {written}: {{Variant: [F16, Q4_K_M]}}; for two names put a group into a group",
            )
        ((name, values),) = wish.items()
        if isinstance(values, str):
            values = [part.strip() for part in values.split(",") if part.strip()]
        if values is None or values == "":
            values = []
        values = values if isinstance(values, list) else [values]
        if len({text_of(value) for value in values}) < len(values):
            raise ProfileError(
                f"the values of {name} are not all different", where=where, remedy="name each once"
            )
        return str(name), values


def _given(element: Element, name: str, value: Any, before: str, after: str) -> Element:
    """The element and all below it, with a value and with keys of their own."""
    return replace(
        element,
        key=after + element.key.removeprefix(before),
        given={**element.given, name: value},
        components=tuple(_given(inner, name, value, before, after) for inner in element.components),
    )
