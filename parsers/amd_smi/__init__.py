"""amd-smi's JSON, of ``metric`` and ``static``, from ROCm 6 and 7.

A value that amd-smi gives as N/A is absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Parser
from parsers.amd_smi.documents import has_documents, read_documents
from parsers.amd_smi.output import output_of
from parsers.terminal import plain
from parsers.trees import beginning, files_in, parse_files, text_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PARSER", "parse_text"]

FORMAT = "amd_smi"
TOOL = "amd-smi"
_ENDINGS = {".json", ".txt", ".log", ".out"}
_REMEDY = "use amd-smi metric --json"


def parse_text(text: str, source: str = "") -> ParsedOutput:
    """Return the metrics in amd-smi's JSON.

    Args:
        text: the output.
        source: the file it comes from, for errors.

    Raises:
        ParseError: if the text is not amd-smi's, is cut before any number, or holds none.
    """
    try:
        seen = read_documents(plain(text))
    except ParseError as error:
        raise ParseError(error.message, where=source or None, remedy=error.remedy) from error
    return output_of(seen, FORMAT, TOOL, source, _REMEDY)


def _is_output(path: Path) -> bool:
    return has_documents(beginning(path))


def recognise(path: Path) -> bool:
    """Return True if the path is amd-smi's output, or a folder with some below."""
    if not path.is_dir():
        return _is_output(path)
    return any(file.suffix.lower() in _ENDINGS and _is_output(file) for file in files_in(path))


def parse(path: Path) -> list[ParsedOutput]:
    """Return all of amd-smi's output in a file or a tree.

    Raises:
        ParseError: if there is none, or the only one holds no number.
    """
    return parse_files(
        path,
        FORMAT,
        TOOL,
        lambda file: file.suffix.lower() in _ENDINGS and _is_output(file),
        lambda file: [parse_text(text_of(file), str(file))],
    )


PARSER = Parser(
    name=FORMAT,
    description="amd-smi metric and static as JSON, of ROCm 6 and 7",
    recognise=recognise,
    parse=parse,
)
