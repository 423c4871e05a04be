"""Raw output of a tool to parsed outputs: finds the parser by name or by looking at the file."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from agent.core.errors import ExitCode, ParseError, UsageError
from agent.core.names import canonical, did_you_mean
from agent.core.records import Validity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.core.records import ParsedOutput, Parser

__all__ = ["exit_code", "parse_path", "parsers"]

ENTRY_POINTS = "vcagent.parsers"


@cache
def parsers() -> Mapping[str, Parser]:
    """The formats that are installed, by name; read once.

    Raises:
        UsageError: if a distribution registers a format that cannot be loaded.
    """
    from importlib.metadata import entry_points

    found: dict[str, Parser] = {}
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            parser: Parser = entry.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the parser {entry.name} cannot be loaded: {error}",
                where=f"{ENTRY_POINTS}: {entry.value}",
                remedy="install the distribution that registers it again, or remove it",
            ) from error
        found[parser.name] = parser
    return found


def parse_path(path: Path, format: str | None = None) -> list[ParsedOutput]:  # noqa: A002 (the option's name)
    """Parse a file, a folder, or a tree that may hold several formats.

    Args:
        path: what to read.
        format: the format's name; without it every installed format is tried.

    Raises:
        UsageError: if there is no such path or format.
        ParseError: if nothing is recognised, or what is recognised has no numbers.
    """
    known = parsers()
    if not path.exists():
        raise UsageError("there is no such file or folder", where=str(path), remedy="check the path")
    if format is not None:
        names = {canonical(name): name for name in known}
        if (name := names.get(canonical(format))) is None:
            raise UsageError(f"no format is named {format!r}", remedy=did_you_mean(format, known))
        return known[name].parse(path)
    fitting = [parser for parser in known.values() if parser.recognise(path)]
    if not fitting:
        raise ParseError(
            "nothing in it is recognised",
            where=str(path),
            remedy="name the file or folder that the tool wrote; --format tells which format it should be",
            details=tuple(f"looked for {parser.name}: {parser.description}" for parser in known.values()),
        )
    return [output for parser in fitting for output in parser.parse(path)]


def exit_code(outputs: Sequence[ParsedOutput]) -> ExitCode:
    """What a command that judges these outputs ends with: the worst of them."""
    validities = {output.validity for output in outputs}
    if Validity.FAILED in validities or not all(output.complete for output in outputs):
        return ExitCode.ACTION_FAILED
    return ExitCode.RESULT_INVALID if Validity.INVALID in validities else ExitCode.OK
