"""A comparison as a self-contained page: other differences, the verdicts, and plots of every side."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from agent.core.counts import count_of
from agent.core.errors import ParseError
from agent.core.quantities import quantity
from agent.core.safe_files import replace_text
from agent.report.figures import LATENCIES, Figure, chart_figure
from agent.report.html import page_environment
from agent.report.page_filters import agent_version
from agent.report.plots import Axis, Line, line_plot
from agent.report.samples import Distribution, read_samples
from agent.store.exhibits import Chart, Column, Point, Series
from agent.store.journal import now
from agent.store.metric_lines import moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agent.comparison.comparing import ComparedMetric, Comparison
    from agent.comparison.measured_run import MeasuredRun
    from agent.comparison.sides import Side

_STEPS = 80
_LAST_PERCENTILE = 99.5
"""Percentile at which plots of distributions end; larger values would compress the rest."""
_TONES = {"better": "good", "worse": "bad", "undecided": "warn"}


def write_comparison_page(path: Path, comparison: Comparison, sides: Sequence[Side]) -> None:
    """Write the page, completely or not at all.

    Args:
        path: the file.
        comparison: the result of the comparison.
        sides: the sides that were compared.
    """
    names = [chr(ord("A") + place) for place in range(len(sides))]
    letters = {side.name: name for side, name in zip(sides, names, strict=True)}
    text = page_environment().get_template("comparison.html.j2").render(
        agent_version=agent_version({}),
        made=now(),
        comparison=comparison,
        sides=[(letters[name], name) for name, _ in comparison.sides],
        sides_rows=[
            (f"{letters[name]}, {count_of(len(runs), 'run')}", _side_text(name, runs))
            for name, runs in comparison.sides
        ],
        letters=letters,
        scenarios=[
            (
                scenario,
                [_row(one, letters, _common_notes(of_it)) for one in of_it],
                _common_notes(of_it),
                list(_figures(scenario, of_it, names, sides)),
            )
            for scenario, of_it in _by_scenario(comparison)
        ],
    )  # fmt: skip
    replace_text(path, text)


def _side_text(name: str, runs: Sequence[str]) -> str:
    """Return a side's name with its runs; a side that is one run is shown once."""
    return name if [name] == list(runs) else f"{name}: {', '.join(runs)}"


def _common_notes(metrics: Sequence[ComparedMetric]) -> tuple[str, ...]:
    """Return the notes that all metrics of a scenario have; the page shows them once."""
    first = metrics[0].notes if len(metrics) > 1 else ()
    return tuple(note for note in first if all(note in one.notes for one in metrics))


def _by_scenario(comparison: Comparison) -> list[tuple[str, list[ComparedMetric]]]:
    """Return the metrics of each scenario, with all sides of a metric next to each other."""
    places = {key: place for place, key in enumerate(dict.fromkeys(one.key for one in comparison.metrics))}
    ordered = sorted(comparison.metrics, key=lambda one: (one.key.scenario, places[one.key]))
    return [(name, list(of_it)) for name, of_it in groupby(ordered, key=lambda one: one.key.scenario)]


def _row(one: ComparedMetric, letters: dict[str, str], known: Sequence[str]) -> dict[str, object]:
    verdict = one.direction or one.outcome.value
    shares = (one.estimate.change, *one.estimate.interval) if one.estimate else ()
    change, *interval = [f"{100 * share:+.1f} %" for share in shares] or [""]
    return {
        "metric": one.key.metric,
        "side": letters[one.side],
        "before": quantity(one.before, one.kind.unit),
        "after": quantity(one.after, one.kind.unit, like=one.before),
        "repeats": f"{one.repeats[0]}, {one.repeats[1]}",
        "change": change,
        "interval": " to ".join(interval),
        "verdict": verdict,
        "tone": _TONES.get(verdict, "none"),
        "notes": [note for note in one.notes if note not in known],
    }


def _figures(
    scenario: str, metrics: Sequence[ComparedMetric], names: Sequence[str], sides: Sequence[Side]
) -> Iterator[Figure]:
    yield from _distributions(scenario, names, sides)
    starts = [at for side in sides for run in side.runs if (at := moment(run.document.start))]
    for key, kind in {one.key: one.kind for one in metrics}.items():
        series = []
        for name, side in zip(names, sides, strict=True):
            points = [
                Point((at - min(starts)).total_seconds() / 3600, value)
                for run in side.runs
                if (at := moment(run.document.start))
                for value in run.values.get(key, ())
            ]
            series.append(Series(name, tuple(points)))
        if any(one.points for one in series):
            x, y = Column("hours since the first run", ""), Column(key.metric, kind.unit)
            yield chart_figure(Chart(f"{key.metric} over time", x, y, tuple(series)))


def _distributions(scenario: str, names: Sequence[str], sides: Sequence[Side]) -> Iterator[Figure]:
    """Plot the samples of each side's first run that has samples, on top of each other."""
    found = [(name, one) for name, side in zip(names, sides, strict=True)
             if (one := next(_samples(scenario, side.runs), None))]  # fmt: skip
    for kind, title in LATENCIES.items():
        distributions = [(name, one[kind]) for name, one in found if kind in one]
        if len(distributions) > 1:
            yield _over_one_another(title, distributions)


def _samples(scenario: str, runs: Sequence[MeasuredRun]) -> Iterator[dict[str, Distribution]]:
    for run in runs:
        path = run.samples_file(scenario)
        if path is None:
            continue
        try:
            statistics = read_samples(path)
        except (ParseError, OSError):
            continue
        yield {kind: one for kind in LATENCIES if (one := getattr(statistics, kind))}


def _over_one_another(title: str, distributions: Sequence[tuple[str, Distribution]]) -> Figure:
    low_s = min(one.minimum_s for _, one in distributions)
    high_s = max(one.percentile(_LAST_PERCENTILE) for _, one in distributions)
    high_s = high_s if high_s > low_s else low_s + 1e-9
    step_s = (high_s - low_s) / _STEPS
    lines = [
        Line(name, [(low_s + step_s * (place + 0.5), share)
                    for place, share in enumerate(one.histogram(low_s, high_s, _STEPS))])
        for name, one in distributions
    ]  # fmt: skip
    top = max(share for line in lines for _, share in line.points)
    svg = line_plot(
        title, lines, Axis(title, "seconds", low_s, high_s), Axis("share", "ratio", 0, top * 1.05)
    )
    legend = tuple((f"s{place}", name) for place, (name, _) in enumerate(distributions, start=1))
    return Figure(f"{title}, samples", f"up to the {_LAST_PERCENTILE}th percentile", svg, legend)
