"""Resolves every reference and expression in an element's parameters."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.core.errors import ProfileError
from agent.core.names import canonical, nearest
from agent.core.timespan import format_timespan, parse_timespan
from agent.profile.expression import evaluate
from agent.profile.scoping import TOO_DEEP, Names, Slot, told
from agent.profile.template import Calculation, Lookup, Part, Reference, parse_template
from agent.profile.values import text_of, value_of

if TYPE_CHECKING:
    from agent.profile.schema import Element, Profile, Scope
    from agent.profile.variables import Variables

_LARGEST = 2_000_000
"""Most characters of one element's parameters, including intermediate values."""

_NODE = 10
"""Fixed cost of a value, in addition to its characters."""


def resolve(element: Element, profile: Profile, variables: Variables) -> dict[str, Any]:
    """Return an element's parameters (without its components) with every reference and expression resolved.

    A parameter that is one expression keeps the type of its value; with text beside it, it becomes text.

    Raises:
        VariableUnavailableError: if the host does not have something now.
        ProfileError: if a reference leads nowhere or in a circle, or an expression fails.
    """
    profile = settle(profile, variables)
    resolver = _Resolver(Names.of(element, profile, variables))
    return {slot.name: _told(resolver, slot, element) for slot in resolver.names.own()}


def resolve_one(name: str, element: Element, profile: Profile, variables: Variables) -> Any:
    """Return one resolved parameter of an element, regardless of the others; None if it is missing.

    Raises:
        VariableUnavailableError: see ``resolve``.
        ProfileError: likewise.
    """
    profile = settle(profile, variables)
    resolver = _Resolver(Names.of(element, profile, variables))
    for slot in resolver.names.own():
        if canonical(slot.name) == canonical(name):
            return _told(resolver, slot, element)
    return None


def resolve_known(profile: Profile, variables: Variables) -> dict[str, Any]:
    """Return the profile's own parameters resolved, for display; unknown values stay as written."""
    try:
        profile = settle(profile, variables)
    except ProfileError:
        return dict(profile.parameters)
    found: dict[str, Any] = {}
    for scope in profile.scopes:
        resolver = _Resolver(Names({}, scope, profile, variables))
        for name, value in scope.parameters.items():
            with suppress(ProfileError, RecursionError):
                found.setdefault(canonical(name), _plain(resolver.value(value, ())))
    return {name: found.get(canonical(name), value) for name, value in profile.parameters.items()}


def _told(resolver: _Resolver, slot: Slot, element: Element) -> Any:
    where = f"{element.where(slot.name)}: {element.key}.parameters.{slot.name}"
    try:
        return _plain(resolver.slot(slot, ()))
    except ProfileError as error:
        raise type(error)(error.message, where=where, remedy=error.remedy) from None
    except RecursionError:
        raise ProfileError(TOO_DEEP, where=where) from None


def settle(profile: Profile, variables: Variables) -> Profile:
    """Return the profile with ``ParametersOn`` applied: each source's first true condition counts.

    As in VirtualClient, the conditions see the command line's parameters, and the values that they set take
    precedence over those. ``resolve`` calls this itself; a profile without conditions is returned unchanged.

    Raises:
        ProfileError: if a condition has no value, or one that is neither true nor false.
    """
    if not any(scope.conditions for scope in profile.scopes):
        return profile
    scopes = tuple(_settled(scope, profile, variables) for scope in profile.scopes)
    parameters: dict[str, Any] = {}
    for scope in reversed(scopes):
        names = {canonical(name) for name in scope.parameters}
        kept = {name: value for name, value in parameters.items() if canonical(name) not in names}
        parameters = {**scope.parameters, **kept}
    return replace(profile, parameters=parameters, scopes=scopes)


def _settled(scope: Scope, profile: Profile, variables: Variables) -> Scope:
    resolver = _Resolver(Names({}, scope, profile, variables))
    for condition in scope.conditions:
        where = f"{condition.location}: {condition.key}.condition"
        try:
            holds = value_of(resolver.value(condition.expression, ()))
        except ProfileError as error:
            raise type(error)(error.message, where=where, remedy=error.remedy) from None
        except RecursionError:
            raise ProfileError(TOO_DEEP, where=where) from None
        if not isinstance(holds, bool):
            raise ProfileError(
                "a condition is true or false; this one is neither",
                where=where,
                remedy="compare something: {calculate({LogicalCoreCount} <= 2)}",
            )
        if holds:
            names = {canonical(name): name for name in scope.parameters}
            settings = {
                names.get(canonical(name), name): value for name, value in condition.parameters.items()
            }
            locations = {**scope.locations, **dict.fromkeys(settings, condition.location)}
            return replace(
                scope, parameters={**scope.parameters, **settings}, locations=locations, conditions=()
            )
    return replace(scope, conditions=())


