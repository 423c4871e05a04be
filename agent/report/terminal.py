"""What the terminal shows after a run: the result with its reasons."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.measure import Measurement
from rich.padding import Padding
from rich.text import Text

from agent.core.layout import print_entry
from agent.core.quantities import quantity, words
from agent.core.terminal import plain_table
from agent.report.run_folder import CaseResult, RunResult, StepResult, run_result
from agent.report.status import run_status, setting_to_change
from agent.report.step_output import last_lines
from agent.store.exhibits import Table as Exhibit
from agent.store.exhibits import read_exhibits
from agent.store.metric_lines import as_records
from agent.store.results import REPORT_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

    from agent.core.records import Metric, MetricRecord, Reason

HEADLINE_LIMIT = 6
ACTION_LIMIT = 8
"""Actions without a case that are shown, the last ones."""
OUTPUT_LINES = 20
"""Lines of its log that an action without a case shows."""

_UNLIMITED = 10_000
_NAME_WIDTH = 19
_STYLES = {
    "VALID": "bold green",
    "DONE": "bold green",
    "INVALID": "bold yellow",
    "FAILED": "bold red",
    "INTERRUPTED": "bold yellow",
}
_SIGNS = {"VALID": "✓", "DONE": "✓", "INVALID": "!", "FAILED": "✕"}


def render_result(
    run: Mapping[str, Any],
    records: Iterable[Mapping[str, Any] | MetricRecord],
    console: Console,
    *,
    run_dir: Path | None = None,
) -> None:
    """Show each case's verdict and numbers, then the reasons with their remedies, then the report's path.

    Args:
        run: the content of run.json.
        records: the run's records, or the values of the lines of its metrics.jsonl.
        console: the console to print to.
        run_dir: the run's folder; the path of its report is shown if it exists.
    """
    result = run_result(run, as_records(records), run_dir or Path())
    status = run_status(result.verdict, run)
    if result.cases:
        table = _case_table(result)
        wanted = Measurement.get(console, console.options.update_width(_UNLIMITED), table).maximum
        console.print(table if wanted <= console.width else _case_table(result, narrow=True))
    for case in result.cases:
        for exhibit in read_exhibits(case.case_dir).tables:
            console.print(_exhibit(exhibit))
    actions = result.plain_actions
    if earlier := len(actions[:-ACTION_LIMIT]):
        console.print(Text(f"… {earlier:,} earlier actions: see the report", style="dim"))
    for step in actions[-ACTION_LIMIT:]:
        _print_action(step, console)
    _print_reasons(result, console, actions[-ACTION_LIMIT:])
    line = Text("Result: ").append_text(_status(status))
    if reason := str(run.get("exit_reason") or ""):
        line.append(f"  {reason}")
    console.print(line)
    if run_dir and (run_dir / REPORT_FILE).is_file():
        console.print(Text("Report: ").append(str(run_dir / REPORT_FILE), style="underline"), soft_wrap=True)


def _print_action(step: StepResult, console: Console) -> None:
    """Print the result and the end of the log of an action that has no case."""
    print_entry(console, Text(f"{step.title}  ", style="bold"), step.message or step.status, indent=2)
    for line in last_lines(step.log, OUTPUT_LINES):
        console.print(Text(f"  {line}"), soft_wrap=True)
    console.print()


def _case_table(run: RunResult, *, narrow: bool = False) -> Table:
    """Return the cases with their numbers; a narrow table breaks names between their parts."""
    table = plain_table()
    table.add_column("Case", overflow="fold", style="bold")
    table.add_column("Verdict", no_wrap=True)
    table.add_column("Metric", overflow="fold")
    table.add_column("Value", justify="right", no_wrap=True)
    table.add_column("Unit", no_wrap=True, style="dim")
    rows_before = 0
    for case in run.cases:
        validity = case.verdict.validity.value if case.verdict else "NO VERDICT"
        names = _name_lines(case.scenario) if narrow else [case.scenario]
        rows = [_cells(metric) for metric in case.headline[:HEADLINE_LIMIT]]
        if not rows:
            told = "see its table" if read_exhibits(case.case_dir).tables else "no numbers"
            rows = [(Text(told, style="dim"), Text(), Text())]
        rows += [(Text(), Text(), Text())] * (len(names) - len(rows))
        if len(rows) > 1 or rows_before > 1:
            table.add_section()
        rows_before = len(rows)
        for number, cells in enumerate(rows):
            name = names[number] if number < len(names) else ""
            table.add_row(Text(name), _status(validity) if number == 0 else "", *cells)
    return table


def _name_lines(scenario: str) -> list[str]:
    """Return a scenario in lines of up to ``_NAME_WIDTH`` columns, broken after slashes; parts stay whole.

    The last line is as long as possible: ``Server/performance`` stays together.
    """
    lines = [""]
    for part in reversed(re.findall(r"[^/]*/|[^/]+", scenario)):
        if lines[0] and len(part) + len(lines[0]) > _NAME_WIDTH:
            lines.insert(0, "")
        lines[0] = part + lines[0]
    return lines


def _exhibit(exhibit: Exhibit) -> Table:
    """Return an exhibit with one column for each thing compared: there are fewer things than properties."""
    table = plain_table(title=exhibit.title, title_justify="left")
    table.add_column("", overflow="fold")
    for row in exhibit.rows:
        table.add_column(row.name, justify="right", overflow="fold", style="bold")
    for place, column in enumerate(exhibit.columns):
        texts = []
        for row in exhibit.rows:
            cell = row.cells[place]
            text = Text(cell.text(column.unit))
            if cell.note and cell.value is not None:
                text.append(f"\n{cell.note}", style="not bold dim")
            texts.append(text)
        table.add_row(Text(column.title), *texts)
    return table


def _cells(metric: Metric) -> tuple[Text, Text, Text]:
    shown = quantity(metric.value, metric.unit)
    return Text(words(metric.name)), Text(shown.number, style="bold"), Text(shown.unit)


def _print_reasons(run: RunResult, console: Console, shown: Sequence[StepResult]) -> None:
    """Print each case's reasons, then the run's except those of the steps that are shown already."""
    told = {
        reason.message
        for reason in (run.verdict.reasons if run.verdict else ())
        if any(_is_of(reason, step) for step in shown)
    }
    known = len(told)
    for case in run.cases:
        _print_verdict(case.scenario, case, console, told)
    _print_verdict("", run, console, told)
    if len(told) > known:
        console.print()


def _is_of(reason: Reason, step: StepResult) -> bool:
    """Return True if a step's message has all that a reason says."""
    text = " ".join(reason.message.removeprefix(f"{step.title}: ").split())
    message = " ".join(step.message.split())
    return bool(text) and text in message and " ".join(reason.remedy.split()) in message


