"""Component types for tests of the engine, registered in addition to the installed ones."""

import time
from importlib.metadata import EntryPoint

from pydantic import Field

from agent.component import registry
from agent.component.component import (
    Action,
    ComponentParameters,
    Dependency,
    Monitor,
    MonitorContext,
    Plan,
    Step,
    StepContext,
    StepOutcome,
)
from agent.core.errors import HostError
from agent.core.names import canonical
from agent.core.records import Metric, ParsedOutput, Reason, Validity, Verdict
from agent.facts import Facts


class MeasuringParameters(ComponentParameters):
    metric: str = "answer"
    value: float = 42.0
    validity: str = "VALID"
    steps: int = 1
    api_key: str = ""
    seconds: float = 0


class Measuring(Action):
    """Yields one metric per step, which lasts for the given time."""

    Parameters = MeasuringParameters
    parameters: MeasuringParameters

    def plan(self, facts: Facts) -> Plan:
        def measure(context: StepContext) -> StepOutcome:
            folder = context.case_dir("measuring", self.parameters.metric)
            time.sleep(self.parameters.seconds)
            cut = self.parameters.validity == "none"
            reasons = (
                ()
                if self.parameters.validity == "VALID"
                else (Reason("too slow", "set value to 2", "value", 2),)
            )
            output = ParsedOutput(
                format="test",
                tool_name="Measuring",
                metrics=(
                    Metric(
                        self.parameters.metric,
                        self.parameters.value,
                        "count",
                        description=f"key {self.parameters.api_key}",
                        metadata={"key": self.parameters.api_key} if self.parameters.api_key else {},
                    ),
                ),
                verdict=None if cut else Verdict(Validity(self.parameters.validity), reasons),
                complete=not cut,
                details={"key": self.parameters.api_key, "folder": folder},  # type: ignore[dict-item]
            )
            return StepOutcome("measured", (output,), folder)

        return Plan(
            tuple(
                Step(f"measure-{n}", "a number is wanted", measure)
                for n in range(1, self.parameters.steps + 1)
            )
        )


class FileParameters(ComponentParameters):
    path: str = Field(..., description="A file that must exist.")
    sabotage: bool = False
    refuse: bool = False


class FilePresence(Dependency):
    """Converges: makes a file, and has nothing to do if it exists."""

    Parameters = FileParameters
    parameters: FileParameters

    def plan(self, facts: Facts) -> Plan:
        from pathlib import Path

        path = Path(self.parameters.path)
        if self.parameters.refuse:
            raise HostError("this host has no files", remedy="buy one that has")
        if path.exists():
            return Plan(nothing_to_do=f"{path.name} is there")

        def make(context: StepContext) -> None:
            if not self.parameters.sabotage:
                path.write_text("made\n")

        return Plan((Step("make", f"{path.name} is missing", make, command=f"touch {path}"),))


class Ticking(Monitor):
    """Emits one metric when it starts and one when it ends."""

    def watch(self, context: MonitorContext) -> None:
        context.emit([Metric("tick", 1, "count")])
        context.stop.wait(60)
        context.emit([Metric("tock", 1, "count")])


class Raising(Action):
    """Fails in an unforeseen way."""

    def plan(self, facts: Facts) -> Plan:
        def fail(context: StepContext) -> None:
            raise ZeroDivisionError("nobody thought of this")

        return Plan((Step("fail", "to see what happens", fail),))


def register() -> None:
    """Register the types in this process."""
    known = registry._registered()
    for cls in (Measuring, FilePresence, Ticking, Raising):
        known[canonical(cls.__name__)] = EntryPoint(
            cls.__name__, f"tests.agent.counting_components:{cls.__name__}", registry.COMPONENT_GROUP
        )
