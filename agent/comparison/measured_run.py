"""A run prepared for a comparison: its values by scenario and metric, and the conditions of measurement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from agent.core.records import SUMMARY_TAG, Relativity, Validity
from agent.store.documents import RunDocument
from agent.store.metric_lines import is_monitor, read_records
from agent.store.results import METRICS_FILE
from agent.store.rounds import scenarios_without_rounds
from agent.store.sample_rows import SAMPLES_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.core.records import MetricRecord
    from agent.store.documents import CasePart


class Key(NamedTuple):
    """The subject of a comparison: a metric of a scenario."""

    scenario: str
    metric: str


@dataclass(frozen=True)
class Kind:
    """Properties that all values of a metric share."""

    unit: str
    relativity: Relativity
    verbosity: int


@dataclass(frozen=True)
class MeasuredRun:
    """A run.

    Args:
        folder: the run's folder.
        document: its run.json.
        cases: its cases by scenario, one for each round of the actions.
        values: the values of each metric, one for each round.
        kinds: the properties of each metric.
        watched: the monitors' summaries of each scenario: the values by metric.
        units: the units of the monitors' metrics.
    """

    folder: Path
    document: RunDocument
    cases: Mapping[str, Sequence[CasePart]]
    values: dict[Key, list[float]] = field(default_factory=dict)
    kinds: dict[Key, Kind] = field(default_factory=dict)
    watched: dict[Key, list[float]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The run's id."""
        return self.document.run_id or self.folder.name

    @property
    def host(self) -> str:
        """The host's name in records."""
        return self.document.client_id

    def validity(self, scenario: str) -> Validity | None:
        """Return the worst verdict on a scenario's cases; None if none was judged."""
        judged = {case.validity for case in self.cases.get(scenario, ())}
        worst = (Validity.FAILED, Validity.INVALID, Validity.VALID, Validity.NOT_APPLICABLE)
        return next((one for one in worst if one.value in judged), None)

    def samples_file(self, scenario: str) -> Path | None:
        """Return the samples file of a scenario; None if it has none, or one for each of several rounds."""
        cases = self.cases.get(scenario, ())
        if len(cases) != 1 or not cases[0].case_dir:
            return None
        path = self.folder / cases[0].case_dir / SAMPLES_FILE
        is_inside = path.resolve().is_relative_to(self.folder.resolve())
        return path if is_inside and path.is_file() else None


def read_measured_run(folder: Path) -> MeasuredRun:
    """Read a run's folder.

    Raises:
        UsageError: if it does not contain a readable run.json.
    """
    document = RunDocument.read(folder)
    names = scenarios_without_rounds(document.cases)
    cases: dict[str, list[CasePart]] = {}
    for case in document.cases:
        cases.setdefault(names[case.scenario], []).append(case)
    run = MeasuredRun(folder, document, cases)
    for record in read_records(folder / METRICS_FILE):
        _add(run, record, names.get(record.scenario, record.scenario))
    return run


def _add(run: MeasuredRun, record: MetricRecord, scenario: str) -> None:
    key = Key(scenario, record.metric)
    if SUMMARY_TAG in record.tags:
        run.watched.setdefault(key, []).append(record.value)
        run.units[record.metric] = record.unit
    elif not is_monitor(record.tool_name):
        run.values.setdefault(key, []).append(record.value)
        run.kinds.setdefault(key, Kind(record.unit, record.relativity, record.verbosity))
