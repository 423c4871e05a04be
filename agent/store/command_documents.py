"""The JSON documents that commands print with ``--json``, one schema each.

Commands that print a document of a run's folder (``run``, ``resume``, ``report``, ``fleet run``) use the
models of ``agent.store.documents``. The schemas are published in ``docs/schemas/commands``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from agent.store.bundle_parts import BundledContent, BundledFile  # noqa: TC001 - pydantic reads it
from agent.store.documents import Document, VerdictPart

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Row(BaseModel):
    """A part of a command's document; keys of newer versions are kept."""

    model_config = ConfigDict(extra="allow")


class CommandDocument(Document):
    """A document that a command prints."""

    NAME: ClassVar[str]
    """Name of its schema: the command's words, joined by ``-``."""

    def to_json(self) -> dict[str, Any]:
        """Return the document as JSON-compatible values."""
        return self.model_dump(mode="json", by_alias=True)


class ErrorDocument(CommandDocument):
    """The error that ended a command."""

    NAME: ClassVar[str] = "error"

    error: str = Field(description="What failed, and why.")
    remedy: str | None = Field(None, description="What to do next.")
    exit_code: int = Field(description="The exit code of the process.")
    where: str | None = Field(None, description="The file and line, the key, the step or the host.")
    details: list[str] = Field(default_factory=list, description="Further lines, such as the end of a log.")


class PlannedStep(_Row):
    """A step of a plan."""

    name: str
    reason: str
    command: str = ""
    estimate_s: float | None = Field(None, description="Expected seconds; null if unknown.")


class PlannedElement(_Row):
    """An element of the profile, with its steps."""

    key: str
    kind: str = Field(description="dependency, monitor or action.")
    type: str
    scenario: str | None = None
    standing: str = Field(description="planned, nothing to do, skipped, refused or later.")
    note: str = ""
    remedy: str | None = None
    groups: list[str] = Field(
        default_factory=list, description="Groups around the element, the outermost first."
    )
    repeats: int = Field(1, description="How often the steps run in the whole run, at least.")
    steps: list[PlannedStep] = Field(default_factory=list)


class PlanDocument(CommandDocument):
    """What a profile would do on this host."""

    NAME: ClassVar[str] = "plan"

    profile: str
    timeout: str | None = Field(None, description="The meaning of --timeout, if it was given.")
    step_count: int = Field(description="Number of steps that the run counts, repeated ones included.")
    refused: bool = Field(description="True if the run would end before its first step.")
    components: list[PlannedElement] = Field(default_factory=list)


class ShownParameter(_Row):
    """A parameter of a profile."""

    name: str
    value: Any = Field(None, description="The value in use, resolved if it can be resolved on this host.")
    default: Any = Field(None, description="The value before ParametersOn, --parameters and Form.")
    description: str = ""


class ShowDocument(CommandDocument):
    """A profile as it will be used."""

    NAME: ClassVar[str] = "show"

    name: str
    description: str = ""
    source: str
    metadata: dict[str, Any] = Field(default_factory=dict)
    parameters: dict[str, Any] = Field(default_factory=dict, description="Values in use, by name.")
    parameter_details: list[ShownParameter] = Field(default_factory=list)
    dependencies: list[dict[str, Any]] = Field(default_factory=list)
    monitors: list[dict[str, Any]] = Field(default_factory=list)
    actions: list[dict[str, Any]] = Field(default_factory=list)


class ProfileRow(_Row):
    """An installed profile."""

    name: str
    file: str
    description: str = ""
    error: str | None = Field(None, description="Why the profile cannot be read.")


class ProfilesDocument(CommandDocument):
    """The installed profiles."""

    NAME: ClassVar[str] = "profiles"

    profiles: list[ProfileRow] = Field(default_factory=list)


class FactsDocument(CommandDocument):
    """Facts about this host."""

    NAME: ClassVar[str] = "facts"

    facts: dict[str, Any] = Field(
        default_factory=dict,
        description="Values by name; a fact that could not be read is an object with error.",
    )


class CheckRow(_Row):
    """A check of the host."""

    name: str
    status: str = Field(description="ok, warning or problem.")
    message: str
    remedy: str = ""


class DoctorDocument(CommandDocument):
    """What a run needs of this host."""

    NAME: ClassVar[str] = "doctor"

    summary: str
    checks: list[CheckRow] = Field(default_factory=list)


class RunRow(_Row):
    """A run, or a fleet run, of a results folder."""

    run_id: str
    profile: str | None = None
    start: str | None = None
    end: str | None = None
    verdict: str | None = None
    exit_code: int | None = Field(None, description="null while the run is unfinished.")
    hosts: int | None = Field(None, description="Number of hosts; null for a run on one host.")
    serving: dict[str, Any] | None = Field(None, description="The server that stays, if one does.")
    folder: str


class RunsDocument(CommandDocument):
    """The runs of a results folder, then its fleet runs."""

    NAME: ClassVar[str] = "runs"

    runs: list[RunRow] = Field(default_factory=list)


class ParsedRow(_Row):
    """The content of one tool's output."""

    format: str
    tool_name: str
    tool_version: str = ""
    scenario: str = ""
    complete: bool
    start: str | None = None
    end: str | None = None
    verdict: VerdictPart | None = None
    metrics: list[dict[str, Any]] = Field(default_factory=list)
    details: dict[str, Any] = Field(default_factory=dict)
    sources: list[str] = Field(default_factory=list)


class ParseDocument(CommandDocument):
    """What raw outputs of tools say."""

    NAME: ClassVar[str] = "parse"

    outputs: list[ParsedRow] = Field(default_factory=list)


