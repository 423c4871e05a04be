"""Numbers and verdicts: the output of a parser, and the input of a sink."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

MetadataValue = str | int | float | bool

SUMMARY_TAG = "summary"
"""Label of a monitor's sums for a case; its records over time do not have it."""


CONTEXT_KEY = "context_id"
"""Names, in a record's metadata, the context that it was measured in (``contexts.jsonl``)."""


def categorization(metadata: Mapping[str, MetadataValue]) -> str:
    """Return VirtualClient's MetricCategorization of a record: its device, such as ``GPU 0``, or nothing."""
    if "categorization" in metadata:
        return str(metadata["categorization"])
    return f"GPU {metadata['gpu_index']}" if "gpu_index" in metadata else ""


class Relativity(str, Enum):
    """Which direction is better; the values are VirtualClient's MetricRelativity."""

    HIGHER = "HigherIsBetter"
    LOWER = "LowerIsBetter"
    UNDEFINED = "Undefined"


class Validity(str, Enum):
    """The verdict on a result.

    VALID and INVALID judge a result that exists; FAILED means that no result exists;
    NOT_APPLICABLE means that no result can be expected (such as accuracy with random weights).
    """

    VALID = "VALID"
    INVALID = "INVALID"
    FAILED = "FAILED"
    NOT_APPLICABLE = "NOT_APPLICABLE"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number from a parser, in the base unit that it names.

    Args:
        name: the metric's name, such as ``ttft_p99``; unique within its scenario.
        value: a finite number.
        unit: seconds, tokens/s, samples/s, queries/s, bytes, ratio, count, watts, …; never empty.
        relativity: whether higher or lower is better.
        description: a short description.
        verbosity: 1 for a headline number, 2 for an explanation of it, 3 and up for details
            (VirtualClient's scale: 0 to 5).
        tags: free labels.
        metadata: context; the tool's own number and unit if they differ.
        scenario: overrides the scenario of the output it belongs to.
        timestamp: when it was measured, where that is not the end of the step.

    Raises:
        ValueError: if the value is not finite or the unit or name is empty.
    """

    name: str
    value: float
    unit: str
    relativity: Relativity = Relativity.UNDEFINED
    description: str = ""
    verbosity: int = 1
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    scenario: str | None = None
    timestamp: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse what no sink could carry."""
        if not self.name or not self.unit:
            raise ValueError(f"a metric needs a name and a unit: {self.name!r}, {self.unit!r}")
        if not math.isfinite(self.value):
            raise ValueError(f"{self.name} is {self.value}, which is not a finite number")


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason why a result is not valid, and the remedy.

    Args:
        message: the constraint and the size of the miss, in words.
        remedy: the change to make, in words.
        setting: the name of the setting to change.
        value: the value to change it to.
        code: a stable name of the kind of reason, such as ``min_duration``.
    """

    message: str
    remedy: str = ""
    setting: str | None = None
    value: MetadataValue | None = None
    code: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A validity with its reasons; a valid result may carry warnings."""

    validity: Validity
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[str, ...] = ()


def verdict_to_json(verdict: Verdict | None) -> dict[str, Any]:
    """Return a verdict in the form of run.json and the journal; an output without one has validity None."""
    if verdict is None:
        return {"validity": None, "reasons": [], "warnings": []}
    return {
        "validity": verdict.validity.value,
        "reasons": [asdict(reason) for reason in verdict.reasons],
        "warnings": list(verdict.warnings),
    }


@dataclass(frozen=True, slots=True)
class ParsedOutput:
    """Content of one log, or one folder of logs.

    Args:
        format: the parser's name, such as ``loadgen``.
        tool_name: the tool that wrote the log.
        tool_version: its version, empty if unknown.
        scenario: the scenario the numbers belong to, such as ``Server/performance``.
        metrics: the numbers.
        verdict: the verdict, if the format has one.
        start: the start of the tool, if known (aware, UTC).
        end: the end of the tool.
        complete: False if the log was truncated and the metrics are only the complete ones.
        details: settings and headline facts for a report.
        sources: the files read.
    """

    format: str
    tool_name: str
    tool_version: str = ""
    scenario: str = ""
    metrics: tuple[Metric, ...] = ()
    verdict: Verdict | None = None
    start: datetime | None = None
    end: datetime | None = None
    complete: bool = True
    details: Mapping[str, MetadataValue] = field(default_factory=dict)
    sources: tuple[str, ...] = ()

    @property
    def validity(self) -> Validity | None:
        """The verdict's validity; truncated output without a verdict is FAILED."""
        if self.verdict:
            return self.verdict.validity
        return None if self.complete else Validity.FAILED


@dataclass(frozen=True, slots=True)
class Parser:
    """A format that ``vcagent parse`` knows; registered in the entry point group ``vcagent.parsers``.

    Args:
        name: the format's name, as used in ``--format``.
        description: a short description of the format.
        recognise: returns True if a file or folder has this format; cheap, never raises.
        parse: reads it; returns several outputs if a folder contains several runs. Raises ParseError if
            output is missing, ends before any number, or lacks the expected numbers.
        refuses: True if the parser only refuses formats; it is not asked about files that another one reads.
    """

    name: str
    description: str
    recognise: Callable[[Path], bool]
    parse: Callable[[Path], list[ParsedOutput]]
    refuses: bool = False


@dataclass(slots=True)
class MetricRecord:
    """One number with the context of its run: a line of ``metrics.jsonl``.

    Only the journal changes a record: when it stores the record, it sets its id and ``stored``. The class is
    not frozen: monitors create records each second, and a frozen one takes five times as long to create.

    Times are aware and in UTC. ``record_id`` is unique within the run and grows with time; a sink that may
    get a record twice after a resume detects duplicates by it. ``stored`` is the journal's form of the
    record, a JSON object without the id; empty if the record does not come from the journal.
    """

    record_id: int
    timestamp: datetime
    experiment_id: str
    run_id: str
    client_id: str
    profile: str
    tool_name: str
    tool_version: str
    scenario: str
    scenario_start: datetime
    scenario_end: datetime
    metric: str
    value: float
    unit: str
    relativity: Relativity
    verbosity: int = 1
    description: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    stored: str = field(default="", compare=False, repr=False)


def metric_of(record: MetricRecord) -> Metric:
    """Return a record's number without the context of its run."""
    return Metric(
        name=record.metric,
        value=record.value,
        unit=record.unit,
        relativity=record.relativity,
        description=record.description,
        verbosity=record.verbosity,
        tags=record.tags,
        metadata=record.metadata,
        scenario=record.scenario,
        timestamp=record.timestamp,
    )
