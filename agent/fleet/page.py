"""``report.html`` of a fleet run: its hosts, the spread of each headline metric, who stands apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.fleet.distribution import Distribution

__all__ = ["PAGE_FILE", "write_page"]

PAGE_FILE = "report.html"
_STRIP_WIDTH = 480


def write_page(run_dir: Path, description: Mapping[str, Any], found: Sequence[Distribution]) -> None:
    """Write the page, whole or not at all; it loads nothing from anywhere.

    Args:
        run_dir: the fleet run's folder.
        description: ``fleet.json``.
        found: the distributions.
    """
    environment = Environment(
        loader=PackageLoader("agent.fleet"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("fleet.html.j2").render(
        fleet=description,
        distributions=[(one, _strip(one)) for one in found],
        width=_STRIP_WIDTH,
    )
    part = run_dir / f"{PAGE_FILE}.part"
    part.write_text(text, encoding="utf-8")
    part.replace(run_dir / PAGE_FILE)


def _strip(one: Distribution) -> list[dict[str, Any]]:
    """Where each host's value stands between the least and the greatest."""
    least, greatest = min(one.values.values()), max(one.values.values())
    spread = greatest - least
    return [
        {
            "host": host,
            "value": value,
            "x": round(8 + (_STRIP_WIDTH - 16) * ((value - least) / spread if spread else 0.5), 1),
            "outlier": host in one.outliers,
        }
        for host, value in one.values.items()
    ]
