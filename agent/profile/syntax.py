"""Shared parts of the readers of JSON and YAML: the document, its limits, the error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

MAXIMUM_DEPTH = 50
"""Deepest nesting of lists and mappings."""

MAXIMUM_NODES = 200_000
"""Most values, including those that YAML aliases repeat."""

MAXIMUM_CHARACTERS = 10_000_000
"""Most characters in total, including those that YAML aliases repeat."""

_HALF_PAIR = re.compile("[\ud800-\udfff]")

Path = tuple[str | int, ...]


class SyntaxProblem(Exception):  # noqa: N818 - never leaves this package
    """The text cannot be read from this place on.

    Args:
        message: the problem.
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
    """Content of a text.

    Args:
        data: mappings (keys are text), lists, text, numbers, booleans and None.
        lines: the line of each mapping's key and each list's entry, by the path to it.
        duplicates: keys that occur twice in one mapping: path and line of the second.
    """

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    duplicates: list[tuple[Path, int]] = field(default_factory=list)

    def line(self, path: Path) -> int | None:
        """Return the line of a value, or of the value that contains it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def has_half_pair(text: str) -> bool:
    """Return True if an escape in the text is half of a surrogate pair, which cannot be written."""
    return _HALF_PAIR.search(text) is not None
