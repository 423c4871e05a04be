"""A host whose boots are a file, a dependency that is satisfied only after a reboot, a run that is killed."""

from __future__ import annotations

import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING

from agent.component import registry
from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.core.errors import ExitCode
from agent.core.names import canonical
from agent.core.progress import RunProgress
from agent.run import description as run_description
from agent.run.request import RunRequest
from agent.run.session import resume, start
from agent.store.journal import Journal
from agent.store.results import ResultsFolder
from tests.agent.counting_components import register as register_counting
from tests.agent.kill_driver import WATCHED, dying

if TYPE_CHECKING:
    from agent.facts import Facts
    from agent.run.resume_unit import ResumeUnit


class FileDoor:
    """Boots of a host in a folder: ``boot``, ``armed/<unit>``, and ``loaded`` after a boot."""

    def __init__(self, host: Path, obstacle: str = "") -> None:
        self.host = host
        self._obstacle = obstacle
        (host / "armed").mkdir(exist_ok=True)

    def boot(self) -> str:
        file = self.host / "boot"
        return file.read_text() if file.exists() else "boot-0"

    def obstacle(self) -> str:
        return self._obstacle

    def arm(self, unit: ResumeUnit) -> None:
        (self.host / "armed" / unit.name).write_text(unit.text())

    def disarm(self, name: str) -> None:
        (self.host / "armed" / name).unlink(missing_ok=True)

    def reboot(self) -> None:
        (self.host / "boot").write_text(f"boot-{int(self.boot().rpartition('-')[2]) + 1}")
        if (self.host / "installed").exists():
            (self.host / "loaded").touch()

    def armed(self) -> list[str]:
        return sorted(path.name for path in (self.host / "armed").iterdir())


class DriverParameters(ComponentParameters):
    host: str
    loads: bool = True


class Driver(Dependency):
    """Behaves like a driver: installed by a step, loaded by a reboot."""

    Parameters = DriverParameters
    parameters: DriverParameters

    def plan(self, facts: Facts) -> Plan:
        host = Path(self.parameters.host)
        if self.parameters.loads and (host / "loaded").exists():
            return Plan(nothing_to_do="loaded")

        def install(context: StepContext) -> StepOutcome:
            with (host / "effects").open("a") as file:
                file.write("install\n")
            (host / "installed").touch()
            return StepOutcome("installed", reboot="the new driver is not loaded")

        return Plan((Step("install", "no driver is loaded", install),))


def register() -> None:
    """Register the types in this process."""
    register_counting()
    registry._registered()[canonical("Driver")] = EntryPoint(
        "Driver", "tests.agent.rebooting_components:Driver", registry.COMPONENT_GROUP
    )


def run_until(n: int, request_file: str) -> None:
    """Run the request in this process until the n-th write to the journal or call of the host."""
    register()
    run_description.known_facts = dict  # type: ignore[assignment]
    countdown = [n]
    for name in WATCHED:
        setattr(Journal, name, dying(getattr(Journal, name), countdown))
    for name in ("arm", "disarm", "reboot"):
        setattr(FileDoor, name, dying(getattr(FileDoor, name), countdown))
    request = RunRequest.from_json(json.loads(Path(request_file).read_text()), {})
    door = FileDoor(Path(request_file).parent)
    runs = ResultsFolder(request.results_dir).runs()
    if runs:
        finished = resume(request.results_dir, None, RunProgress(), door=door)
    else:
        finished = start(request, RunProgress(), door)
    code = finished.outcome.exit_code
    sys.exit(ExitCode.OK if code is ExitCode.OK else code)
