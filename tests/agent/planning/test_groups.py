"""Groups and their services: order, keys in the journal, what ends when, and what may be lifted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from agent.component.component import Dependency, Service
from agent.core.errors import ActionFailedError, HostError, LiftedBy, ProfileError
from agent.planning.groups import GroupParameters, PlannedGroup, is_group
from agent.planning.planner import PlannedComponent, Standing, _may_be_lifted
from agent.planning.services import GroupServices
from agent.profile import Element

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.component import Component


def group(kind: str, **parameters: Any) -> PlannedGroup:
    element = Element("action", kind, "actions[1]")
    return PlannedGroup.of(element, GroupParameters.model_validate(parameters), "both")


@pytest.mark.parametrize(
    ("kind", "parameters", "order", "loops", "scopes"),
    [
        ("SequentialExecution", {}, "one after the other", 1, ["outer:actions[1]@1:"]),
        (
            "SequentialExecution",
            {"LoopCount": 2, "MinimumIterations": 5, "Duration": 9},
            "2 times, one after the other",
            2,
            ["outer:actions[1]@1:", "outer:actions[1]@2:"],
        ),
        ("ParallelExecution", {"LoopCount": 3, "MinimumIterations": 3}, "at the same time", 1, ["outer:"]),
        (
            "ParallelLoopExecution",
            {"Duration": "00:01:30", "LoopCount": 9},
            "at the same time, each repeated for 1 min 30 s",
            1,
            ["outer:actions[1]@1:"],
        ),
        (
            "ParallelLoopExecution",
            {"MinimumIterations": 2},
            "at the same time, each repeated, at least 2 times",
            2,
            ["outer:actions[1]@1:", "outer:actions[1]@2:"],
        ),
    ],
)
def test_a_group_has_an_order_and_keys_for_its_loops(
    kind: str, parameters: Mapping[str, Any], order: str, loops: int, scopes: list[str]
) -> None:
    planned = group(kind, **parameters)
    assert (planned.order, planned.loops, planned.scenario) == (order, loops, "both")
    assert planned.scopes("outer:") == scopes
    assert is_group(planned.element)
    assert not is_group(Element("action", "ExecuteCommand", "actions[0]"))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"LoopCount": 0}, "greater than or equal to 1"),
        ({"MinimumIterations": 0}, "greater than or equal to 1"),
        ({"Duration": -1}, "greater than or equal to 0"),
        ({"Duration": "soon"}, "soon"),
    ],
)
def test_wrong_parameters_of_a_group_are_named(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GroupParameters.model_validate(parameters)


def test_a_component_repeats_as_often_as_all_its_groups_together() -> None:
    groups = (group("SequentialExecution", LoopCount=2), group("ParallelLoopExecution", MinimumIterations=3))
    component = PlannedComponent(Element("action", "X", "a"), Standing.PLANNED, groups=groups)
    assert component.repeats == 6
    assert PlannedComponent(Element("action", "X", "a"), Standing.PLANNED).repeats == 1


class Started:
    """Services that note when they are stopped."""

    def __init__(self) -> None:
        self.stopped: list[str] = []

    def service(self, name: str, death: str | None = None, relaunch: Any = None) -> Service:
        return Service(name, {}, lambda: self.stopped.append(name), lambda: death, relaunch)


def test_the_services_of_a_group_end_in_reverse_order_and_dead_ones_are_told() -> None:
    started, running = Started(), {}
    running["outer"] = started.service("outer")
    services = GroupServices(running)
    services.add("k1", started.service("a"))
    services.add("k2", started.service("b", death="was killed\nlast words\nmore"))
    services.add("k3", started.service("c"))
    assert set(running) == {"outer", "a", "b", "c"}
    ((key, error),) = services.end()
    assert started.stopped == ["c", "b", "a"]
    assert set(running) == {"outer"}
    assert (key, error.message) == ("k2", "b was killed before its group was done")
    assert error.details == ("last words", "more")
    assert error.remedy == "see its log; later elements of its group may have failed because of it"
    assert services.end() == []
    assert started.stopped == ["c", "b", "a"]


def test_a_second_service_of_a_name_is_stopped_and_the_first_stays() -> None:
    started, running = Started(), {}
    services = GroupServices(running)
    first = started.service("a")
    services.add("k1", first)
    second = Service("a", {}, lambda: started.stopped.append("second"), lambda: None)
    with pytest.raises(ActionFailedError, match=r"^a service named a runs already") as refused:
        services.add("k2", second)
    assert refused.value.remedy == "give each a scenario of its own"
    assert started.stopped == ["second"]
    assert running == {"a": first}
    services.end()
    assert started.stopped == ["second", "a"]


def test_the_last_service_is_the_last_that_runs_and_may_stay() -> None:
    started = Started()
    services = GroupServices({})
    assert services.last is None
    relaunch: Any = object()
    services.add("k1", started.service("a", relaunch=relaunch))
    wanted = started.service("b", relaunch=relaunch)
    services.add("k2", wanted)
    services.add("k3", started.service("c", death="ended", relaunch=relaunch))
    services.add("k4", started.service("d"))
    assert services.last is wanted


class Lifting(Dependency):
    """Brings a driver."""

    lifts = frozenset({LiftedBy.DRIVER})


class Powerless(Dependency):
    """Brings nothing."""

    lifts = frozenset()


@pytest.mark.parametrize(
    ("error", "pending", "refused", "may"),
    [
        (HostError("x", lifted_by=LiftedBy.DRIVER), [Lifting], [], True),
        (HostError("x", lifted_by=LiftedBy.DRIVER), [], [Lifting], True),
        (HostError("x", lifted_by=LiftedBy.DRIVER), [Powerless], [], False),
        (HostError("x", lifted_by=LiftedBy.DRIVER), [], [], False),
        (HostError("x", lifted_by=LiftedBy.NOTHING), [Lifting], [Lifting], False),
        (HostError("x"), [Powerless], [], True),
        (HostError("x"), [], [Lifting], False),
        (ProfileError("x"), [Lifting], [], True),
        (ProfileError("x"), [], [], False),
    ],
)
def test_a_refusal_is_lifted_by_what_brings_what_is_missing(
    error: Any, pending: list[type[Component]], refused: list[type[Component]], *, may: bool
) -> None:
    assert _may_be_lifted(error, pending, refused) is may
