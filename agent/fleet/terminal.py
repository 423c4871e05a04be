"""What a fleet run says at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.fleet.display import host_table
from agent.fleet.status import HostStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

__all__ = ["render_fleet"]


def render_fleet(description: Mapping[str, Any], console: Console) -> None:
    """Print the hosts, the spread of each headline metric, and who stands apart.

    Args:
        description: ``fleet.json``.
        console: where to.
    """
    from rich.table import Table

    more = ("good", "report", "headline")
    statuses = [
        HostStatus.from_json({name: value for name, value in host.items() if name not in more})
        for host in description["hosts"]
    ]
    console.print(host_table({status.name: status for status in statuses}))
    for status in statuses:
        if status.reason:
            console.print(f"[bold]{status.name}[/]: ", end="")
            console.print(status.reason, markup=False, highlight=False)
    if description["distributions"]:
        table = Table("case", "metric", "unit", "hosts", "least", "median", "greatest", "stands apart")
        for one in description["distributions"]:
            numbers = (f"{one[name]:.5g}" for name in ("minimum", "median", "maximum"))
            table.add_row(
                one["scenario"], one["metric"], one["unit"], str(one["count"]), *numbers,
                ", ".join(one["outliers"]),
            )  # fmt: skip
        console.print(table)