class _Resolver:
    """Resolves parameters and counts their size while building them, so that they cannot fill the memory.

    A value that is referenced again counts again, because lists may nest repeated lists.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self._known: dict[tuple[int, str], tuple[Any, int]] = {}
        self._spent = 0

    def slot(self, slot: Slot, chain: tuple[Slot, ...]) -> Any:
        if slot.place in self._known:
            value, cost = self._known[slot.place]
            self._spend(cost)
            return value
        before = self._spent
        try:
            value = self.value(slot.value, (*chain, slot))
        except ProfileError as error:
            raise told(slot.name, error) from None
        self._known[slot.place] = value, self._spent - before
        return value

    def value(self, value: Any, chain: tuple[Slot, ...]) -> Any:
        self._spend(_NODE)
        if isinstance(value, dict):
            return {name: _plain(self.value(entry, chain)) for name, entry in value.items()}
        if isinstance(value, list):
            return [_plain(self.value(entry, chain)) for entry in value]
        return self._text(value, chain) if isinstance(value, str) else value

    def _text(self, text: str, chain: tuple[Slot, ...]) -> Any:
        parts = parse_template(text)
        if len(parts) == 1:
            return self._part(parts[0], chain)
        return "".join(text_of(self._part(part, chain)) for part in parts)

    def _spend(self, cost: int) -> None:
        self._spent += cost
        if self._spent > _LARGEST:
            raise ProfileError(f"the parameters of one element become longer than {_LARGEST} characters")

    def _part(self, part: Part, chain: tuple[Slot, ...]) -> Any:
        if isinstance(part, Reference):
            value = self._reference(part, chain)
        elif isinstance(part, Lookup):
            value = self._lookup(part, chain)
        elif isinstance(part, Calculation):
            value = evaluate(part.expression, partial(self._operand, chain))
        else:
            value = part
        self._spend(len(value) if isinstance(value, str) else 1)
        return value

    def _operand(self, chain: tuple[Slot, ...], text: str, quoted: bool) -> Any:  # noqa: FBT001 - evaluate's
        value = self._text(text, chain)
        return text_of(value) if quoted else value_of(value)

    def _lookup(self, lookup: Lookup, chain: tuple[Slot, ...]) -> Any:
        if not known_lookup(lookup, self.names.variables):
            argument = text_of(self._text(lookup.argument, chain))
            return f"{{{lookup.head}:{argument}}}" if "{" in lookup.argument else lookup.raw
        return self.names.variables.look_up(lookup.head, text_of(self._text(lookup.argument, chain)))

    def _reference(self, reference: Reference, chain: tuple[Slot, ...]) -> Any:
        found = self.names.find(reference, chain)
        value = self.names.variables.value(found) if isinstance(found, str) else self.slot(found, chain)
        if reference.unit_s is None:
            return value
        try:
            seconds = value.total_seconds() if isinstance(value, timedelta) else parse_timespan(value)
        except (ProfileError, AttributeError, TypeError):
            raise ProfileError(
                f"{reference.raw}: the value of {reference.name} is not a time span",
                remedy="write it hh:mm:ss or d.hh:mm:ss",
            ) from None
        count = seconds / reference.unit_s
        return int(count) if count.is_integer() else count


def known_lookup(lookup: Lookup, variables: Variables) -> bool:
    """Return True if ``{head:name}`` is an expression; otherwise it is a text with braces.

    Raises:
        ProfileError: if the head is misspelt.
    """
    if variables.is_lookup(lookup.head):
        return True
    if close := nearest(lookup.head, variables.lookup_names, 1):
        raise ProfileError(f"{lookup.raw} refers to nothing", remedy=f"did you mean {{{close[0]}:…}}?")
    return False


def _plain(value: Any) -> Any:
    return format_timespan(value) if isinstance(value, timedelta) else value
