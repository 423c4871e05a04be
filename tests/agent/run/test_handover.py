"""A step leaves something running: the next step takes it over, and anything else ends it."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import pytest

from agent.component import registry
from agent.component.component import Action, ComponentParameters, Plan, Step, StepContext, StepOutcome
from agent.component.handover import Handover, LeftRunning
from agent.core.errors import ActionFailedError, InterruptedRunError
from agent.core.names import canonical
from agent.core.progress import RunProgress
from agent.run.session import resume

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent.facts import Facts
    from agent.run.session import FinishedRun

EVENTS: list[str] = []

pytestmark = pytest.mark.usefixtures("without_facts")


def thing(key: str, *, dead: bool = False) -> LeftRunning:
    EVENTS.append(f"start {key}")
    return LeftRunning(key, key, key, lambda: EVENTS.append(f"stop {key}"), lambda: "gone" if dead else None)


class SharingParameters(ComponentParameters):
    key: str = "a"
    fails: bool = False
    stops: bool = False


class Sharing(Action):
    """Uses something that runs, and leaves it."""

    Parameters = SharingParameters
    parameters: SharingParameters

    def plan(self, facts: Facts) -> Plan:
        asked = self.parameters

        def use(context: StepContext) -> StepOutcome:
            assert context.handover is not None
            running = context.handover.take(asked.key) or thing(asked.key)
            EVENTS.append(f"use {asked.key}")
            if asked.fails or asked.stops:
                running.stop()
                raise ActionFailedError("it broke") if asked.fails else InterruptedRunError("Ctrl-C")
            context.handover.leave(running)
            return StepOutcome()

        return Plan((Step("use", "it is wanted", use, takes_over=True),))


@pytest.fixture(autouse=True)
def _types() -> Iterator[None]:
    EVENTS.clear()
    registry._registered()[canonical("Sharing")] = EntryPoint(
        "Sharing", f"{__name__}:Sharing", registry.COMPONENT_GROUP
    )
    yield
    registry._registered.cache_clear()


def sharing(key: str = "a", **parameters: Any) -> dict[str, Any]:
    return {"type": "Sharing", "parameters": {"key": key, **parameters}}


OTHER = {"type": "Measuring"}


@pytest.mark.parametrize(
    ("actions", "events"),
    [
        ([sharing(), sharing()], ["start a", "use a", "use a", "stop a"]),
        ([sharing(), sharing("b")], ["start a", "use a", "stop a", "start b", "use b", "stop b"]),
        ([sharing(), OTHER, sharing()], ["start a", "use a", "stop a", "start a", "use a", "stop a"]),
        (
            [{"type": "SequentialExecution", "components": [sharing()]}, sharing()],
            ["start a", "use a", "stop a", "start a", "use a", "stop a"],
        ),
        (
            [sharing(), sharing(fails=True), sharing()],
            ["start a", "use a", "use a", "stop a", "start a", "use a", "stop a"],
        ),
        ([sharing(), sharing(stops=True)], ["start a", "use a", "use a", "stop a"]),
    ],
    ids=["equal", "different", "another action between", "end of the group", "failure", "Ctrl-C"],
)
def test_a_run_hands_over_and_ends(
    run_profile: Callable[..., FinishedRun], actions: list[dict[str, Any]], events: list[str]
) -> None:
    run_profile({"Actions": actions})
    assert EVENTS == events  # noqa: SIM300 - not a constant


def test_each_round_begins_anew(run_profile: Callable[..., FinishedRun]) -> None:
    run_profile({"Actions": [sharing(), sharing()]}, iterations=2)
    assert EVENTS == ["start a", "use a", "use a", "stop a"] * 2


def test_a_resume_goes_on_at_the_next_step(run_profile: Callable[..., FinishedRun], tmp_path: Path) -> None:
    finished = run_profile({"Actions": [sharing(), sharing(stops=True), sharing()]})
    EVENTS.clear()
    resume(tmp_path / "results", finished.run_dir.name, RunProgress())
    assert EVENTS == ["start a", "use a", "stop a"]  # the second action stops it again


def test_what_died_or_was_replaced_is_ended() -> None:
    handover = Handover()
    handover.leave(thing("a", dead=True))
    assert handover.take("a") is None
    handover.leave(thing("b"))
    handover.leave(thing("c"))
    handover.end()
    handover.end()
    assert EVENTS == ["start a", "stop a", "start b", "start c", "stop b", "stop c"]