class CompareDocument(CommandDocument):
    """A comparison of runs with the first of them."""

    NAME: ClassVar[str] = "compare"

    sides: list[dict[str, Any]] = Field(default_factory=list)
    threshold: float
    confidence: float
    history_runs: int = 0
    context: list[dict[str, Any]] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    no_longer_valid: list[dict[str, Any]] = Field(default_factory=list)
    metrics: list[dict[str, Any]] = Field(default_factory=list)
    method: list[str] = Field(default_factory=list)
    regressions: int = Field(
        description="Number of metrics that became worse, and of results that no longer count."
    )


class DiagnoseDocument(CommandDocument):
    """A diagnosis of hosts."""

    NAME: ClassVar[str] = "diagnose"

    summary: str
    defective: list[str] = Field(default_factory=list)
    suspect: list[str] = Field(default_factory=list)
    not_judged: list[str] = Field(default_factory=list)
    without_records: list[str] = Field(default_factory=list)
    hosts: list[dict[str, Any]] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)


class BaselineDocument(CommandDocument):
    """A baseline: the file that ``vcagent baseline`` writes."""

    NAME: ClassVar[str] = "baseline"

    metrics: dict[str, dict[str, Any]] = Field(default_factory=dict)


class ConvertDocument(CommandDocument):
    """The outcome of a conversion."""

    NAME: ClassVar[str] = "convert"

    model_config = ConfigDict(populate_by_name=True)

    source: str
    source_format: str = Field(alias="from", serialization_alias="from")
    to: str
    target: str | None = Field(None, description="The file that was written.")
    text: str | None = Field(None, description="The converted profile, if no file was named.")


class BundleDocument(CommandDocument):
    """The bundles that were made."""

    NAME: ClassVar[str] = "bundle"

    bundles: list[str] = Field(
        default_factory=list, description="Paths of the agent's files, or the folder of a profile's bundle."
    )
    platform: str | None = Field(None, description="The hosts that a profile's bundle is for.")
    python: str | None = Field(None, description="The version of Python that its wheels are for.")
    profiles: list[str] = Field(default_factory=list, description="The profiles that it was made from.")
    contents: list[BundledContent] = Field(default_factory=list)
    files: list[BundledFile] = Field(default_factory=list)


class CleanedRow(_Row):
    """A change that was taken back, a folder that was removed, or one that was left."""

    name: str
    run_id: str | None = None
    commands: list[str] = Field(default_factory=list)
    size_bytes: int | None = None
    done: bool
    why: str = Field("", description="Why it was left.")


class CleanDocument(CommandDocument):
    """What was removed or taken back."""

    NAME: ClassVar[str] = "clean"

    changes: list[CleanedRow] = Field(default_factory=list)


class FleetStopDocument(CommandDocument):
    """The runs that were ended."""

    NAME: ClassVar[str] = "fleet-stop"

    run_id: str
    hosts: list[str] = Field(default_factory=list)
    by: str = Field(description="The process that ends the runs.")


class FleetCleanDocument(CommandDocument):
    """What was removed from hosts."""

    NAME: ClassVar[str] = "fleet-clean"

    hosts: list[dict[str, Any]] = Field(default_factory=list)


class FleetStatusDocument(CommandDocument):
    """The state of a fleet run."""

    NAME: ClassVar[str] = "fleet-status"

    run_id: str
    folder: str
    exit_code: int | None = None
    controller: str = Field(description="alive or gone.")
    hosts: list[dict[str, Any]] = Field(default_factory=list)


class FleetHostsDocument(CommandDocument):
    """The hosts of an inventory."""

    NAME: ClassVar[str] = "fleet-hosts"

    hosts: list[dict[str, Any]] = Field(default_factory=list)


class DeliveryRow(_Row):
    """A sink of a run."""

    run_id: str
    sink: str
    refused: int = Field(0, description="Records that the sink refused.")
    refused_pieces: dict[str, str] = Field(
        default_factory=dict, description="Files and parts of the log that it refused, with the reasons."
    )
    error: str | None = None


class TelemetryStatusDocument(CommandDocument):
    """How many records each sink has received."""

    NAME: ClassVar[str] = "telemetry-status"

    sinks: list[DeliveryRow] = Field(default_factory=list)


class TelemetryFlushDocument(CommandDocument):
    """The outcome of a delivery to sinks."""

    NAME: ClassVar[str] = "telemetry-flush"

    sinks: list[DeliveryRow] = Field(default_factory=list)


class SubmissionCheckDocument(CommandDocument):
    """The judgement of a submission."""

    NAME: ClassVar[str] = "submission-check"

    round: str
    accepted: bool
    official: dict[str, Any] | None = Field(None, description="The official checker; null if it did not run.")
    findings: list[dict[str, Any]] = Field(default_factory=list)
    results: list[dict[str, Any]] = Field(default_factory=list)


class SubmissionBuildDocument(CommandDocument):
    """A submission's tree."""

    NAME: ClassVar[str] = "submission-build"

    output: str | None = Field(None, description="The tree's folder; null if nothing was filed.")
    filed: list[dict[str, Any]] = Field(default_factory=list)
    missing: list[dict[str, Any]] = Field(default_factory=list)
    commands: list[str] = Field(default_factory=list, description="Commands that run what is missing.")


def command_documents() -> tuple[type[CommandDocument], ...]:
    """Return the models of all commands."""
    return tuple(sorted(CommandDocument.__subclasses__(), key=lambda one: one.NAME))


def schemas_of(documents: Iterable[type[CommandDocument]] = ()) -> dict[str, str]:
    """Return the JSON Schemas as text, by their files' names in ``docs/schemas``."""
    return {
        f"commands/{document.NAME}.schema.json": json.dumps(
            document.model_json_schema(by_alias=True), indent=2
        )
        + "\n"
        for document in documents or command_documents()
    }
