"""Which elements of a profile are run: those asked for by scenario, those meant for this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from agent.profile.schema import Element, Profile
    from agent.profile.variables import Variables

__all__ = ["applies_to", "select"]


def select(profile: Profile, scenarios: str, variables: Variables | None = None) -> Profile:
    """The profile with the elements that ``--scenarios a,-b`` leaves.

    A name alone keeps the actions of that scenario and drops other actions; ``-name`` drops actions,
    dependencies and monitors of that scenario; a scenario that is both named and excluded stays.

    Raises:
        UsageError: if no element has such a scenario, with the nearest.
    """
    raise NotImplementedError


def applies_to(
    element: Element,
    platform: str,
    distribution: str = "",
    *,
    role: str = "",
    parameters: Mapping[str, Any] | None = None,
) -> str | None:
    """Why an element is not meant for a host, or None where it is.

    Args:
        element: the element.
        platform: such as ``linux-x64``.
        distribution: such as ``ubuntu``; empty if not known.
        role: the host's role in a client/server layout; empty for none.
        parameters: the element's parameters as resolved; as written if not given.
    """
    raise NotImplementedError
