"""Prepares the content of each section of a page, for the templates to lay out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.component.component import CASE_OWNER
from agent.core.errors import ParseError
from agent.report.figures import (
    LATENCIES,
    PERCENTILES,
    Figure,
    chart_figure,
    latency_limits,
    sample_figures,
)
from agent.report.gpu_usage import GpuTable, gpu_table
from agent.report.page_filters import moment, plain
from agent.report.quantities import Quantity, count_of, format_duration, quantity
from agent.report.samples import SampleStatistics, read_samples
from agent.store.exhibits import Table, read_exhibits
from agent.store.sample_rows import SAMPLES_FILE

if TYPE_CHECKING:
    from agent.core.records import Metric
    from agent.report.run_folder import CaseResult, RunResult

FILE_LIMIT = 60
TILE_LIMIT = 12

Rows = list[tuple[str, str]]


@dataclass(frozen=True)
class CaseSection:
    """One case as shown on a page.

    Args:
        case: the case.
        anchor: the anchor of its section on the page.
        note: problems with its samples, if any.
        tables: the case's tables for comparison.
        gpus: the GPUs' usage during the case; None if no GPU was monitored.
        percentiles: the title of each latency with the cells of the table of percentiles.
        files: raw logs.
    """

    case: CaseResult
    anchor: str
    tool: str
    duration: str
    headline: list[Metric]
    note: str
    percentiles: list[tuple[str, list[Quantity]]]
    figures: list[Figure]
    details: Rows
    identity: Rows
    files: list[Path]
    gpus: GpuTable | None
    tables: tuple[Table, ...]


def case_sections(run: RunResult) -> list[CaseSection]:
    """Return the run's cases in order; the samples of a folder belong to its first case."""
    sections, seen = [], set[Path]()
    for number, case in enumerate(run.cases, start=1):
        has_samples = case.case_dir is not None and case.case_dir not in seen
        if case.case_dir:
            seen.add(case.case_dir)
        sections.append(_case_section(run, case, number, has_samples=has_samples))
    return sections


def _case_section(run: RunResult, case: CaseResult, number: int, *, has_samples: bool) -> CaseSection:
    statistics, note = _samples(case.case_dir) if case.case_dir and has_samples else (None, "")
    duration = format_duration((case.end - case.start).total_seconds()) if case.start and case.end else ""
    tool = f"{case.tool_name} {case.tool_version}".strip()
    exhibits = read_exhibits(case.case_dir)
    name = str(run.profile.get("name") or "")
    rows = [
        ("Tool", tool),
        ("Host", run.client_id),
        ("Profile", name),
        ("Started", moment(case.start)),
        ("Duration", duration),
    ]
    return CaseSection(
        case=case,
        anchor=f"case-{number}-{re.sub(r'[^a-z0-9]+', '-', case.scenario.lower()).strip('-')}",
        tool=tool,
        duration=duration,
        headline=case.headline[:TILE_LIMIT],
        note=" ".join(filter(None, (note, exhibits.problem))),
        percentiles=_percentiles(statistics) if statistics else [],
        figures=[
            *map(chart_figure, exhibits.charts),
            *(sample_figures(statistics, latency_limits(case.details)) if statistics else []),
        ],
        details=list(_flat(case.details)),
        identity=[row for row in rows if row[1]],
        files=_files(case.case_dir) if case.case_dir else [],
        gpus=gpu_table(case.usage),
        tables=exhibits.tables,
    )


def identity(run: RunResult) -> Rows:
    """Return the rows that identify a run: host, time, run, experiment."""
    rows = [
        ("Host", run.client_id),
        ("Started", moment(run.start)),
        ("Duration", format_duration(run.duration_s) if run.duration_s is not None else "did not end"),
        ("Run", run.run_id),
        ("Experiment", run.experiment_id),
        ("Profile from", plain(run.profile.get("sources") or "")),
    ]
    return [row for row in rows if row[1]]


def setting_groups(run: RunResult) -> list[tuple[str, Rows, bool]]:
    """Return title, rows, and whether the group is open: parameters, command line, versions, host facts."""
    command = run.values.get("command_line")
    words = [str(word) for word in command] if isinstance(command, list) else []
    groups = [
        ("Profile parameters", list(_flat(run.profile.get("parameters"))), True),
        ("Command line", [("vcagent", shlex.join(words))] if words else [], True),
        ("Versions", list(_flat(run.values.get("versions"))), True),
        ("Host facts", list(_flat(run.values.get("facts"))), False),
    ]
    return [group for group in groups if group[1]]


def _samples(case_dir: Path) -> tuple[SampleStatistics | None, str]:
    path = case_dir / SAMPLES_FILE
    if not path.is_file():
        return None, ""
    try:
        statistics = read_samples(path)
    except (ParseError, OSError) as error:
        return None, f"No distributions: {error}"
    notes = []
    if lost := statistics.issued - statistics.completed:
        notes.append(f"{lost:,} of {count_of(statistics.issued, 'issued sample')} never completed.")
    if statistics.unread_rows:
        notes.append(f"{count_of(statistics.unread_rows, 'row')} of {SAMPLES_FILE} could not be read.")
    return statistics, " ".join(notes)


def _percentiles(statistics: SampleStatistics) -> list[tuple[str, list[Quantity]]]:
    rows = []
    for kind, title in LATENCIES.items():
        if distribution := getattr(statistics, kind):
            values_s = [distribution.minimum_s, distribution.mean_s]
            values_s += [distribution.percentile(percent) for percent in PERCENTILES]
            values_s.append(distribution.maximum_s)
            median_s = distribution.percentile(50)
            rows.append((title, [quantity(value_s, "seconds", like=median_s) for value_s in values_s]))
    return rows


def _files(case_dir: Path) -> list[Path]:
    own = {f"benchmark_report_{case_dir.name}.html", CASE_OWNER}
    files = (path for path in sorted(case_dir.rglob("*")) if path.is_file() and not path.is_symlink())
    return [path for path in files if path.name not in own and path.suffix != ".part"][:FILE_LIMIT]


def _flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Return nested values as dotted names, each with a text; lists of plain values stay on one line."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        for number, item in enumerate(value):
            yield from _flat(item, f"{name}[{number}]")
    elif name:
        yield name, _size(name, value) or plain(value)


def _size(name: str, value: Any) -> str:
    if not name.endswith("_bytes") or isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    return f"{quantity(value, 'bytes')} ({value:,})"
