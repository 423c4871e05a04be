"""Selects the elements of a profile to run: by scenario, and by host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.core.errors import ProfileError, UsageError
from agent.core.names import canonical, did_you_mean
from agent.profile.resolution import resolve_one
from agent.profile.schema import GROUPS
from agent.profile.values import text_of
from agent.profile.variables import Variables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.profile.schema import Element, Profile

SWITCHED_OFF = "switched off (enabled: false)"
"""Reason for skipping an element that the profile's own parameters disable."""

_OFF = frozenset({"false", "no", "off", "0", "n", "f"})
"""Truth values as in pydantic."""

_DISTRIBUTIONS = {
    "azlinux": "azurelinux",
    "mariner": "azurelinux",
    "amzn": "amazonlinux",
    "amazon": "amazonlinux",
    "rhel": "redhat",
    "redhatenterpriselinux": "redhat",
    "sles": "suse",
    "opensuseleap": "opensuse",
}


def select(profile: Profile, scenarios: str, variables: Variables | None = None) -> Profile:
    """Return the profile with the elements that ``--scenarios a,-b`` selects.

    A name alone keeps the actions of that scenario and drops the others; ``-name`` drops actions,
    dependencies and monitors of that scenario; one that is both named and excluded stays (as in
    VirtualClient). A group keeps its remaining members; naming a group selects all of them.

    Args:
        profile: the profile.
        scenarios: names separated by commas; empty for all.
        variables: for scenarios that are written as expressions.

    Raises:
        UsageError: if no element has such a scenario, with the nearest.
    """
    names = [name.strip() for name in scenarios.split(",") if name.strip()]
    included = {name.lower() for name in names if not name.startswith("-")}
    excluded = {name[1:].strip().lower() for name in names if name.startswith("-")} - included
    if not names:
        return profile

    def scenario(element: Element) -> str:
        return _scenario(element, profile, variables or Variables())

    actions = {scenario(element) for action in profile.actions for element in action.walk()}
    known = {scenario(element) for element in profile.elements()}
    for name in names:
        candidates = known if name.startswith("-") else actions
        if name.removeprefix("-").strip().lower() not in {candidate.lower() for candidate in candidates}:
            raise UsageError(
                f"--scenarios: the profile has no scenario '{name.removeprefix('-')}'",
                remedy=did_you_mean(name.removeprefix("-"), candidates - {""}),
            )
    keep_others = _Filter(set(), excluded, scenario)
    return replace(
        profile,
        actions=_Filter(included, excluded, scenario).all(profile.actions),
        dependencies=keep_others.all(profile.dependencies),
        monitors=keep_others.all(profile.monitors),
    )


class _Filter:
    def __init__(self, included: set[str], excluded: set[str], scenario: Callable[[Element], str]) -> None:
        self.included = included
        self.excluded = excluded
        self.scenario = scenario

    def all(self, elements: tuple[Element, ...], *, named: bool = False) -> tuple[Element, ...]:
        kept = (self.one(element, named=named) for element in elements)
        return tuple(element for element in kept if element is not None)

    def one(self, element: Element, *, named: bool) -> Element | None:
        """Return the remaining part of an element; ``named`` is True if an enclosing group was selected."""
        scenario = self.scenario(element).lower()
        if scenario in self.excluded:
            return None
        named = named or not self.included or scenario in self.included
        if element.type not in GROUPS:
            return element if named else None
        components = self.all(element.components, named=named)
        return replace(element, components=components) if components else None


def _scenario(element: Element, profile: Profile, variables: Variables) -> str:
    try:
        return text_of(resolve_one("Scenario", element, profile, variables))
    except ProfileError:
        # It depends on a value that the host does not have now: use its text.
        texts = {canonical(name): str(text) for name, text in element.parameters.items()}
        return texts.get("scenario", "")


def applies_to(
    element: Element,
    platform: str,
    distribution: str = "",
    *,
    role: str = "",
    parameters: Mapping[str, Any] | None = None,
) -> str | None:
    """Return the reason why an element does not apply to a host, or None if it applies.

    ``SupportedPlatforms``, ``SupportedLinuxDistributions`` and ``Role`` are searched in the parameters
    first, then in the metadata; ``Enabled`` is a parameter.

    Args:
        element: the element.
        platform: such as ``linux-x64``.
        distribution: such as ``ubuntu``; empty if not known.
        role: the host's role in a client/server layout; empty for none.
        parameters: the element's parameters as resolved; as written if not given.
    """
    given = {
        canonical(name): value
        for name, value in (element.parameters if parameters is None else parameters).items()
    }
    if str(given.get("enabled", "")).strip().lower() in _OFF:
        return SWITCHED_OFF
    settings = {**{canonical(name): value for name, value in element.metadata.items()}, **given}

    def listed(name: str) -> list[str]:
        value = settings.get(canonical(name))
        entries = value if isinstance(value, list) else str(value or "").split(",")
        return [str(entry).strip() for entry in entries if str(entry).strip()]

    platforms = listed("SupportedPlatforms")
    if platforms and canonical(platform) not in map(canonical, platforms):
        return f"meant for {', '.join(platforms)}; this host is {platform}"
    distributions = listed("SupportedLinuxDistributions")
    if (
        distributions
        and distribution
        and _distribution(distribution) not in map(_distribution, distributions)
    ):
        return f"meant for {', '.join(distributions)}; this host has {distribution}"
    roles = listed("Role")
    if roles and role and role.lower() not in map(str.lower, roles):
        return f"meant for the role {', '.join(roles)}; this host is {role}"
    return None


def _distribution(name: str) -> str:
    plain = canonical(name).replace(" ", "").rstrip("0123456789.")
    return _DISTRIBUTIONS.get(plain, plain)
