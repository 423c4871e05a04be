"""SVG elements as safe markup: every value is escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Iterable


def element(tag: str, *children: Markup | str, **attributes: str | float | None) -> Markup:
    """Return an element. ``class_`` sets the class, other underscores become hyphens, None is left out."""
    inside = "".join(map(escape, children))
    names = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    whole = f"<{tag}{names}>{inside}</{tag}>" if inside else f"<{tag}{names}/>"
    return Markup(whole)  # noqa: S704 - children and values are escaped above, names come from this package


def text(content: str, x: float, y: float, *, class_: str, anchor: str | None = None) -> Markup:
    """Return a line of text at a position."""
    return element("text", content, x=x, y=y, class_=class_, text_anchor=anchor)


def path_data(points: Iterable[tuple[float, float]]) -> str:
    """Return the path through the points."""
    return "M" + "L".join(f"{_short(x)},{_short(y)}" for x, y in points)


def _short(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
