"""Which elements of a profile are run: those asked for by scenario, those meant for this host."""

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
"""Why an element is skipped that the profile's own parameters leave out."""

_OFF = frozenset({"false", "no", "off", "0", "n", "f"})
"""As pydantic reads them."""

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
    """The profile with the elements that ``--scenarios a,-b`` leaves.

    A name alone keeps the actions of that scenario and drops the others; ``-name`` drops actions,
    dependencies and monitors of that scenario; one that is both named and excluded stays (as in
    VirtualClient). A group stays with the members that are left; to name a group is to name all of them.

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
        """What is left of an element; ``named`` says that a group around it was asked for."""
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
        # It depends on what the host does not have now: then its text names it.
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
    """Why an element is not meant for a host, or None where it is.

    ``SupportedPlatforms``, ``SupportedLinuxDistributions`` and ``Role`` are looked for among the parameters
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
