"""Reads rocm-smi's output: its table, ``--json`` and ``--csv``.

A value that rocm-smi reports as N/A is absent; the verdict gives the reason if rocm-smi does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Reason
from parsers.amd_smi.output import output_of
from parsers.nvidia_smi.devices import Seen
from parsers.rocm_smi.cards import has_csv, has_json, read_csv, read_json
from parsers.rocm_smi.table import has_table, read_table
from parsers.terminal import plain
from parsers.trees import beginning, text_parser

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["PARSER", "parse_text"]

FORMAT = "rocm_smi"
TOOL = "rocm-smi"
_ENDINGS = {".json", ".csv", ".txt", ".log", ".out", ".err"}
_SHORT = 2000
_NO_DRIVER = "Driver not initialized (amdgpu not found in modules)"
_REMEDY = "use rocm-smi -a --json, or amd-smi metric --json"
_FORMS: tuple[tuple[Callable[[str], bool], Callable[[str], Seen]], ...] = (
    (has_json, read_json),
    (has_table, read_table),
    (has_csv, read_csv),
)


def parse_text(text: str, source: str = "") -> ParsedOutput:
    """Return the metrics in rocm-smi's output.

    Args:
        text: the output.
        source: the file it comes from, for errors.

    Raises:
        ParseError: if the text is not from rocm-smi, ends before any number, or has no number.
    """
    text = plain(text)
    try:
        seen = next((read(text) for has, read in _FORMS if has(text)), Seen())
    except ParseError as error:
        raise ParseError(error.message, where=source or None, remedy=error.remedy) from error
    # rocm-smi ends with status 0 in this case, too.
    if _NO_DRIVER in text:
        seen.said.append(
            Reason(
                "rocm-smi finds no driver: amdgpu is not loaded",
                "load it (modprobe amdgpu) or install it; see dmesg and /etc/modprobe.d for a blacklist",
                code="driver_not_loaded",
            )
        )
    return output_of(seen, FORMAT, TOOL, source, _REMEDY)


def _is_output(path: Path) -> bool:
    text = beginning(path)
    return any(has(text) for has, _ in _FORMS) or (len(text) < _SHORT and _NO_DRIVER in text)


PARSER = text_parser(
    FORMAT,
    TOOL,
    "rocm-smi: its table, --json, --csv",
    is_output=_is_output,
    in_folder=lambda file: file.suffix.lower() in _ENDINGS and _is_output(file),
    parse_text=parse_text,
)
