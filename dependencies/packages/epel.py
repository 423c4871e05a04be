"""EPEL, which has dkms for distributions without it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from agent.component.component import Step, StepContext, StepOutcome
from agent.core.errors import HostError
from agent.facts.linux import DISTRIBUTION
from agent.facts.packages import INSTALLED_PACKAGES
from agent.facts.rpm_offers import rpm_driver_offers
from dependencies.packages.dnf import dnf_install, run_dnf

if TYPE_CHECKING:
    from agent.facts import Facts

_EPEL = "https://dl.fedoraproject.org/pub/epel"


def epel_steps(
    facts: Facts, lock_timeout_s: float, *, vendor: str, allowed: bool = True, otherwise: str = ""
) -> list[Step]:
    """Return the steps that make dkms known to dnf; empty if it is installed or offered.

    Args:
        facts: the host.
        lock_timeout_s: seconds to wait for another package manager.
        vendor: whose driver needs it.
        allowed: whether repositories may be added.
        otherwise: another remedy, for the refusal.

    Raises:
        HostError: if nobody here offers it.
    """
    offered = {offer.name for offer in rpm_driver_offers(facts)}
    known = facts[INSTALLED_PACKAGES]
    if "dkms" in offered or ("dkms" in known and known["dkms"].installed):
        return []
    if facts[DISTRIBUTION].id == "fedora":
        raise HostError(
            "the driver's module is built by dkms, which Fedora's own repository has, and it is not enabled",
            remedy="enable it (dnf config-manager setopt fedora.enabled=1 updates.enabled=1), then run again",
        )
    release = next((name for name in sorted(offered) if "epel-release" in name), "")
    number = facts[DISTRIBUTION].version.partition(".")[0]
    if not release or not allowed:
        by_hand = release or f"{_EPEL}/epel-release-latest-{number}.noarch.rpm"
        raise HostError(
            "the driver's module is built by dkms, and no repository of this host has dkms: EPEL has it",
            remedy=f"dnf install {by_hand}, then run again{otherwise}",
        )
    command = dnf_install("dnf", [(release, None)])

    def run(context: StepContext) -> StepOutcome:
        run_dnf(context, command, lock_timeout_s)
        return StepOutcome("EPEL is known")

    def holds(after: Facts) -> bool:
        return any(offer.name == "dkms" for offer in rpm_driver_offers(after))

    reason = f"the driver's module is built by dkms, which neither the distribution nor {vendor} has"
    return [Step("epel", reason, run, shlex.join(command), holds)]
