"""Results of lm-eval (EleutherAI/lm-evaluation-harness): ``results_<time>.json``, or a folder of some.

Of versions 0.3 (``acc``) and 0.4 (``acc,none``: the metric and the filter of the answers).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Parser
from parsers.lm_eval.results import parse_results

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PARSER", "parse_folder", "parse_results"]

_PATTERN = "results*.json"
_SIZE_LIMIT = 64 << 20
_BEGINNING = 4096


def parse_folder(path: Path) -> list[ParsedOutput]:
    """The results of a file, or of all files below a folder, the oldest first.

    Raises:
        ParseError: if there is none, or one is cut.
    """
    files = [path] if path.is_file() else sorted(_results_below(path), key=lambda file: file.name)
    if not files:
        raise ParseError(
            "there is no results_<time>.json of lm-eval", where=str(path), remedy="see lm-eval's own output"
        )
    return [_parse(file) for file in files]


def _parse(path: Path) -> ParsedOutput:
    try:
        if path.stat().st_size > _SIZE_LIMIT:
            raise ParseError("is larger than any results of lm-eval", where=str(path))
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ParseError(f"is no JSON, or was cut: {error}", where=str(path)) from error
    return parse_results(data, str(path))


def _results_below(folder: Path) -> list[Path]:
    # lm-eval puts them into a folder of the model's name.
    return [file for pattern in (_PATTERN, f"*/{_PATTERN}") for file in folder.glob(pattern)]


def _recognise(path: Path) -> bool:
    try:
        files = [path] if path.is_file() else _results_below(path)
        return any(_looks_like_one(file) for file in files)
    except OSError:
        return False


def _looks_like_one(path: Path) -> bool:
    if path.suffix != ".json":
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        beginning = file.read(_BEGINNING)
    if not beginning.lstrip().startswith("{") or '"results"' not in beginning:
        return False
    return any(mark in beginning for mark in (',none"', '"alias"', "_stderr"))


PARSER = Parser("lm_eval", "lm-eval's results", recognise=_recognise, parse=parse_folder)
