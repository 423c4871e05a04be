"""Reads results of lm-eval (EleutherAI/lm-evaluation-harness): ``results_<time>.json``, or its table.

Supports versions 0.3 (``acc``) and 0.4 (``acc,none``: the metric and the filter of the answers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Parser
from parsers.lm_eval.results import FORMAT, TOOL, parse_results
from parsers.lm_eval.table import has_table, parse_table
from parsers.trees import beginning, files_in, json_of, parse_files, text_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PARSER", "parse_folder", "parse_results"]

_TABLE_ENDINGS = {".txt", ".log", ".out", ".stdout"}


def parse_folder(path: Path) -> list[ParsedOutput]:
    """Return the results of a file, or of all result files in a folder, oldest first.

    Raises:
        ParseError: if there is none, or the only one is incomplete or has no score.
    """
    if path.is_dir() and not any(map(_is_results, files_in(path))):
        raise ParseError(
            "there is no results_<time>.json of lm-eval", where=str(path), remedy="see lm-eval's own output"
        )
    return parse_files(path, FORMAT, TOOL, _is_results, lambda file: [_parse(file)])


def parse(path: Path) -> list[ParsedOutput]:
    """Return the results of a file or folder; a folder's tables count only if it has no result files.

    Raises:
        ParseError: if there is none, or the only one is incomplete or has no score.
    """
    if path.is_dir() and not any(map(_is_results, files_in(path))) and recognise(path):
        return parse_files(path, FORMAT, TOOL, _is_table, lambda file: [_parse(file)])
    return parse_folder(path)


def _parse(path: Path) -> ParsedOutput:
    if path.suffix.lower() != ".json" and has_table(beginning(path, 1 << 20)):
        return parse_table(text_of(path), str(path))
    return parse_results(json_of(path), str(path))


def recognise(path: Path) -> bool:
    """Return True if a file contains such results, or a folder contains such a file."""
    return any(_is_results(file) or _is_table(file) for file in files_in(path))


def _is_table(path: Path) -> bool:
    return path.suffix.lower() in _TABLE_ENDINGS and has_table(beginning(path, 1 << 20))


def _is_results(path: Path) -> bool:
    if path.suffix.lower() != ".json":
        return False
    text = beginning(path, 1 << 12)
    if not text.lstrip().startswith("{") or '"results"' not in text:
        return False
    return any(mark in text for mark in (',none"', '"alias"', "_stderr"))


PARSER = Parser("lm_eval", "lm-eval's results_<time>.json, and its table", recognise, parse)
