"""Reads a JSON or YAML text as plain data, with line numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import ProfileError
from agent.profile.problems import Problems
from agent.profile.schema import Location
from agent.profile.syntax import Document, SyntaxProblem

if TYPE_CHECKING:
    from agent.profile.finding import Source


def read_document(source: Source) -> Document:
    """Read a source.

    Raises:
        ProfileError: if it cannot be read, with line and column; or if keys occur twice.
    """
    if source.format == "json":
        from agent.profile.json_text import read_json as read
    else:
        from agent.profile.yaml_text import read_yaml as read
    try:
        document = read(source.text)
    except SyntaxProblem as problem:
        raise ProfileError(
            f"not valid {source.format.upper()} at column {problem.column}: {problem.message}",
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
