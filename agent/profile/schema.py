"""The data of a profile after reading: plain values with line numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KINDS: Mapping[str, str] = MappingProxyType(
    {"dependency": "Dependencies", "action": "Actions", "monitor": "Monitors"}
)
"""The kinds of elements, with the profile's key for each."""

GROUPS = frozenset({"SequentialExecution", "ParallelExecution", "ParallelLoopExecution"})
"""The types that run other elements; only they have ``Components``."""


@dataclass(frozen=True)
class Location:
    """A place in a profile's text.

    Args:
        source: the file, or the URI without credentials.
        line: counted from 1; None for the source as a whole.
    """

    source: str
    line: int | None = None

    def __str__(self) -> str:
        """Return ``file:line``."""
        return self.source if self.line is None else f"{self.source}:{self.line}"


@dataclass(frozen=True)
class Element:
    """One entry of a profile's dependencies, actions or monitors.

    Args:
        kind: ``dependency``, ``action`` or ``monitor``.
        type: the component's type, as written; a group's as in ``GROUPS``.
        key: its place: ``actions[2]``, or ``actions[1].components[0]`` in a group. In a merged
            profile the numbers count through all sources.
        parameters: as written; expressions are not resolved.
        metadata: as written.
        components: the members of a group.
        location: the line that the element begins at.
        parameter_locations: the line of each parameter, under the name as written.
        scope: index into ``Profile.scopes`` for its references.
        given: values that an enclosing group sets for its expressions (``ForEach``).
    """

    kind: str
    type: str
    key: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    components: tuple[Element, ...] = ()
    location: Location = field(default=Location("?"))
    parameter_locations: Mapping[str, Location] = field(default_factory=dict)
    scope: int = 0
    given: Mapping[str, Any] = field(default_factory=dict)

    def walk(self) -> Iterator[Element]:
        """Yield this element and all below it, in the order of the text."""
        yield self
        for component in self.components:
            yield from component.walk()

    def where(self, parameter: str) -> Location:
        """Return the line of a parameter, or of the element if the parameter's own is unknown."""
        return self.parameter_locations.get(parameter, self.location)


@dataclass(frozen=True)
class Condition:
    """One entry of ``ParametersOn``: parameters that apply if a condition is true.

    Args:
        expression: the condition, an expression that gives true or false.
        parameters: the parameters that it sets.
        location: the line of the entry.
        key: its place: ``parameterson[0]``.
    """

    expression: Any
    parameters: Mapping[str, Any]
    location: Location
    key: str


@dataclass(frozen=True)
class Scope:
    """The parameters that one source declares; its elements see them before those of other sources.

    Args:
        parameters: values after overrides; expressions are not resolved.
        locations: the line of each parameter.
        conditions: entries of ``ParametersOn`` that are not evaluated yet, in order.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    locations: Mapping[str, Location] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Profile:
    """One profile, or several merged in order.

    Args:
        name: the first source's name without its extension; is used in telemetry.
        description: the first source's.
        metadata: from all sources; the command line takes precedence, then the first source that sets a key.
        parameters: from all sources, after overrides; the first source that declares a name takes precedence.
            Expressions are not resolved.
        minimum_execution_interval_s: shortest time from the start of one action to the next, in seconds.
        minimum_required_execution_time_s: a shorter timeout is refused, in seconds.
        dependencies: requirements on the host, in order.
        actions: actions to run, in order.
        monitors: measurements during the actions.
        sources: the files and URIs of its text.
        scopes: one for each source, in the same order.
        sinks: where records go besides the run's folder, as ``--sink`` takes them.
    """

    name: str
    description: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    minimum_execution_interval_s: float | None = None
    minimum_required_execution_time_s: float | None = None
    dependencies: tuple[Element, ...] = ()
    actions: tuple[Element, ...] = ()
    monitors: tuple[Element, ...] = ()
    sources: tuple[str, ...] = ()
    scopes: tuple[Scope, ...] = ()
    sinks: tuple[str, ...] = ()

    def elements(self) -> Iterator[Element]:
        """Yield every element, groups and their members included: dependencies, actions, monitors."""
        for element in (*self.dependencies, *self.actions, *self.monitors):
            yield from element.walk()

    def scope_of(self, element: Element) -> Scope:
        """Return the parameters of the element's source."""
        if element.scope < len(self.scopes):
            return self.scopes[element.scope]
        return Scope(self.parameters)
