"""Repeats groups for each of several values: ``ForEach: {Variant: $.Parameters.Variants}``.

A group without values is skipped, so that an empty parameter disables it.
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
    from collections.abc import Callable, Iterator

    from agent.profile.schema import Element, Profile
    from agent.profile.variables import Variables

_PARAMETER = "ForEach"

_MOST_ELEMENTS = 10_000
"""Most elements of a profile after its groups are repeated; more are a mistake, and would fill the memory."""


def repeat(profile: Profile, variables: Variables, mask: Callable[[str], str] = str) -> Profile:
    """Return the profile in which each group with ``ForEach`` is replaced by one group for each value.

    Args:
        profile: the profile.
        variables: for values that are written as expressions.
        mask: takes secrets out of a text: a value with a secret is not used in names.

    Raises:
        ProfileError: if ``ForEach`` is not one name with a list of different values, or not a group's.
    """
    repeated = _Repetition(profile, variables, mask)
    return replace(
        profile,
        dependencies=tuple(repeated.all(profile.dependencies)),
        actions=tuple(repeated.all(profile.actions)),
        monitors=tuple(repeated.all(profile.monitors)),
    )


class _Repetition:
    def __init__(self, profile: Profile, variables: Variables, mask: Callable[[str], str]) -> None:
        self.profile = profile
        self.variables = variables
        self.mask = mask
        self.count = 0

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
            plain = re.fullmatch(r"[\w.-]{1,60}", text, re.ASCII) and self.mask(text) == text
            mark = text if plain else str(number)
            self._count(element, written)
            copy = _given(
                replace(element, parameters=kept), name, value, element.key, f"{element.key}={mark}"
            )
            yield replace(copy, components=tuple(self.all(copy.components)))

    def _count(self, element: Element, written: str) -> None:
        """Count a copy of a group with all its members before creating it."""
        self.count += _size(element)
        if self.count > _MOST_ELEMENTS:
            raise ProfileError(
                f"{written} makes more than {_MOST_ELEMENTS} elements",
                where=f"{element.where(written)}: {element.key}.parameters.{written}",
                remedy="give fewer values, or put fewer groups with ForEach into each other",
            )

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


def _size(element: Element) -> int:
    return 1 + sum(map(_size, element.components))


def _given(element: Element, name: str, value: Any, before: str, after: str) -> Element:
    """Return the element and all elements below it, with a value and with keys of their own."""
    return replace(
        element,
        key=after + element.key.removeprefix(before),
        given={**element.given, name: value},
        components=tuple(_given(inner, name, value, before, after) for inner in element.components),
    )
