"""Base classes of every installer, workload and monitor: parameters in, a plan of steps out."""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from agent.component.bundled_images import image_download
from agent.component.downloads import not_carried
from agent.core.addresses import is_on_loopback
from agent.core.errors import ActionFailedError, LiftedBy
from agent.core.metric_filters import parse_filters
from agent.core.names import canonical
from agent.core.safe_files import make_folder, open_file, touch

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from agent.component.downloads import Download
    from agent.component.handover import Handover
    from agent.core.progress import Progress
    from agent.core.records import MetadataValue, Metric, ParsedOutput
    from agent.facts import Facts
    from agent.host.containers import ContainerSpec
    from agent.host.processes import ProcessRunner

SERVICE_PREFIX = "service:"
"""Prefix of an endpoint that is a service of the same run."""

CASE_OWNER = ".step"
"""The file in a case's folder with the key of its step."""
CASE_LOG = "run.log"
"""Link to the step's log in the case's folder."""


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
    """Resources of a running step.

    Args:
        facts: the host as it was when the step's component was planned.
        processes: runs commands; output goes to the step's log, secrets masked.
        progress: shows that the step is alive.
        stop: set when the run is asked to end; long steps must return soon after.
        run_dir: the run's folder; raw results go to ``case_dir``.
        package_dir: the folder of environments, models and downloads, kept between runs.
        log: the step's log file, ``logs/<step>.log``.
        key: the step's key in the journal.
        services: values of the services in this step's group, by name.
        handover: anything that the previous step left running, for a step that takes it over; None if nothing
            may stay.
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
    handover: Handover | None = None

    def served_at(self, endpoint: str) -> tuple[str, Mapping[str, MetadataValue]]:
        """Return the URL of an endpoint, and the known values of its service.

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
        """Return the values of a service in this step's group.

        Raises:
            ActionFailedError: if no service of that name runs.
        """
        if name not in self.services:
            known = ", ".join(sorted(self.services)) or "none"
            raise ActionFailedError(
                f"no service named {name} runs beside this step; running: {known}",
                remedy="put both into one group, the service first; its scenario is its name",
            )
        return self.services[name]

    def case_dir(self, workload: str, case: str) -> Path:
        """Return the folder for one case's raw logs; create it if missing.

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
        """Link the step's log into its case's folder."""
        if place.exists():
            return
        touch(self.log)
        try:
            place.hardlink_to(self.log)
        except OSError:  # a file system without hard links
            place.unlink(missing_ok=True)
            place.symlink_to(os.path.relpath(self.log, place.parent))


@dataclass(frozen=True)
class Relaunch:
    """The command that starts a service of the host again, at the same address.

    Args:
        command: the program and its arguments.
        environment: variables added to the agent's own.
        cwd: the folder to run in; None for the agent's.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None


@dataclass(frozen=True)
class RelaunchInContainer:
    """The container that starts a service again, as its first process and at the same address.

    Args:
        spec: the container; it stays when the run has ended.
    """

    spec: ContainerSpec


@dataclass(frozen=True)
class Service:
    """A server or process that continues after the step that started it.

    Args:
        name: its name in ``StepContext.services``.
        values: its values for other steps, such as ``url`` and ``model``.
        stop: ends it, and everything it started; called once, when its group ends.
        death: how it ended by itself, and its last words; None while it runs.
        relaunch: how it may be started to stay when the run has ended; None if it cannot stay.
    """

    name: str
    values: Mapping[str, MetadataValue]
    stop: Callable[[], object]
    death: Callable[[], str | None]
    relaunch: Relaunch | RelaunchInContainer | None = None


@dataclass(frozen=True)
class StepOutcome:
    """Result of a finished step.

    Args:
        message: a readable line.
        outputs: parsed outputs: records and verdicts.
        case_dir: the folder of raw logs that the outputs come from; gets summary.json and a report.
        reboot: why the host must be rebooted before the next step; empty for no reboot.
        service: the service that a ServiceAction started.
    """

    message: str = ""
    outputs: tuple[ParsedOutput, ...] = ()
    case_dir: Path | None = None
    reboot: str = ""
    service: Service | None = None


@dataclass(frozen=True)
class Step:
    """One part of a plan.

    Args:
        name: unique within its component and the same in every plan with the same parameters: a resume finds
            a finished step by it. Letters, digits, ``.``, ``_``, ``-``.
        reason: the reason for it, in words.
        run: carries it out; raises a VcagentError if it fails.
        command: the command, as shown by ``vcagent plan``; empty for a step that is a call.
        holds: a check of the host afterwards, with fresh facts.
        estimate_s: its usual duration in seconds, for the progress display.
        undo: the values that ``Dependency.undo`` needs to undo the step, JSON-compatible; stored in the
            journal before the step starts. None for a step without anything to undo.
        runs_as_written: True if ``command`` is the profile's own line, word for word: the programs in it get
            the secrets that it contains as arguments.
        takes_over: True if it looks into ``StepContext.handover``. Before any other step, anything that the
            previous step left running is ended.
        fetches_from: returns the addresses of the servers that it fetches from, beyond those in ``command``;
            ``vcagent doctor`` asks whether they answer.
    """

    name: str
    reason: str
    run: Callable[[StepContext], StepOutcome | None]
    command: str = ""
    holds: Callable[[Facts], bool] | None = None
    estimate_s: float | None = None
    undo: Mapping[str, Any] | None = None
    runs_as_written: bool = False
    takes_over: bool = False
    fetches_from: Callable[[Facts], Iterable[str]] | None = None


