"""Reads the JSON of ``amd-smi metric`` and ``amd-smi static``, from ROCm 6 and 7.

A value that amd-smi reports as N/A is absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from parsers.amd_smi.documents import has_documents, read_documents
from parsers.amd_smi.output import output_of
from parsers.terminal import plain
from parsers.trees import beginning, text_parser

if TYPE_CHECKING:
    from pathlib import Path

    from agent.core.records import ParsedOutput

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
        ParseError: if the text does not come from amd-smi, ends before any number, or has none.
    """
    try:
        seen = read_documents(plain(text))
    except ParseError as error:
        raise ParseError(error.message, where=source or None, remedy=error.remedy) from error
    return output_of(seen, FORMAT, TOOL, source, _REMEDY)


def _is_output(path: Path) -> bool:
    return has_documents(beginning(path))


PARSER = text_parser(
    FORMAT,
    TOOL,
    "amd-smi metric and static as JSON, of ROCm 6 and 7",
    is_output=_is_output,
    in_folder=lambda file: file.suffix.lower() in _ENDINGS and _is_output(file),
    parse_text=parse_text,
)
