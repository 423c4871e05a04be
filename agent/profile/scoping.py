"""Resolves a name in an expression to a parameter (element, source, profile) or to a variable."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.core.errors import ProfileError
from agent.core.names import canonical, nearest
from agent.core.secret_shapes import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.profile.schema import Element, Location, Profile, Scope
    from agent.profile.template import Reference
    from agent.profile.variables import Variables

MAXIMUM_CHAIN = 30
"""Longest chain of parameters that refer to each other."""

TOO_DEEP = "expressions are nested too deeply, counting those that they refer to"
"""The message if Python's own stack overflows."""


class Slot(NamedTuple):
    """A parameter with a value, found by name.

    Args:
        layer: 0 the element's own, 1 an enclosing group's, 2 its source's, 3 the merged profile's.
        name: as declared.
        value: as written.
    """

    layer: int
    name: str
    value: Any

    @property
    def place(self) -> tuple[int, str]:
        """Identity of a slot."""
        return self.layer, canonical(self.name)

    def __str__(self) -> str:
        """Return the slot in the form of a reference."""
        return f"$.Parameters.{self.name}" if self.layer else f"{{{self.name}}}"


class Names:
    """The names that the expressions of one element may use.

    A name refers to the element's own parameter first, wherever the expression is (as in VirtualClient, which
    copies the profile's parameters into the element). A parameter that names itself refers to the next layer:
    ``Threads: "{Threads}"`` passes the profile's parameter on.

    Args:
        own: the element's parameters.
        scope: its source's.
        profile: the whole profile.
        variables: the host's and the run's.
        given: values from an enclosing group.
    """

    def __init__(
        self,
        own: Mapping[str, Any],
        scope: Scope,
        profile: Profile,
        variables: Variables,
        given: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.variables = variables
        self.scope = scope
        self._layers: list[dict[str, Slot]] = [
            {canonical(name): Slot(layer, name, value) for name, value in parameters.items()}
            for layer, parameters in enumerate((own, given, scope.parameters, profile.parameters))
        ]

    @classmethod
    def of(cls, element: Element, profile: Profile, variables: Variables) -> Names:
        """Return the names for an element's expressions."""
        return cls(element.parameters, profile.scope_of(element), profile, variables, element.given)

    def own(self) -> Iterator[Slot]:
        """Yield the element's own parameters."""
        yield from self._layers[0].values()

    def find(self, reference: Reference, chain: tuple[Slot, ...]) -> Slot | str:
        """Return the target of a reference: a parameter, or the name of a variable.

        Args:
            reference: the reference.
            chain: the parameters that led here; the last holds the reference.

        Raises:
            ProfileError: if it does not exist, or leads back into the chain.
        """
        wanted = canonical(reference.name)
        first = 1 if reference.declared else 0
        itself = bool(chain) and canonical(chain[-1].name) == wanted
        if itself:
            first = max(first, chain[-1].layer + 1)
        for layer in self._layers[first:]:
            if slot := layer.get(wanted):
                # The merged profile has the same parameters again; they are not another layer.
                if itself and chain[-1].layer and slot.value == chain[-1].value:
                    continue
                self._check_chain(slot, chain)
                return slot
        if not reference.declared and reference.name in self.variables:
            return reference.name
        if itself:
            raise ProfileError(f"{chain[-1].name} refers to itself: {reference.raw}")
        raise ProfileError(f"{reference.raw} refers to nothing", remedy=self._remedy(reference))

    def location(self, slot: Slot, element: Element | None) -> tuple[Location | None, str]:
        """Return the place where a parameter was declared, and its key."""
        if slot.layer == 0 and element is not None:
            return element.where(slot.name), f"{element.key}.parameters.{slot.name}"
        return self.scope.locations.get(slot.name), f"parameters.{slot.name}"

    def _check_chain(self, slot: Slot, chain: tuple[Slot, ...]) -> None:
        places = [link.place for link in chain]
        if slot.place in places:
            circle = [*chain[places.index(slot.place) :], slot]
            raise ProfileError(f"parameters refer to each other in a circle: {' → '.join(map(str, circle))}")
        if len(chain) >= MAXIMUM_CHAIN:
            raise ProfileError(f"more than {MAXIMUM_CHAIN} parameters refer to each other in a row")

    def _remedy(self, reference: Reference) -> str:
        layers = self._layers[1:] if reference.declared else self._layers
        known = [slot.name for layer in layers for slot in layer.values()]
        if not reference.declared:
            known += self.variables
        if close := nearest(reference.name, known):
            return f"did you mean {' or '.join(close)}?"
        if reference.declared:
            return f"declare {reference.name} under Parameters"
        return f"declare a parameter of that name; for the text itself, write a backslash: \\{reference.raw}"


def told(name: str, error: ProfileError) -> ProfileError:
    """Return an error without the text of a secret parameter."""
    if is_secret_name(name):
        return type(error)("its expression cannot be resolved; the text is *** by its name")
    return error