def _print_verdict(scenario: str, judged: CaseResult | RunResult, console: Console, told: set[str]) -> None:
    """Print the reasons and warnings not printed yet: those of a run often repeat those of its cases."""
    verdict = judged.verdict
    reasons = [
        reason
        for reason in (verdict.reasons if verdict else ())
        if not any(message and message in reason.message for message in told)
    ]
    warnings = [
        warning for warning in judged.warnings if not any(message and message in warning for message in told)
    ]
    told.update(reason.message for reason in reasons)
    told.update(warnings)
    if not (reasons or warnings):
        return
    console.print()
    status = verdict.validity.value if verdict else "NO VERDICT"
    if scenario:
        console.print(Text(scenario, style="bold").append("  ").append_text(_status(status)))
    for reason in reasons:
        _print_reason(reason, console, _STYLES.get(status, ""), verdict.reasons if verdict else ())
    for warning in warnings:
        console.print(Padding(Text(f"warning: {warning}", style="yellow"), (0, 0, 0, 2), expand=False))


def _print_reason(reason: Reason, console: Console, style: str, others: Sequence[Reason]) -> None:
    console.print(Padding(Text(reason.message, style=style), (0, 0, 0, 2), expand=False))
    if reason.remedy:
        console.print(Padding(Text(f"→ {reason.remedy}"), (0, 0, 0, 4), expand=False))
    if change := setting_to_change(reason, others):
        text = Text("→ set ").append(" to ".join(filter(None, change)), style="bold")
        console.print(Padding(text, (0, 0, 0, 4), expand=False))


def _status(status: str) -> Text:
    key = status.replace(" ", "_")
    return Text(f"{_SIGNS.get(key, '-')} {status.replace('_', ' ')}", style=_STYLES.get(key, "dim"))
