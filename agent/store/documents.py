"""The JSON documents of a run and a fleet run: one schema each, for writers and readers.

The schemas are published in ``docs/schemas``. Unknown keys are kept, so that a document
of a newer version can be read. Times are ISO 8601 in UTC.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import Self

from agent.core.errors import UsageError
from agent.core.safe_files import make_folder
from agent.store.results import CONTEXTS_FILE, RUN_FILE, SUMMARY_FILE, write_json

if TYPE_CHECKING:
    from pathlib import Path

ROLLUP_FILE = "rollup/run_rollup.json"
FLEET_FILE = "fleet.json"

Validity = Literal["VALID", "INVALID", "FAILED", "NOT_APPLICABLE"]
Scalar = str | int | float | bool | None


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_missing(cls, values: Any) -> Any:
        """Treat null as a missing value, as in runs that were killed early."""
        if not isinstance(values, dict):
            return values
        return {key: value for key, value in values.items() if value is not None}


class Document(_Part):
    """A JSON file of a run's folder."""

    FILE: ClassVar[str]
    """Path below its folder."""

    schema_version: Literal[1] = Field(1, description="Version of the document's schema.")

    def to_json(self) -> dict[str, Any]:
        """Return the document as JSON-compatible values."""
        return self.model_dump(mode="json")

    def write(self, folder: Path) -> Path:
        """Write it into its folder atomically; return its path."""
        path = folder / self.FILE
        make_folder(path.parent)
        write_json(path, self.to_json())
        return path

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read it from its folder.

        Raises:
            UsageError: if it is missing, is not JSON, or does not have this schema.
        """
        path = folder / cls.FILE
        try:
            return cls.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except ValidationError as error:
            first = error.errors()[0]
            problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        except (OSError, ValueError, RecursionError) as error:
            problem = str(error)
        raise UsageError(
            f"{cls.FILE} cannot be read: {problem}",
            where=str(path),
            remedy="name the folder of a run, such as results/latest",
        )


class ReasonPart(_Part):
    """A reason for a verdict."""

    message: str = Field("", description="What is wrong.")
    remedy: str = Field("", description="What to do about it.")
    setting: str | None = Field(None, description="The setting to change.")
    value: Scalar = Field(None, description="The value to try.")
    code: str = Field("", description="A stable name of the reason.")


class VerdictPart(_Part):
    """Verdict on a result."""

    validity: Validity | None = Field(None, description="None if nothing was judged.")
    reasons: list[ReasonPart] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list, description="Doubts about the numbers.")


class ToolPart(_Part):
    """The tool that measured."""

    name: str = ""
    version: str = Field("", description="Empty if unknown.")


class MetricPart(_Part):
    """A number."""

    name: str
    value: float
    unit: str = Field(description="Base unit, such as seconds, tokens/s, bytes, ratio.")
    relativity: str = Field("Undefined", description="HigherIsBetter, LowerIsBetter or Undefined.")
    verbosity: int = Field(1, description="1 for headline numbers.")


class HeadlinePart(_Part):
    """The headline number of a case for one kind of metric."""

    metric: str
    value: float
    unit: str


class CasePart(_Part):
    """A case of a run, with its verdict."""

    scenario: str = ""
    tool_name: str = ""
    tool_version: str = ""
    validity: Validity | None = None
    reasons: list[ReasonPart] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    start: str | None = None
    end: str | None = None
    case_dir: str | None = Field(None, description="Folder of the raw logs, below the run's folder.")
    complete: bool = Field(default=True, description="False if the tool's output was truncated.")
    details: dict[str, Any] = Field(default_factory=dict, description="Settings in effect.")


class StepPart(_Part):
    """A step of a run."""

    key: str = Field("", description="Unique within the run.")
    title: str = Field(
        "", description="The element's scenario, or its type if it has none; unique within a round."
    )
    component: str = ""
    type: str = ""
    kind: str = Field("", description="dependency, action or monitor.")
    name: str = ""
    reason: str = Field("", description="Why the step is needed.")
    command: str = ""
    status: str = "pending"
    message: str = ""
    attempts: int = 1
    start: str | None = None
    end: str | None = None
    log: str | None = Field(None, description="Path below the run's folder.")


class ProfilePart(_Part):
    """The profile as it was used."""

    name: str = ""
    description: str = ""
    sources: list[str] = Field(default_factory=list)
    parameters: dict[str, Any] = Field(default_factory=dict, description="Resolved; secrets are masked.")


class RunDocument(Document):
    """run.json: profile, host, steps and result of a run."""

    FILE: ClassVar[str] = RUN_FILE

    run_id: str = ""
    experiment_id: str = ""
    client_id: str = Field("", description="The host's name in records.")
    profile: ProfilePart = Field(default_factory=ProfilePart)
    command_line: list[str] = Field(default_factory=list)
    versions: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    containers: list[dict[str, Any]] = Field(default_factory=list, description="Images with digests.")
    facts: dict[str, Any] = Field(default_factory=dict, description="The host, by the names of facts.")
    start: str | None = None
    resumed: list[str] = Field(default_factory=list, description="When the run was resumed.")
    end: str | None = None
    verdict: VerdictPart = Field(default_factory=VerdictPart)
    exit_code: int | None = Field(None, description="None while the run continues.")
    exit_reason: str = ""
    steps: list[StepPart] = Field(default_factory=list)
    cases: list[CasePart] = Field(default_factory=list)


class SummaryDocument(Document):
    """summary.json: the result of one case."""

    FILE: ClassVar[str] = SUMMARY_FILE

    scenario: str = ""
    tool: ToolPart = Field(default_factory=ToolPart)
    format: str = Field("", description="The parser's name.")
    start: str | None = None
    end: str | None = None
    complete: bool = Field(default=True, description="False if the tool's output was truncated.")
    verdict: VerdictPart = Field(default_factory=VerdictPart)
    headline: dict[str, HeadlinePart] = Field(default_factory=dict, description="By kind.")
    metrics: list[MetricPart] = Field(default_factory=list)
    usage: list[MetricPart] = Field(default_factory=list, description="The monitors' sums for the case.")
    details: dict[str, Any] = Field(default_factory=dict, description="Settings in effect.")
    sources: list[str] = Field(default_factory=list, description="The files that were parsed.")


class RollupCase(VerdictPart):
    """A case in a rollup."""

    scenario: str = ""
    tool: ToolPart = Field(default_factory=ToolPart)
    complete: bool = True
    start: str | None = None
    end: str | None = None
    case_dir: str | None = None
    headline: dict[str, HeadlinePart] = Field(default_factory=dict)
    metrics: list[MetricPart] = Field(default_factory=list)


class RollupDocument(Document):
    """rollup/run_rollup.json: a run in one short file, for comparison with other runs."""

    FILE: ClassVar[str] = ROLLUP_FILE

    run_id: str = ""
    experiment_id: str = ""
    client_id: str = ""
    profile: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, Any] = Field(default_factory=dict)
    start: str | None = None
    end: str | None = None
    duration_s: float | None = None
    exit_code: int | None = None
    exit_reason: str = ""
    verdict: VerdictPart = Field(default_factory=VerdictPart)
    steps: dict[str, int] = Field(default_factory=dict, description="Number of steps by status.")
    cases: list[RollupCase] = Field(default_factory=list)


class FleetHostPart(_Part):
    """A host of a fleet run."""

    name: str
    folder: str = Field("", description="Below hosts/ in the fleet run's folder.")
    phase: str = "waiting"
    started: str | None = None
    ended: str | None = None
    exit_code: int | None = None
    verdict: str | None = None
    reason: str = Field("", description="Why it failed, with the remedy.")
    step: str = Field("", description="What the run was at last.")
    warning: str = Field("", description="What is wrong with the host although it works.")
    duration_s: float | None = Field(None, description="Of the run, by the host's clock.")
    good: bool = False
    may_go_on: bool = Field(default=False, description="True if a run may still be active there.")
    report: str | None = None
    headline: dict[str, dict[str, HeadlinePart]] = Field(default_factory=dict, description="By scenario.")


class DistributionPart(_Part):
    """A headline metric over the hosts that have it."""

    scenario: str
    metric: str
    unit: str
    relativity: str
    count: int
    minimum: float
    median: float
    maximum: float
    mad: float = Field(description="Median absolute deviation.")
    outliers: dict[str, float] = Field(default_factory=dict)


class FleetDocument(Document):
    """fleet.json: a fleet run, its hosts and their comparison."""

    FILE: ClassVar[str] = FLEET_FILE

    run_id: str = ""
    experiment_id: str = ""
    profiles: list[str] = Field(default_factory=list)
    via: str = Field("ssh", description="The transport.")
    parameters: dict[str, Any] = Field(default_factory=dict)
    start: str | None = None
    end: str | None = None
    duration_s: float | None = Field(None, description="Without the time in which no controller was at work.")
    exit_code: int | None = None
    stopped: str = Field("", description="Why no further host was started.")
    hosts: list[FleetHostPart] = Field(default_factory=list)
    distributions: list[DistributionPart] = Field(default_factory=list)
    diagnosis: dict[str, Any] | None = None
    undiagnosed: str = Field("", description="Why there is no diagnosis.")


class ContextDocument(Document):
    """contexts.jsonl: a line has what the records with its ``context_id`` have in common.

    The parts that begin with ``metadata`` are those of VirtualClient's metadata contract.
    """

    FILE: ClassVar[str] = CONTEXTS_FILE

    context_id: str = Field("", description="What records have as context_id in their metadata.")
    experiment_id: str = ""
    run_id: str = ""
    client_id: str = Field("", description="The host's name in records.")
    profile: str = ""
    system: str = Field("", description="The system that started the run; VirtualClient's ExecutionSystem.")
    severity_level: int = Field(2, description="VirtualClient's scale: 2 is information.")
    metadata: dict[str, Any] = Field(default_factory=dict, description="What the user gave with --metadata.")
    metadata_host: dict[str, Any] = Field(default_factory=dict, description="Processors, memory, GPUs, OS.")
    metadata_runtime: dict[str, Any] = Field(
        default_factory=dict, description="How the agent was called, versions, image digests, GPU settings."
    )
    metadata_scenario: dict[str, Any] = Field(
        default_factory=dict, description="Type, parameters and command; secrets are masked."
    )
    metadata_dependencies: dict[str, Any] = Field(default_factory=dict, description="Versions on the host.")
    tool_results: str = Field("", description="The tool's own output, cut; VirtualClient's toolResults.")


DOCUMENTS: tuple[type[Document], ...] = (
    RunDocument,
    SummaryDocument,
    RollupDocument,
    FleetDocument,
    ContextDocument,
)


def schemas() -> dict[str, str]:
    """Return the JSON Schema of each document, as text, by its file's name in ``docs/schemas``."""
    return {
        f"{PurePath(document.FILE).stem}.schema.json": json.dumps(document.model_json_schema(), indent=2)
        + "\n"
        for document in DOCUMENTS
    }
