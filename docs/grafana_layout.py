"""Draws the layout of the Grafana dashboard from its file: ``python docs/grafana_layout.py``.

The picture shows where each panel is, its kind, its unit and its metrics. It has no data, and it is not a
screenshot of Grafana.
"""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

DASHBOARD = Path(__file__).with_name("grafana") / "vcagent.json"
PICTURE = DASHBOARD.with_name("layout.svg")
_COLUMN, _ROW, _GAP, _LINE = 40, 16, 4, 15
"""Pixels of a column and a row of Grafana's grid, between panels, and between lines of text."""
_COLUMNS = 24
_STYLE = (
    "text{font:12px sans-serif;fill:#222}.t{font-weight:bold}.m{font-family:monospace;font-size:10px}"
    ".r{font-weight:bold;font-size:14px}rect{fill:#f6f7f9;stroke:#9aa4b2}"
)


def drawn(dashboard: dict[str, Any]) -> str:
    """Return a dashboard as an SVG document."""
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"]) * _ROW
    size = f'width="{_COLUMNS * _COLUMN}" height="{height}" viewBox="0 0 {_COLUMNS * _COLUMN} {height}"'
    title = f"<title>Layout of the dashboard {escape(dashboard['title'])}</title>"
    lines = [line for panel in dashboard["panels"] for line in _panel(panel)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join([head, title, f"<style>{_STYLE}</style>", *lines, "</svg>"]) + "\n"


def metrics_of(panel: dict[str, Any]) -> list[str]:
    """Return the names of a panel's metrics, or the patterns of them, in the order of its queries."""
    found = [
        name
        for target in panel.get("targets", ())
        for names in re.findall(r'__name__=~"([^"]+)"|(\bvcagent_\w+)', target["expr"])
        for name in names
        if name
    ]
    return list(dict.fromkeys(found))


def _panel(panel: dict[str, Any]) -> Iterator[str]:
    place = panel["gridPos"]
    x, y = place["x"] * _COLUMN, place["y"] * _ROW
    if panel["type"] == "row":
        yield f'<text class="r" x="{x + _GAP}" y="{y + _ROW - _GAP}">{escape(panel["title"])}</text>'
        return
    width, height = place["w"] * _COLUMN - _GAP, place["h"] * _ROW - _GAP
    unit = panel["fieldConfig"]["defaults"].get("unit", "none")
    kind_and_unit = panel["type"] if unit == "none" else f"{panel['type']}, {unit}"
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3"/>'
    texts = [
        ("t", panel["title"]),
        ("k", kind_and_unit),
        *(("m", one) for one in metrics_of(panel)),
    ]
    for number, (kind, text) in enumerate(texts, 1):
        yield f'<text class="{kind}" x="{x + 2 * _GAP}" y="{y + number * _LINE + _GAP}">{escape(text)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(drawn(json.loads(DASHBOARD.read_text(encoding="utf-8"))), encoding="utf-8")
