"""``vcagent parse``: what a tool's raw output says, and whether it counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli.options import AsJson

if TYPE_CHECKING:
    from rich.console import Console

    from agent.core.records import Metric, ParsedOutput

_STYLES = {
    "VALID": "bold green",
    "INVALID": "bold red",
    "FAILED": "bold red",
    "NOT_APPLICABLE": "bold yellow",
}


def parse(
    path: Annotated[Path, typer.Argument(help="A log, a folder of logs, or a tree of such folders.")],
    format: Annotated[  # noqa: A002 (the option's name)
        str | None,
        typer.Option(
            "--format", "-F", help="The format; recognised from the content by default.", show_default=False
        ),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="Show every metric, not only the main ones.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read a tool's raw output: the verdict, its reasons with remedies, and the numbers.

    The exit code is 0 if the result is VALID, 7 if it is INVALID, 6 if it is incomplete or missing.
    """
    from agent.cli.output import say
    from agent.component.parsing import broken_parsers, exit_code, parse_path

    for broken in broken_parsers().values():
        say(f"warning: {broken.message}", error=True)
    outputs = parse_path(path, format)
    if as_json:
        from agent.cli.output import print_document
        from agent.store.command_documents import ParseDocument

        print_document(ParseDocument, {"outputs": [_as_dict(output) for output in outputs]})
    else:
        from agent.core.terminal import safe_console

        console = safe_console(highlight=False, soft_wrap=True)
        for output in outputs:
            _show(console, output, most=5 if show_all else 1)
    raise typer.Exit(exit_code(outputs))


def _show(console: Console, output: ParsedOutput, most: int) -> None:
    from rich.text import Text

    validity = output.verdict.validity.value if output.verdict else ""
    title = Text(output.scenario or output.format, style="bold")
    title.append(f"  {validity}", style=_STYLES.get(validity, ""))
    title.append(f"  {output.tool_name} {output.tool_version}".rstrip(), style="dim")
    if not output.complete:
        title.append("  incomplete", style="bold red")
    console.print(title)
    if output.verdict:
        for reason in output.verdict.reasons:
            console.print(Text(f"  ✗ {reason.message}"))
            if reason.remedy:
                console.print(Text(f"    → {reason.remedy}", style="cyan"))
        for warning in output.verdict.warnings:
            console.print(Text(f"  ! {warning}", style="yellow"))
    shown = [metric for metric in output.metrics if metric.verbosity <= most]
    if shown:
        console.print(_table(shown))
    if left := len(output.metrics) - len(shown):
        console.print(Text(f"  {left} more with --all", style="dim"))
    console.print()


def _table(metrics: list[Metric]) -> Any:
    from rich.text import Text

    from agent.core.terminal import plain_table

    table = plain_table()
    columns = [("metric", "left"), ("value", "right"), ("unit", "left"), ("what it is", "left")]
    cases = any(map(_case, metrics))
    for name, justify in [("case", "left"), *columns] if cases else columns:
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for metric in metrics:
        row = (metric.name, f"{metric.value:.6g}", metric.unit, metric.description)
        table.add_row(*(Text(cell) for cell in ([_case(metric), *row] if cases else row)))
    return table


def _case(metric: Metric) -> str:
    """Return what tells a metric from others of its name: its own scenario, and when it was measured."""
    time = metric.timestamp.isoformat(" ", "milliseconds").removesuffix("+00:00") if metric.timestamp else ""
    return " ".join(filter(None, (metric.scenario, time)))


def _as_dict(output: ParsedOutput) -> dict[str, Any]:
    from agent.core.records import verdict_to_json

    return {
        "format": output.format,
        "tool_name": output.tool_name,
        "tool_version": output.tool_version,
        "scenario": output.scenario,
        "complete": output.complete,
        "start": output.start.isoformat() if output.start else None,
        "end": output.end.isoformat() if output.end else None,
        "verdict": verdict_to_json(output.verdict),
        "metrics": [
            {
                "name": metric.name,
                "scenario": metric.scenario or output.scenario,
                "value": metric.value,
                "unit": metric.unit,
                "relativity": metric.relativity.value,
                "verbosity": metric.verbosity,
                "description": metric.description,
                "tags": list(metric.tags),
                "metadata": dict(metric.metadata),
                "timestamp": metric.timestamp.isoformat() if metric.timestamp else None,
            }
            for metric in output.metrics
        ],
        "details": dict(output.details),
        "sources": list(output.sources),
    }
