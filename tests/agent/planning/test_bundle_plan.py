"""With a bundle, a component is refused if its steps would download anything that the bundle lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.component.component import Action, ComponentParameters, Dependency, Plan, Step
from agent.component.downloads import Download
from agent.core.errors import HostError, LiftedBy
from agent.facts import Facts
from agent.facts.bundle import BUNDLE, Bundle
from agent.planning.planner import _plan_with_bundle

WITH_BUNDLE = Facts(None, {BUNDLE: Bundle(Path("/stick"), "debian-12-x64", frozenset({("deb", "there")}))})
STEP = Plan((Step("step", "a reason", lambda _: None),))


class Installing(Dependency):
    """Installs packages, in a way that a test chooses."""

    def __init__(self, *names: str, plan: Plan | HostError = STEP) -> None:
        super().__init__(ComponentParameters())
        self.names, self.planned = names, plan

    def downloads(self, facts: Facts) -> tuple[Download, ...]:
        assert facts is WITH_BUNDLE
        return (Download("deb", self.names, lambda _fetching: None),)

    def plan(self, facts: Facts) -> Plan:
        if isinstance(self.planned, HostError):
            raise self.planned
        return self.planned


class Unknown(Dependency):
    """Does not say what it downloads."""

    def plan(self, facts: Facts) -> Plan:
        return STEP


class Working(Action):
    """Downloads nothing."""

    def plan(self, facts: Facts) -> Plan:
        return STEP


def test_a_bundle_with_everything() -> None:
    assert _plan_with_bundle(Installing("there"), WITH_BUNDLE) is STEP
    assert _plan_with_bundle(Working(ComponentParameters()), WITH_BUNDLE) is STEP


def test_what_is_missing_is_named_and_cannot_be_lifted() -> None:
    with pytest.raises(HostError, match="the bundle /stick lacks deb gone, deb away") as caught:
        _plan_with_bundle(Installing("there", "gone", "away"), WITH_BUNDLE)
    assert caught.value.lifted_by is LiftedBy.NOTHING
    assert caught.value.exit_code == 4
    assert "--platform debian-12-x64" in str(caught.value.remedy)


def test_a_component_that_nobody_can_bundle_is_refused() -> None:
    with pytest.raises(HostError, match="a bundle cannot carry what Unknown downloads yet"):
        _plan_with_bundle(Unknown(ComponentParameters()), WITH_BUNDLE)


def test_nothing_is_missing_where_there_is_nothing_to_do_or_a_network() -> None:
    done = Plan(nothing_to_do="it is installed")
    assert _plan_with_bundle(Installing("gone", plan=done), WITH_BUNDLE) is done
    assert _plan_with_bundle(Installing("gone"), Facts(None)) is STEP


def test_a_refusal_that_may_be_lifted_later_hides_nothing() -> None:
    later = HostError("Docker does not answer", lifted_by=LiftedBy.DOCKER)
    with pytest.raises(HostError, match="lacks deb gone"):
        _plan_with_bundle(Installing("gone", plan=later), WITH_BUNDLE)
    with pytest.raises(HostError, match="Docker does not answer"):
        _plan_with_bundle(Installing("there", plan=later), WITH_BUNDLE)
