"""Turns raw output of a tool into parsed outputs: finds the parser by name or by the file's content."""

from __future__ import annotations

from functools import cache
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING

from agent.core.errors import ExitCode, ParseError, UsageError
from agent.core.names import canonical, did_you_mean
from agent.core.plug_ins import PlugInError, broken, load_plug_in
from agent.core.records import ParsedOutput, Reason, Validity, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.core.records import Parser

ENTRY_POINTS = "vcagent.parsers"


def parsers() -> Mapping[str, Parser]:
    """Return the installed formats that can be used, by name."""
    return _loaded()[0]


def broken_parsers() -> Mapping[str, PlugInError]:
    """Return why installed formats cannot be used, by name."""
    return _loaded()[1]


@cache
def _loaded() -> tuple[Mapping[str, Parser], Mapping[str, PlugInError]]:
    """Return the usable and the broken formats; read once."""
    from importlib.metadata import entry_points

    found: dict[str, Parser] = {}
    failed: dict[str, PlugInError] = {}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        try:
            parser: Parser = load_plug_in(point, "the parser")
            found[parser.name] = parser
        except PlugInError as error:
            failed[point.name] = error
        except AttributeError as error:
            failed[point.name] = broken(point, "the parser", error)
    return found, failed


def parse_path(path: Path, format: str | None = None) -> list[ParsedOutput]:  # noqa: A002 (the option's name)
    """Parse a file, a folder, or a tree that may hold several formats.

    Args:
        path: what to read.
        format: the format's name; without it every installed format is tried.

    Raises:
        UsageError: if there is no such path or format.
        ParseError: if nothing is recognised, or the recognised output has no numbers.
    """
    known = parsers()
    _check(path)
    if format is not None:
        for own, error in broken_parsers().items():
            if canonical(own) == canonical(format):
                raise error
        names = {canonical(name): name for name in known}
        if (name := names.get(canonical(format))) is None:
            raise UsageError(f"no format is named {format!r}", remedy=did_you_mean(format, known))
        return known[name].parse(path)
    fitting = [parser for parser in known.values() if not parser.refuses and parser.recognise(path)]
    refusing = [parser for parser in known.values() if parser.refuses and parser.recognise(path)]
    if not fitting and not refusing:
        raise ParseError(
            "nothing in it is recognised",
            where=str(path),
            remedy="name the file or folder that the tool wrote; --format chooses the format",
            details=tuple(
                f"looked for {parser.name}: {parser.description}"
                for parser in known.values()
                if not parser.refuses
            ),
        )
    outputs = _read(path, fitting)
    read = {source for output in outputs for source in output.sources}
    named = [output for parser in refusing if path.is_dir() or not outputs for output in parser.parse(path)]
    refused = [output for output in named if read.isdisjoint(output.sources)]
    if not outputs:
        raise ParseError(
            "nothing in it can be read",
            where=str(path),
            remedy="name the file or folder that the tool wrote",
            details=tuple(f"{output.scenario}: {text}" for output in refused for text in _said(output)),
        )
    return [*outputs, *refused]


def _crashed(parser: Parser, path: Path, error: Exception) -> ParseError:
    """Return the error for a parser that failed with an exception of its own."""
    return ParseError(
        f"the parser {parser.name} failed: {type(error).__name__}: {error}",
        where=str(path),
        remedy="report it to those who provide the parser, with the output that it read",
    )


def _check(path: Path) -> None:
    """Check that a path can be read; raise UsageError if not."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        why = "there is no such file or folder"
        if not isinstance(error, FileNotFoundError):
            why = f"it cannot be read: {error.strerror if isinstance(error, OSError) else error}"
        raise UsageError(why, where=str(path), remedy="check the path") from error
    if not (S_ISREG(mode) or S_ISDIR(mode)):
        raise UsageError(
            "it is neither a file nor a folder", where=str(path), remedy="write the output into a file first"
        )


def _read(path: Path, fitting: Sequence[Parser]) -> list[ParsedOutput]:
    """Return the outputs of every parser; one that cannot read the path does not hide the others."""
    outputs: list[ParsedOutput] = []
    failed: list[tuple[Parser, ParseError]] = []
    for parser in fitting:
        try:
            outputs += parser.parse(path)
        except ParseError as error:
            failed.append((parser, error))
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything, and the others go on
            failed.append((parser, _crashed(parser, path, error)))
    if failed and not outputs:
        raise failed[0][1]
    for parser, failure in failed:
        reason = Reason(failure.message, failure.remedy or "", code="unreadable")
        verdict = Verdict(Validity.FAILED, (reason,))
        sources = (failure.where,) if failure.where else ()
        outputs.append(ParsedOutput(parser.name, "", verdict=verdict, complete=False, sources=sources))
    return outputs


def _said(output: ParsedOutput) -> tuple[str, ...]:
    return output.verdict.warnings if output.verdict else ()


def exit_code(outputs: Sequence[ParsedOutput]) -> ExitCode:
    """Return the exit code for these outputs: the worst of them."""
    validities = {output.validity for output in outputs}
    if Validity.FAILED in validities or not all(output.complete for output in outputs):
        return ExitCode.ACTION_FAILED
    return ExitCode.RESULT_INVALID if Validity.INVALID in validities else ExitCode.OK
