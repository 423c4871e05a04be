"""Reads the files of a tool: one file, or all files in a folder."""

from __future__ import annotations

import codecs
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Parser, Reason, Validity, Verdict
from parsers.json_text import read_json
from parsers.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SIZE_LIMIT = 64 << 20
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def beginning(path: Path, most_bytes: int = 1 << 16) -> str:
    """Return the beginning of a file as plain text; empty for binary and unreadable files.

    Args:
        path: the file.
        most_bytes: number of bytes to read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes)
    except OSError:
        return ""
    text = _decoded(data)
    return "" if "\0" in text[:4096] else plain(text)


def text_of(path: Path) -> str:
    """Return a file's whole text, as a terminal would finally show it.

    PowerShell writes UTF-16 with a byte order mark; bytes that are not text are replaced.

    Raises:
        ParseError: if it cannot be read, or is larger than 64 MiB.
    """
    return plain(_raw_text(path))


def json_of(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        ParseError: if it cannot be read, is incomplete, or is not JSON.
    """
    try:
        return read_json(_raw_text(path))
    except (ValueError, RecursionError) as error:
        raise ParseError(f"is not JSON or incomplete: {str(error)[:200]}", where=str(path)) from error


def _raw_text(path: Path) -> str:
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise ParseError(
                f"is larger than {SIZE_LIMIT >> 20} MiB",
                where=str(path),
                remedy="split it, and parse the part that matters",
            )
        data = path.read_bytes()
    except OSError as error:
        raise ParseError(f"cannot be read: {error.strerror}", where=str(path)) from error
    return _decoded(data)


def _decoded(data: bytes) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    return data.decode("utf-8", "replace")


def files_in(path: Path) -> Iterator[Path]:
    """Yield the file itself, or the regular files below a folder, in order."""
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        # Opening a pipe would block until its other end opens.
        yield from (file for name in sorted(names) if (file := Path(folder) / name).is_file())


def parse_files(
    path: Path,
    format: str,  # noqa: A002 (the option's name)
    tool: str,
    recognise: Callable[[Path], bool],
    parse: Callable[[Path], list[ParsedOutput]],
    *,
    always: bool = True,
) -> list[ParsedOutput]:
    """Return the content of each file of a tool; if there are several, scenarios begin with the file's name.

    Args:
        path: a file, which is read in any case, or a folder, of which the recognised files are read.
        format: the format's name.
        tool: the tool's name.
        recognise: returns True if a file is the tool's.
        parse: reads one file; raises ParseError.
        always: True to begin all scenarios of several files with the file's name; False for equal ones only.

    Raises:
        ParseError: if there is no file of the tool, or the only one cannot be read. One of several files that
            cannot be read becomes a FAILED output of its own, so that it does not hide the others.
    """
    if not path.is_dir():
        return parse(path)
    files = [file for file in files_in(path) if recognise(file)]
    if not files:
        raise ParseError(f"no output of {tool} here or in any folder below", where=str(path))
    if len(files) == 1:
        return parse(files[0])
    outputs: list[tuple[Path, ParsedOutput]] = []
    for file in files:
        try:
            outputs += [(file, output) for output in parse(file)]
        except ParseError as error:
            outputs.append((file, unreadable(error, format, tool, file)))
    together = Counter(output.scenario for _, output in outputs)
    return [
        named(output, file.relative_to(path).as_posix())
        if always or together[output.scenario] > 1
        else output
        for file, output in outputs
    ]


def text_parser(
    format: str,  # noqa: A002 (the option's name)
    tool: str,
    description: str,
    *,
    is_output: Callable[[Path], bool],
    in_folder: Callable[[Path], bool],
    parse_text: Callable[[str, str], ParsedOutput],
) -> Parser:
    """Return the parser of a tool whose files each contain one result as text.

    Args:
        format: the format's name.
        tool: the tool's name.
        description: a description of the tool's output.
        is_output: returns True if a file that the user named is the tool's.
        in_folder: returns True if a file in a folder that the user named is the tool's.
        parse_text: reads a text; its second argument is the file, for errors. Raises ParseError.
    """

    def recognise(path: Path) -> bool:
        return any(map(in_folder, files_in(path))) if path.is_dir() else is_output(path)

    def parse(path: Path) -> list[ParsedOutput]:
        return parse_files(path, format, tool, in_folder, lambda file: [parse_text(text_of(file), str(file))])

    return Parser(name=format, description=description, recognise=recognise, parse=parse)


def parse_folders(
    path: Path,
    folders: Sequence[Path],
    format: str,  # noqa: A002 (the option's name)
    tool: str,
    parse_folder: Callable[[Path], ParsedOutput],
) -> list[ParsedOutput]:
    """Return the result of each folder of a tool; scenarios begin with the folder if there are several.

    Args:
        path: the folder that the user named; parsed itself if ``folders`` is empty.
        folders: the folders of the tool at or below ``path``.
        format: the format's name.
        tool: the tool's name.
        parse_folder: reads one folder; raises ParseError.

    Raises:
        ParseError: if the only folder cannot be read. Of several, one that cannot be read is a FAILED output.
    """
    if len(folders) <= 1:
        return [parse_folder(folders[0] if folders else path)]
    outputs = []
    for folder in folders:
        try:
            output = parse_folder(folder)
        except ParseError as error:
            output = unreadable(error, format, tool, folder)
        outputs.append(named(output, folder.relative_to(path).as_posix()))
    return outputs


def unreadable(error: ParseError, format: str, tool: str, path: Path | str) -> ParsedOutput:  # noqa: A002
    """Return the FAILED output of a result that cannot be read, so that it does not hide the others."""
    message = "; ".join((error.message, *error.details[:3]))
    reason = Reason(message, error.remedy or "", code="unreadable")
    verdict = Verdict(Validity.FAILED, (reason,))
    return ParsedOutput(format, tool, verdict=verdict, complete=False, sources=(str(path),) if path else ())


def named(output: ParsedOutput, name: str) -> ParsedOutput:
    """Return an output whose scenarios begin with a name."""
    metrics = tuple(
        replace(metric, scenario=f"{name}/{metric.scenario}") if metric.scenario else metric
        for metric in output.metrics
    )
    return replace(output, scenario=f"{name}/{output.scenario}".rstrip("/"), metrics=metrics)
