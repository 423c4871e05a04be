"""Checks a profile's expressions before the host is read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent.core.errors import ProfileError
from agent.core.names import canonical, nearest
from agent.profile.problems import Problem, Problems
from agent.profile.resolution import known_lookup
from agent.profile.schema import Element, Location, Profile, Scope
from agent.profile.scoping import TOO_DEEP, Names, Slot, told
from agent.profile.template import Calculation, Lookup, Reference, parse_template
from agent.profile.variables import Variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WORD = re.compile(r"\w+")
_MANY = 50
"""The search ends after this many problems: each may compare all names for the nearest."""


def check(profile: Profile, variables: Variables | None = None) -> None:
    """Check that references exist, have no circles, and that expressions can be parsed.

    Every branch of an expression is followed, and every entry of ``ParametersOn``, whatever the host.

    Args:
        profile: the profile.
        variables: the variables that may be referenced; no value is read.

    Raises:
        ProfileError: with every problem, each with its line and key.
    """
    variables = variables or Variables()
    problems = Problems()
    _check_added(profile, problems)
    profile = replace(profile, scopes=tuple(map(_with_conditional, profile.scopes)))
    for element in profile.elements():
        walk = _Walk(Names.of(element, profile, variables), problems, element.location.source, element)
        for slot in walk.names.own():
            walk.slot(slot, ())
    for source, scope in zip(profile.sources, profile.scopes, strict=False):
        _check_scope(scope, _Walk(Names({}, scope, profile, variables), problems, source))
    problems.raise_any()


def _check_added(profile: Profile, problems: Problems) -> None:
    """Report parameters of ``ParametersOn`` that are neither declared nor used, but are near a declared one.

    VirtualClient's profiles may set parameters there that they do not declare.
    """
    declared = {canonical(name): name for scope in profile.scopes for name in scope.parameters}
    values = [element.parameters for element in profile.elements()]
    for scope in profile.scopes:
        values += [scope.parameters, *(condition.parameters for condition in scope.conditions)]
    used = {
        canonical(word) for value in values for text in _texts(dict(value)) for word in _WORD.findall(text)
    }
    for scope in profile.scopes:
        for condition in scope.conditions:
            for name in condition.parameters:
                if canonical(name) not in declared.keys() | used and (
                    close := nearest(name, declared.values())
                ):
                    problems.add(
                        condition.location,
                        f"{condition.key}.{name}",
                        "no parameter has this name, and nothing refers to it",
                        f"did you mean {' or '.join(close)}?",
                    )


def _with_conditional(scope: Scope) -> Scope:
    """Return the scope with the parameters that ``ParametersOn`` may add, so that they can be referenced."""
    names = {canonical(name) for name in scope.parameters}
    added = {
        name: value
        for condition in reversed(scope.conditions)
        for name, value in condition.parameters.items()
        if canonical(name) not in names
    }
    return replace(scope, parameters={**added, **scope.parameters})


def _check_scope(scope: Scope, walk: _Walk) -> None:
    """Check the conditions, and at least the syntax of parameters that no element uses."""
    for name, value in scope.parameters.items():
        place = walk.names.location(Slot(2, name, value), None)
        for text in _texts(value):
            walk.attempt(parse_template, text, name, place)
    for condition in scope.conditions:
        slot = Slot(-1, "Condition", condition.expression)
        walk.follow(slot, (), (condition.location, f"{condition.key}.condition"))
        for name, value in condition.parameters.items():
            for text in _texts(value):
                walk.attempt(parse_template, text, name, (condition.location, f"{condition.key}.{name}"))


@dataclass
class _Walk:
    """Follows the references of one element, or of one source's conditions."""

    names: Names
    problems: Problems
    source: str
    element: Element | None = None
    seen: set[tuple[int, str]] = field(default_factory=set)

    def slot(self, slot: Slot, chain: tuple[Slot, ...]) -> None:
        if slot.place not in self.seen:
            self.seen.add(slot.place)
            self.follow(slot, chain, self.names.location(slot, self.element))

    def follow(self, slot: Slot, chain: tuple[Slot, ...], place: tuple[Location | None, str]) -> None:
        """Check a value's expressions and everything they refer to."""
        chain = (*chain, slot)

        def check_text(text: str) -> None:
            for part in parse_template(text):
                if isinstance(part, Reference):
                    found = self.names.find(part, chain)
                    if isinstance(found, Slot):
                        self.slot(found, chain)
                elif isinstance(part, Lookup):
                    known_lookup(part, self.names.variables)
                    check_text(part.argument)
                elif isinstance(part, Calculation):
                    for inner in part.expression.templates():
                        self.attempt(check_text, inner, slot.name, place)

        for text in _texts(slot.value):
            self.attempt(check_text, text, slot.name, place)

    def attempt(
        self, examine: Callable[[str], object], text: str, name: str, place: tuple[Location | None, str]
    ) -> None:
        if len(self.problems.found) >= _MANY:
            return
        try:
            examine(text)
        except (ProfileError, RecursionError) as error:
            shown = told(name, error if isinstance(error, ProfileError) else ProfileError(TOO_DEEP))
            location, key = place
            problem = Problem(location or Location(self.source), key, shown.message, shown.remedy or "")
            if problem not in self.problems.found:
                self.problems.found.append(problem)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _texts(entry)
