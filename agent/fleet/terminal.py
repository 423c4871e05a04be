"""Prints the summary at the end of a fleet run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.core.layout import print_lines
from agent.core.terminal import has_width
from agent.fleet.display import host_table
from agent.fleet.reasons import reason_groups
from agent.fleet.status import HostStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

_MOST_ROWS = 60


def render_fleet(description: Mapping[str, Any], console: Console) -> None:
    """Print the hosts, the distribution of each headline metric, and the sick hosts.

    Args:
        description: ``fleet.json``.
        console: the console to print to.
    """
    from rich.table import Table
    from rich.text import Text

    statuses = [HostStatus.from_json(host) for host in description["hosts"]]
    hosts = {status.name: status for status in statuses}
    console.print(host_table(hosts, _MOST_ROWS, expand=has_width(console)))
    print_reasons(statuses, console)
    if description["distributions"]:
        table = Table("case", "metric", "unit", "hosts", "least", "median", "greatest", "sick")
        for one in description["distributions"]:
            numbers = (f"{one[name]:.5g}" for name in ("minimum", "median", "maximum"))
            table.add_row(
                one["scenario"], one["metric"], one["unit"], str(one["count"]), *numbers,
                ", ".join(one["outliers"]),
            )  # fmt: skip
        console.print(table)
    for host in (description["diagnosis"] or {"hosts": ()})["hosts"]:
        for defect in host["defects"]:
            console.print(Text(host["host"], style="bold red"), end=": ")
            console.print(_defect(defect), highlight=False)
        for one in host.get("suspicions", ()):
            console.print(Text(f"{host['host']} (suspect)", style="bold yellow"), end=": ")
            console.print(_defect(one), highlight=False)
    if diagnosis := description["diagnosis"]:
        for text in (*diagnosis["warnings"], f"diagnosis of {diagnosis['summary']}"):
            print_lines(console, text)
    elif undiagnosed := description["undiagnosed"]:
        print_lines(console, f"no diagnosis: {undiagnosed}")


def print_reasons(statuses: Sequence[HostStatus], console: Console) -> None:
    """Print the full reasons and remedies of failed hosts; equal reasons once, with their hosts."""
    from rich.text import Text

    for group in reason_groups(statuses):
        reason = f"{group.step}: {group.reason}" if group.step else group.reason
        print_lines(console, reason, lead=Text(f"{', '.join(group.hosts)}: ", style="bold"))
    for status in statuses:
        if status.warning:
            print_lines(console, status.warning, lead=Text(f"{status.name}: ", style="bold"))


def _defect(defect: Mapping[str, Any]) -> str:
    """Return one line with the measured and the normal value."""
    told = f"{defect['category']}: {defect['metric'] or defect['criteria']}"
    if defect["value"] is None or defect["baseline"] is None:
        return told
    unit = f" {defect['unit']}" if defect["unit"] else ""
    share = "" if defect["variance"] is None else f" ({defect['variance']:+.1%})"
    return f"{told} is {defect['value']:.5g}{unit}, normal is {defect['baseline']:.5g}{share}"
