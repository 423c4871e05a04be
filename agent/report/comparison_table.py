"""A comparison on the terminal: first other differences, then the results, then the method."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

from rich.text import Text

from agent.comparison.verdicts import Outcome
from agent.core.quantities import quantity
from agent.core.terminal import plain_table

if TYPE_CHECKING:
    from rich.console import Console

    from agent.comparison.comparing import ComparedMetric, Comparison
    from agent.comparison.context import ContextDifference

_STYLES = {"better": "green", "worse": "bold red"}
_SHOWN = 60
"""Longest value that is shown in full, in characters."""


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print a comparison; 80 columns are enough."""
    letters = _letters(comparison)
    for name, runs in comparison.sides:
        count = f"{len(runs)} run{'s' * (len(runs) > 1)}"
        console.print(Text(f"{letters[name]} = {name} ({count})"))
    _print_context(comparison.context, list(letters.values()), console)
    for warning in comparison.warnings:
        console.print(Text(f"! {warning}", style="yellow"))
    for side, metrics in groupby(comparison.metrics, key=lambda one: one.side):
        _print_metrics(list(metrics), letters[side], console)
    console.print()
    for text in comparison.method:
        console.print(Text(text, style="dim"))
    console.print(_conclusion(comparison, letters))


def _letters(comparison: Comparison) -> dict[str, str]:
    return {name: chr(ord("A") + place) for place, (name, _) in enumerate(comparison.sides)}


def _print_context(context: tuple[ContextDifference, ...], letters: list[str], console: Console) -> None:
    if not context:
        console.print(Text("Settings, versions, clocks and hosts: no difference is recorded."))
        return
    table = plain_table("differs", "", *letters)
    last = ""
    for one in context:
        kind = "" if one.kind == last else one.kind
        last = one.kind
        table.add_row(*map(Text, (kind, one.name, *(_cut(", ".join(value) or "-") for value in one.values))))
    console.print(table)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _print_metrics(metrics: list[ComparedMetric], letter: str, console: Console) -> None:
    table = plain_table("", "A", letter, "change", "interval", "verdict")
    for column in table.columns[1:]:
        column.no_wrap = True
    for column in table.columns[1:5]:
        column.justify = "right"
    notes: dict[str, int] = {}
    for scenario, of_scenario in groupby(metrics, key=lambda one: one.key.scenario):
        table.add_row(Text(scenario, "bold"))
        for one in of_scenario:
            marks = "".join(f"[{notes.setdefault(note, len(notes) + 1)}]" for note in one.notes)
            table.add_row(*_row(one, marks))
    console.print()
    console.print(table)
    if repeated := next((one.repeats for one in metrics if one.repeats != (1, 1)), None):
        first, second = repeated
        console.print(Text(f"({first}, {second}): {first} values of A, {second} of {letter}", style="dim"))
    for note, number in notes.items():
        console.print(Text(f"[{number}] {note}", style="dim"))


def _row(one: ComparedMetric, marks: str) -> list[Text]:
    before, after = (
        quantity(value, one.kind.unit, like=one.before, digits=4) for value in (one.before, one.after)
    )
    count = "" if one.repeats == (1, 1) else f" ({one.repeats[0]}, {one.repeats[1]})"
    change = interval = ""
    if one.estimate:
        change = _percent(one.estimate.change)
        interval = " to ".join(map(_percent, one.estimate.interval))
    verdict = one.direction or one.outcome.value
    style = _STYLES.get(verdict, "bold" if one.outcome is Outcome.CHANGED else "")
    return [
        Text(f"  {one.key.metric}, {before.unit or one.kind.unit}{count}{marks}"),
        Text(before.number),
        Text(after.number),
        Text(change),
        Text(interval),
        Text(verdict, style),
    ]


def _percent(share: float) -> str:
    if not math.isfinite(share):
        return "∞"
    digits = 1 if abs(share) < 1 else 0
    return f"{100 * share:+.{digits}f} %"


def _conclusion(comparison: Comparison, letters: dict[str, str]) -> Text:
    text = Text()
    for side, scenario in comparison.invalid:
        text.append(f"{scenario}: the result of {letters[side]} no longer counts\n", "bold red")
    counts = dict.fromkeys(Outcome, 0)
    for one in comparison.metrics:
        counts[one.outcome] += 1
    text.append(", ".join(f"{count} {outcome.value}" for outcome, count in counts.items()))
    regressions = comparison.regressions
    text.append(
        f"; {regressions} regression{'s' * (regressions != 1)}" if regressions else "; no regression",
        "bold red" if regressions else "",
    )
    return text
