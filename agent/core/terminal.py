"""What reaches a terminal or a spreadsheet: text that others wrote gives no orders there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

_ORDER = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1: escape sequences begin with them
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # turn the direction of writing: a text reads as another
)
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def printable(text: str) -> str:
    r"""Return the text with control characters spelled out (``\x1b``); newlines and tabs stay."""
    return _ORDER.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def plain_cell(text: str) -> str:
    """Return a CSV cell that a spreadsheet takes for text: what looks like a formula gets a ``'`` before it.

    Numbers stay as they are (OWASP, CSV Injection).
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def safe_console(**options: Any) -> Console:
    """Return a console of rich that shows text as it is: control characters spelled out, no markup.

    A name such as ``[/etc/motd]`` would be taken for a tag otherwise.
    """
    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, *arguments: Any, **named: Any) -> Iterator[Segment]:
            for segment in super().render(*arguments, **named):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

    return SafeConsole(**{"markup": False, **options})