@dataclass(frozen=True)
class Plan:
    """The steps of a component, or the reason for having none."""

    steps: tuple[Step, ...] = ()
    nothing_to_do: str = ""

    def __post_init__(self) -> None:
        """Check that a plan has either steps or a reason, and that step names are unique."""
        if bool(self.steps) == bool(self.nothing_to_do):
            raise ValueError("a plan has either steps or a reason for having none")
        if len({step.name for step in self.steps}) < len(self.steps):
            raise ValueError(f"two steps have one name: {[step.name for step in self.steps]}")


class Component(ABC):  # noqa: B024 - its subclasses define their methods
    """An element of a profile whose type this class implements.

    A class is registered by an entry point of the group ``vcagent.components``, under its type name.
    Several profile elements of one type are several instances.

    Attributes:
        is_for_gpus: True if every element of this type needs GPUs.
    """

    Parameters: ClassVar[type[ComponentParameters]] = ComponentParameters
    is_for_gpus: ClassVar[bool] = False

    def __init__(self, parameters: ComponentParameters) -> None:
        self.parameters = parameters

    def downloads(self, facts: Facts) -> tuple[Download, ...]:  # noqa: ARG002 - for those that download
        """Return what the steps download on a host in its initial state; a bundle carries it.

        Args:
            facts: the host. For a bundle that is made elsewhere they have only distribution, architecture,
                package manager and Python.

        Raises:
            HostError: if a bundle cannot carry it.
        """
        return ()

    def uses_gpus(self, facts: Facts) -> bool:  # noqa: ARG002 - for those that depend on the host
        """Return True if it needs GPUs, so that a sick GPU is a problem; by default those of its container.

        Args:
            facts: the host.
        """
        container = getattr(self.parameters, "container", None)
        return self.is_for_gpus or (container is not None and container.gpus != "none")


class _Planned(Component):
    @abstractmethod
    def plan(self, facts: Facts) -> Plan:
        """Derive the steps from the host's facts; change nothing.

        Raises:
            HostError: if this host does not support it; with the remedy.
        """


class Dependency(_Planned):
    """Brings the host to a state. Planned again from fresh facts, it must have no steps.

    Attributes:
        changes_host: True if its steps change shared parts of a host: packages, disks, services.
            Only one agent at a time runs such a step.
        lifts: which refusals of later components its steps may lift; by default all that any step can.
            A refusal that no pending dependency may lift is final: the plan is refused.
    """

    changes_host: ClassVar[bool] = False
    lifts: ClassVar[frozenset[LiftedBy]] = frozenset(LiftedBy) - {LiftedBy.NOTHING}

    def downloads(self, facts: Facts) -> tuple[Download, ...]:  # noqa: ARG002 - see Component
        """Refuse: a dependency that bundles support, or that downloads nothing, says so itself."""
        raise not_carried(f"what {type(self).__name__} downloads")

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:  # noqa: ARG003 - for those that know how
        """Derive the steps that undo a step, from its stored values and the host's facts; change nothing.

        Anything that changed since the step is kept; the plan then has a reason instead of steps.

        Args:
            values: the step's ``undo``, secrets masked.
            facts: the host.
        """
        return Plan(nothing_to_do=f"{cls.__name__} does not say how to take it back")


class Action(_Planned):
    """Runs a workload; its steps return parsed outputs."""

    def downloads(self, facts: Facts) -> tuple[Download, ...]:  # noqa: ARG002 - see Component
        """Return the image of the container that it runs in, if any; dependencies bring everything else."""
        container = getattr(self.parameters, "container", None)
        if container is None or container.pull == "never":
            return ()
        if container.dockerfile is not None:
            raise not_carried(
                f"what the image {container.image_name} is built from",
                "build it, load it there (docker load), and name it with pull: never, without dockerfile",
            )
        return (image_download(container.image_name),)

    def uses_loopback(self) -> bool:
        """Return True if it serves or asks at 127.0.0.1 of the host.

        By default: anything with a server or an engine of its own, or with the address of a server on this
        host, unless it is in a container with a network of its own.
        """
        asked = self.parameters
        container = getattr(asked, "container", None)
        if container is not None and container.network != "host":
            return False
        own = any(getattr(asked, name, None) for name in ("server", "vllm"))
        return own or is_on_loopback(str(getattr(asked, "endpoint", "")))


class ServiceAction(Action):
    """Starts a service that runs until its group ends; all later elements of the group can use it.

    It is stopped with the group, successful or not. A resume starts it again if any later element in
    its group is not done yet.
    """

    def uses_loopback(self) -> bool:
        """Return True: also the port of a container is published at 127.0.0.1."""
        return True


@dataclass(frozen=True)
class MonitorContext:
    """Resources of a monitor while the actions run.

    Args:
        emit: receives metrics as they are measured; safe to call from any thread.
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
    """A monitor's sums for a case.

    Args:
        metrics: means, maxima, sums; they go into the case's scenario.
        warnings: doubts about the case's result, one per line.
    """

    metrics: tuple[Metric, ...] = ()
    warnings: tuple[str, ...] = ()


class Monitor(Component):
    """Measures the host while actions run, in a thread of its own."""

    def prepare(self, context: MonitorContext) -> None:
        """Prepare, in the same thread as ``watch``: the first action waits for it."""

    @abstractmethod
    def watch(self, context: MonitorContext) -> None:
        """Emit metrics until ``context.stop`` is set; called again, after ``prepare``, if it raises."""

    def summary(self, start: datetime, end: datetime) -> MonitorSummary:  # noqa: ARG002 - for those that have one
        """Sum up the measurements of a span of time; called from other threads while ``watch`` runs."""
        return MonitorSummary()
