"""Prints the summary at the end of a fleet run."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from agent.core.layout import print_lines
from agent.core.quantities import plain_quantity, quantity, words
from agent.core.terminal import has_width
from agent.fleet.display import host_table
from agent.fleet.reasons import reason_groups
from agent.fleet.status import HostStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

_MOST_ROWS = 60


def render_fleet(description: Mapping[str, Any], console: Console) -> None:
    """Print the hosts, the distribution of each headline metric, and the sick hosts.

    Args:
        description: ``fleet.json``.
        console: the console to print to.
    """
    from rich.text import Text

    statuses = [HostStatus.from_json(host) for host in description["hosts"]]
    hosts = {status.name: status for status in statuses}
    console.print(host_table(hosts, _MOST_ROWS, expand=has_width(console)))
    print_reasons(statuses, console)
    if description["distributions"]:
        console.print(_metric_table(description["distributions"]))
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


def _metric_table(distributions: Sequence[Mapping[str, Any]]) -> Table:
    """Return the distribution of each metric over the hosts; the numbers of a row have one unit."""
    from rich.text import Text

    from agent.core.terminal import plain_table

    table = plain_table("", "unit", "hosts", "least", "median", "greatest", "sick")
    for column in table.columns[1:6]:
        column.no_wrap = True
    for column in table.columns[2:6]:
        column.justify = "right"
    for scenario, metrics in groupby(distributions, key=itemgetter("scenario")):
        table.add_row(Text(scenario, "bold"))
        for one in metrics:
            like = max(abs(one["minimum"]), abs(one["maximum"]))
            least, median, greatest = (
                quantity(one[name], one["unit"], like=like) for name in ("minimum", "median", "maximum")
            )
            table.add_row(
                Text(f"  {words(one['metric'])}"), least.unit, str(one["count"]),
                least.number, median.number, greatest.number, Text(", ".join(one["outliers"])),
            )  # fmt: skip
    return table


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
    value, baseline = (plain_quantity(defect[name], defect["unit"] or "") for name in ("value", "baseline"))
    share = "" if defect["variance"] is None else f" ({defect['variance']:+.1%})"
    return f"{told} is {value}, normal is {baseline}{share}"
