"""What the readers of JSON and YAML have in common: the document, its limits, the error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

MAXIMUM_DEPTH = 50
"""How deep lists and mappings may be nested."""

MAXIMUM_NODES = 200_000
"""How many values there may be, those that YAML aliases repeat included."""

MAXIMUM_CHARACTERS = 10_000_000
"""How long all texts may be together, those that YAML aliases repeat included."""

_HALF_PAIR = re.compile("[\ud800-\udfff]")

Path = tuple[str | int, ...]


class SyntaxProblem(Exception):  # noqa: N818 - never leaves this package
    """The text cannot be read beyond a place.

    Args:
        message: what is wrong there.
        line: counted from 1.
        column: counted from 1.
    """

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


@dataclass
class Document:
    """What a text says.

    Args:
        data: mappings (keys are text), lists, text, numbers, booleans and None.
        lines: the line of each mapping's key and each list's entry, by the path to it.
        duplicates: keys that stand twice in one mapping: path and line of the second.
    """

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    duplicates: list[tuple[Path, int]] = field(default_factory=list)

    def line(self, path: Path) -> int | None:
        """The line of a value, or of what it is in."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def has_half_pair(text: str) -> bool:
    """Whether an escape in the text stands for half of a surrogate pair, which nothing can write."""
    return _HALF_PAIR.search(text) is not None
