"""Makes text safe for a terminal or a spreadsheet: text from others cannot contain commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

_ORDER = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 except tab and newline, DEL, C1: escape sequences begin with them
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # change the direction of writing: another text is seen
)
_FORMULA = re.compile(r"[=+\-@\t\r]")
_WHOLE_LINES = 4000
"""Width in a pipe: no table is wider."""

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def printable(text: str) -> str:
    r"""Return the text with control characters spelled out (``\x1b``); newlines and tabs stay."""
    return _ORDER.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def plain_cell(text: str) -> str:
    """Return a CSV cell that a spreadsheet reads as text: a ``'`` precedes text that looks like a formula.

    Numbers stay as they are (OWASP, CSV Injection).
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def has_width(console: Console) -> bool:
    """Return True if lines are wrapped or cut: the console is a terminal, or its width was given."""
    return console.width < _WHOLE_LINES


def safe_console(**options: Any) -> Console:
    """Return a rich console that shows text literally: control characters spelled out, no markup.

    Otherwise a name such as ``[/etc/motd]`` would be read as a tag. With ``NO_COLOR`` it writes plain text,
    without bold too. Lines are whole if they do not go to a terminal: a pipe has no width.
    """
    import os

    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, *arguments: Any, **named: Any) -> Iterator[Segment]:
            for segment in super().render(*arguments, **named):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

    if os.environ.get("NO_COLOR"):
        options = {"color_system": None, **options}
    console = SafeConsole(**{"markup": False, **options})
    if not console.is_terminal and "width" not in options and not os.environ.get("COLUMNS"):
        console.width = _WHOLE_LINES
    return console
