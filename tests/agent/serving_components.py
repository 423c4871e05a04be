"""A service that sleeps, and an action that checks whether it runs; both write their actions to a file."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from agent.component import registry
from agent.component.component import (
    Action,
    ComponentParameters,
    Plan,
    Service,
    ServiceAction,
    Step,
    StepContext,
    StepOutcome,
)
from agent.core.errors import ActionFailedError
from agent.core.names import canonical

if TYPE_CHECKING:
    from agent.facts import Facts


class SleepingParameters(ComponentParameters):
    note: str
    fails: bool = False


class Sleeping(ServiceAction):
    """Serves with a process that sleeps; writes its starts and stops to a file."""

    Parameters = SleepingParameters
    parameters: SleepingParameters

    def plan(self, facts: Facts) -> Plan:
        return Plan((Step("serve", "it is asked", self._serve),))

    def _serve(self, context: StepContext) -> StepOutcome:
        if self.parameters.fails:
            raise ActionFailedError("the port is taken", remedy="free it")
        process = context.processes.start(["sleep", "600"], log=context.log)
        name, note = self.parameters.scenario, Path(self.parameters.note)

        def told(what: str) -> None:
            with note.open("a") as file:
                file.write(f"{what} {name}\n")

        def stop() -> None:
            process.stop()
            told("stop")

        def death() -> str | None:
            return None if process.poll() is None else "was killed\nits last word"

        told("start")
        return StepOutcome(f"pid {process.pid}", service=Service(name, {"pid": process.pid}, stop, death))


class AskingParameters(ComponentParameters):
    note: str
    service: str
    kills: bool = False
    fails_once: str = ""


class Asking(Action):
    """Checks whether a service runs; may kill it."""

    Parameters = AskingParameters
    parameters: AskingParameters

    def plan(self, facts: Facts) -> Plan:
        return Plan((Step("ask", "to know", self._ask),))

    def _ask(self, context: StepContext) -> StepOutcome:
        parameters = self.parameters
        process = psutil.Process(int(context.service(parameters.service)["pid"]))
        with Path(parameters.note).open("a") as file:
            file.write(f"ask {parameters.service} {process.status() != psutil.STATUS_ZOMBIE}\n")
        if parameters.kills:
            process.kill()
            process.wait(10)
        if parameters.fails_once and not Path(parameters.fails_once).exists():
            Path(parameters.fails_once).touch()
            raise ActionFailedError("the first time it fails", remedy="again")
        return StepOutcome("it lives")


def register() -> None:
    """Register the types in this process."""
    known = registry._registered()
    for cls in (Sleeping, Asking):
        known[canonical(cls.__name__)] = EntryPoint(
            cls.__name__, f"tests.agent.serving_components:{cls.__name__}", registry.COMPONENT_GROUP
        )
