"""A tool's output in a file, or anywhere below a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.core.records import ParsedOutput

__all__ = ["beginning", "files_in", "parse_files"]


def beginning(path: Path, most_bytes: int) -> str:
    """A file's text, as far as it is not too long."""
    with path.open("rb") as file:
        return file.read(most_bytes).decode("utf-8", "replace")


def files_in(path: Path) -> Iterator[Path]:
    """The file itself, or all that are below a folder."""
    if not path.is_dir():
        yield path
        return
    for folder, _, names in os.walk(path):
        yield from (Path(folder) / name for name in sorted(names))


def parse_files(
    path: Path, tool: str, recognise: Callable[[Path], bool], parse: Callable[[Path], ParsedOutput]
) -> list[tuple[Path, ParsedOutput]]:
    """Each file of a tool with what it holds.

    Args:
        path: a file, which is taken for the tool's, or a folder, of which those that are recognised are.
        tool: its name, for errors.
        recognise: whether a file is the tool's.
        parse: reads one; raises ParseError.

    Raises:
        ParseError: if there is none, or one holds no number.
    """
    files = [file for file in files_in(path) if not path.is_dir() or recognise(file)]
    try:
        outputs = [parse(file) for file in files]
    except OSError as error:
        raise ParseError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if not outputs:
        raise ParseError(f"no output of {tool} here or in any folder below", where=str(path))
    return list(zip(files, outputs, strict=True))
