"""A JSON or YAML text as plain data, with the line of everything in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.core.errors import ProfileError
from agent.profile.problems import Problems
from agent.profile.schema import Location

if TYPE_CHECKING:
    from agent.profile.finding import Source

__all__ = [
    "MAXIMUM_CHARACTERS",
    "MAXIMUM_DEPTH",
    "MAXIMUM_NODES",
    "Document",
    "Path",
    "SyntaxProblem",
    "has_half_pair",
    "read_document",
]

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


def read_document(source: Source) -> Document:
    """Read a source.

    Raises:
        ProfileError: if it cannot be read, with line and column; if keys stand twice.
    """
    if source.format == "json":
        from agent.profile.json_text import read_json as read
    else:
        from agent.profile.yaml_text import read_yaml as read
    try:
        document = read(source.text)
    except SyntaxProblem as problem:
        raise ProfileError(
            f"no {source.format.upper()} at column {problem.column}: {problem.message}",
            where=str(Location(source.label, problem.line)),
        ) from None
    problems = Problems()
    for path, line in document.duplicates:
        problems.add(
            Location(source.label, line),
            ".".join(map(str, path)),
            "stands twice",
            f"the first is in line {document.lines[path]}",
        )
    problems.raise_any()
    return document
