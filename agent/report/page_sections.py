"""Prepares the content of each section of a page, for the templates to lay out."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.component.component import CASE_OWNER
from agent.core.counts import count_of
from agent.core.errors import ParseError
from agent.core.mlperf import NO_RESULT, STANDING
from agent.core.quantities import Quantity, format_duration, quantity, words
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
from agent.report.samples import SampleStatistics, read_samples
from agent.store.exhibits import Table, read_exhibits
from agent.store.sample_rows import SAMPLES_FILE

if TYPE_CHECKING:
    from agent.core.records import Metric
    from agent.report.run_folder import CaseResult, RunResult

FILE_LIMIT = 60
HOST_FACTS = "Host facts"
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
        percentiles: the title of each latency with the cells of the table of percentiles; a cell is None if
            the case has too few samples for that percentile.
        limits: the limits that were applied to latency and size, in words.
        mlperf: whether the result follows MLPerf's rules, in words; empty for other workloads.
        files: raw logs.
    """

    case: CaseResult
    anchor: str
    tool: str
    duration: str
    headline: list[Metric]
    note: str
    percentiles: list[tuple[str, list[Quantity | None]]]
    figures: list[Figure]
    details: Rows
    identity: Rows
    files: list[Path]
    gpus: GpuTable | None
    tables: tuple[Table, ...]
    limits: str = ""
    mlperf: str = ""


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
        limits=_limits(case.details),
        mlperf=str(case.details.get(STANDING) or ""),
    )


def identity(run: RunResult, sections: Sequence[CaseSection] = ()) -> Rows:
    """Return the rows that identify a run: host, processor, GPUs, limits, time, run, experiment."""
    facts = run.values.get("facts")
    rows = [
        ("Host", run.client_id),
        *(_hardware(facts) if isinstance(facts, Mapping) else ()),
        ("Limits", _all_limits(sections)),
        ("MLPerf", NO_RESULT if any(section.mlperf.startswith(NO_RESULT) for section in sections) else ""),
        ("Started", moment(run.start)),
        ("Duration", format_duration(run.duration_s) if run.duration_s is not None else "did not end"),
        ("Run", run.run_id),
        ("Experiment", run.experiment_id),
        ("Profile from", plain(run.profile.get("sources") or "")),
    ]
    return [row for row in rows if row[1]]


def _hardware(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield rows for the processor, the memory and the GPUs."""
    topology, processor, memory = (facts.get(name) or {} for name in ("cpu_topology", "processor", "memory"))
    model = processor.get("model") or topology.get("model_name")
    cores = processor.get("logical_cores") or topology.get("logical")
    yield "Processor", ", ".join(filter(None, (model, cores and f"{cores} logical CPUs")))
    total = memory.get("total_bytes")
    yield "Memory", str(quantity(total, "bytes")) if isinstance(total, int) else ""
    gpus = [gpu for name in ("gpus", "amd_gpus") for gpu in facts.get(name) or () if isinstance(gpu, Mapping)]
    counts = Counter(str(gpu.get("name") or "unknown") for gpu in gpus)
    yield "GPUs", ", ".join(f"{count} \u00d7 {name}" for name, count in counts.items())


def _all_limits(sections: Sequence[CaseSection]) -> str:
    """Return the limits of all cases: once if they are equal, else each with its case."""
    known = [section for section in sections if section.limits]
    texts = dict.fromkeys(section.limits for section in known)
    if len(texts) < 2:  # noqa: PLR2004 - nothing to tell apart
        return "".join(texts)
    return "; ".join(f"{section.case.scenario}: {section.limits}" for section in known)


def _limits(details: Mapping[str, Any]) -> str:
    """Return a case's latency limits, in words."""
    known = latency_limits(details)
    return ", ".join(
        f"{words(kind)} \u2264 {quantity(known[kind], 'seconds')}" for kind in LATENCIES if kind in known
    )


def setting_groups(run: RunResult) -> list[tuple[str, Rows, bool]]:
    """Return title, rows, and whether the group is open: parameters, command line, versions, host facts."""
    command = run.values.get("command_line")
    words = [str(word) for word in command] if isinstance(command, list) else []
    groups = [
        ("Profile parameters", list(_flat(run.profile.get("parameters"))), True),
        ("Command line", [("vcagent", shlex.join(words))] if words else [], True),
        ("Versions", list(_flat(run.values.get("versions"))), True),
        (HOST_FACTS, list(_flat(run.values.get("facts"))), False),
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


def _percentiles(statistics: SampleStatistics) -> list[tuple[str, list[Quantity | None]]]:
    rows: list[tuple[str, list[Quantity | None]]] = []
    for kind, title in LATENCIES.items():
        if distribution := getattr(statistics, kind):
            values_s: list[float | None] = [distribution.minimum_s, distribution.mean_s]
            values_s += [
                distribution.percentile(percent) if distribution.bears(percent) else None
                for percent in PERCENTILES
            ]
            values_s.append(distribution.maximum_s)
            median_s = distribution.percentile(50)
            cells = [
                None if value_s is None else quantity(value_s, "seconds", like=median_s)
                for value_s in values_s
            ]
            rows.append((title, cells))
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
