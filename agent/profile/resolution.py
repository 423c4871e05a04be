"""The values of an element's parameters once every reference and expression is replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.profile.schema import Element, Profile
    from agent.profile.variables import Variables

__all__ = ["resolve", "settle"]


def settle(profile: Profile, variables: Variables) -> Profile:
    """The profile with ``ParametersOn`` decided: the first true condition of each source sets its parameters.

    ``resolve`` and ``check`` do it by themselves; a profile without conditions is returned as it is.
    """
    raise NotImplementedError


def resolve(element: Element, profile: Profile, variables: Variables) -> dict[str, Any]:
    """An element's parameters (its own, not its components') with every reference and expression resolved.

    Raises:
        VariableUnavailableError: if the host does not have something now.
        ProfileError: if a reference leads nowhere or in a circle, or an expression fails.
    """
    raise NotImplementedError
