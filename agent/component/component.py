"""What every installer, workload and monitor is made of: parameters in, a plan of steps out."""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from agent.core.errors import ActionFailedError, LiftedBy
from agent.core.metric_filters import parse_filters
from agent.core.names import canonical
from agent.core.safe_files import make_folder, open_file, touch

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from agent.core.progress import Progress
    from agent.core.records import MetadataValue, Metric, ParsedOutput
    from agent.facts import Facts
    from agent.host.processes import ProcessRunner

SERVICE_PREFIX = "service:"
"""What an endpoint begins with that is a service of the same run."""

CASE_OWNER = ".step"
"""The file in a case's folder that names the step it belongs to."""
CASE_LOG = "run.log"
"""The step's log, found in the case's folder too."""


class ComponentParameters(BaseModel):
    """The parameters of one component, validated; names match without case, ``_`` and ``-``.

    So ``TargetQps``, ``targetQps`` and ``target_qps`` are the same parameter, and ``Packages-Apt`` fills
    ``packages_apt``. An unknown name is an error.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    scenario: str = Field("", description="Name of this element; the default for its records' scenario.")
    tags: str = Field("", description="Labels for its records, separated by commas.")
    supported_platforms: str = Field("", description="Platforms such as linux-x64; elsewhere it is skipped.")
    supported_linux_distributions: str = Field("", description="Distributions; elsewhere it is skipped.")
    role: str = Field("", description="The role in a client/server layout it is meant for.")
    enabled: bool = Field(default=True, description="false switches it off: it is skipped.")
    metric_filters: str = Field("", description="Keeps matching metrics: verbosity:1,-regex,regex.")

    @model_validator(mode="before")
    @classmethod
    def _accept_any_spelling(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        fields = {canonical(name): name for name in cls.model_fields}
        return {fields.get(canonical(str(key)), key): value for key, value in values.items()}

    @field_validator("metric_filters")
    @classmethod
    def _filters(cls, value: str) -> str:
        parse_filters(value)
        return value


@dataclass(frozen=True)
class StepContext:
    """What a step may use while it runs: its doors to the outside.

    Args:
        facts: the host as it was when the step's component was planned.
        processes: runs commands; output goes to the step's log, secrets masked.
        progress: shows that the step is alive.
        stop: set when the run is asked to end; long steps must return soon after.
        run_dir: the run's folder; raw results go to ``case_dir``.
        package_dir: where environments, models and downloads are kept between runs.
        log: the step's log file, ``logs/<step>.log``.
        key: the step's key in the journal.
        services: what the services that run beside this step tell, by their names.
    """

    facts: Facts
    processes: ProcessRunner
    progress: Progress
    stop: threading.Event
    run_dir: Path
    package_dir: Path
    log: Path
    key: str = ""
    services: Mapping[str, Mapping[str, MetadataValue]] = field(default_factory=dict)

    def served_at(self, endpoint: str) -> tuple[str, Mapping[str, MetadataValue]]:
        """The URL that an endpoint means, and what is known of it.

        Args:
            endpoint: a URL, or ``service:`` and the name of a service beside this step.

        Raises:
            ActionFailedError: if no such service runs, or it has no URL.
        """
        if not endpoint.startswith(SERVICE_PREFIX):
            return endpoint, {}
        name = endpoint.removeprefix(SERVICE_PREFIX)
        values = self.service(name)
        if "url" not in values:
            raise ActionFailedError(f"the service {name} has no URL", remedy="name a server's")
        return str(values["url"]), values

    def service(self, name: str) -> Mapping[str, MetadataValue]:
        """What a service beside this step tells.

        Raises:
            ActionFailedError: if none of that name runs.
        """
        if name not in self.services:
            known = ", ".join(sorted(self.services)) or "none"
            raise ActionFailedError(
                f"no service named {name} runs beside this step; running: {known}",
                remedy="put both into one group, the service first; its scenario is its name",
            )
        return self.services[name]

    def case_dir(self, workload: str, case: str) -> Path:
        """The folder for one case's raw logs, made if it is missing.

        It belongs to this step: another step that asks for the same case, such as the same action in the
        next iteration, gets ``case-2``; this step gets its own again after a resume.
        """
        mask = self.processes.secrets.mask
        workload, case = mask(workload), mask(case)
        for number in itertools.count(1):
            folder = self.run_dir / workload / (case if number == 1 else f"{case}-{number}")
            owner = folder / CASE_OWNER
            make_folder(folder)
            try:
                with os.fdopen(open_file(owner, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                    file.write(self.key.encode())
            except FileExistsError:
                if owner.read_text(encoding="utf-8") != self.key:
                    continue
            self._show_log(folder / CASE_LOG)
            return folder
        raise AssertionError("unreachable")

    def _show_log(self, place: Path) -> None:
        """Let the step's log be found in its case's folder too: it is one file with two names."""
        if place.exists():
            return
        touch(self.log)
        try:
            place.hardlink_to(self.log)
        except OSError:  # a file system without hard links
            place.unlink(missing_ok=True)
            place.symlink_to(os.path.relpath(self.log, place.parent))


@dataclass(frozen=True)
class Service:
    """What goes on running after the step that started it.

    Args:
        name: how steps beside it find it in ``StepContext.services``.
        values: what it tells them, such as ``url`` and ``model``.
        stop: ends it, and everything it started; called once, when its group ends.
        death: how it ended by itself, and its last words; None while it runs.
    """

    name: str
    values: Mapping[str, MetadataValue]
    stop: Callable[[], object]
    death: Callable[[], str | None]


@dataclass(frozen=True)
class StepOutcome:
    """What a finished step leaves.

    Args:
        message: a line for people.
        outputs: parsed outputs: records and verdicts.
        case_dir: the folder of raw logs that the outputs come from; gets summary.json and a report.
        reboot: why the host must be rebooted before the next step; empty for no reboot.
        service: of a ServiceAction: what it started.
    """

    message: str = ""
    outputs: tuple[ParsedOutput, ...] = ()
    case_dir: Path | None = None
    reboot: str = ""
    service: Service | None = None


@dataclass(frozen=True)
class Step:
    """One thing that a plan does.

    Args:
        name: unique within its component and the same in every plan of the same wish: a resume finds
            a finished step by it. Letters, digits, ``.``, ``_``, ``-``.
        reason: why it is needed, in words.
        run: does it; raises a VcagentError if it fails.
        command: what will be run, as shown by ``vcagent plan``; empty for a step that is a call.
        holds: what must be true of the host afterwards; read again from fresh facts.
        estimate_s: how long it usually takes, in seconds, for the progress display.
        undo: what ``Dependency.undo`` must know to take the step back, as JSON can carry it; kept in the
            journal before the step starts. None for a step that leaves nothing to take back.
        runs_as_written: whether ``command`` is the profile's own line, word for word: the programs in it get
            the secrets that it holds as arguments.
    """

    name: str
    reason: str
    run: Callable[[StepContext], StepOutcome | None]
    command: str = ""
    holds: Callable[[Facts], bool] | None = None
    estimate_s: float | None = None
    undo: Mapping[str, Any] | None = None
    runs_as_written: bool = False


@dataclass(frozen=True)
class Plan:
    """The steps of a component, or why there is nothing to do."""

    steps: tuple[Step, ...] = ()
    nothing_to_do: str = ""

    def __post_init__(self) -> None:
        """A plan says what it does or why it does nothing, and each step has a name of its own."""
        if bool(self.steps) == bool(self.nothing_to_do):
            raise ValueError("a plan has either steps or a reason for having none")
        if len({step.name for step in self.steps}) < len(self.steps):
            raise ValueError(f"two steps have one name: {[step.name for step in self.steps]}")


class Component(ABC):  # noqa: B024 - its subclasses say what they can do
    """An element of a profile whose type this class implements.

    A class is registered by an entry point of the group ``vcagent.components``, under its type name.
    Several profile elements of one type are several instances.
    """

    Parameters: ClassVar[type[ComponentParameters]] = ComponentParameters

    def __init__(self, parameters: ComponentParameters) -> None:
        self.parameters = parameters


class _Planned(Component):
    @abstractmethod
    def plan(self, facts: Facts) -> Plan:
        """From what the host is, derive what is to be done; changes nothing.

        Raises:
            HostError: if this host cannot do it; with the remedy.
        """


class Dependency(_Planned):
    """Brings the host to a state. Planned again from fresh facts, it must have nothing to do.

    Attributes:
        changes_host: whether its steps change what all agents of a host share: packages, disks, services.
            Only one agent at a time runs such a step.
        lifts: which refusals of later components its steps may lift; by default all that any step can.
            A refusal that no pending dependency may lift is final: the plan is refused.
    """

    changes_host: ClassVar[bool] = False
    lifts: ClassVar[frozenset[LiftedBy]] = frozenset(LiftedBy) - {LiftedBy.NOTHING}

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:  # noqa: ARG003 - for those that know how
        """From what a step noted and what the host is now, derive what takes the step back; changes nothing.

        What is not as the step left it stays: then there is nothing to do, and why.

        Args:
            values: the step's ``undo``, secrets masked.
            facts: the host.
        """
        return Plan(nothing_to_do=f"{cls.__name__} does not say how to take it back")


class Action(_Planned):
    """Runs a workload; its steps return parsed outputs."""


class ServiceAction(Action):
    """Starts what stays until the group that it stands in ends: all that follows in the group has it.

    It is stopped with the group, however that ends. A resume starts it again if anything that follows it in
    its group is not done yet.
    """


@dataclass(frozen=True)
class MonitorContext:
    """What a monitor may use while the actions run.

    Args:
        emit: takes metrics as they are measured; safe to call from any thread.
        stop: set when the actions have ended.
        facts: the host.
        processes: runs commands.
        log: the monitor's log file.
    """

    emit: Callable[[Sequence[Metric]], None]
    stop: threading.Event
    facts: Facts
    processes: ProcessRunner
    log: Path


@dataclass(frozen=True)
class MonitorSummary:
    """What a monitor saw while a case ran.

    Args:
        metrics: means, maxima, sums; they go into the case's scenario.
        warnings: what spoils the case's figure, a line each.
    """

    metrics: tuple[Metric, ...] = ()
    warnings: tuple[str, ...] = ()


class Monitor(Component):
    """Measures the host beside the actions, in a thread of its own."""

    def prepare(self, context: MonitorContext) -> None:
        """Get ready, in the same thread as ``watch``: the first action waits for it."""

    @abstractmethod
    def watch(self, context: MonitorContext) -> None:
        """Emit metrics until ``context.stop`` is set; called again, after ``prepare``, if it raises."""

    def summary(self, start: datetime, end: datetime) -> MonitorSummary:  # noqa: ARG002 - for those that have one
        """Sum up what was seen in a span of time; called from other threads while ``watch`` runs."""
        return MonitorSummary()
