"""Know the end-of-text tokens of models."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_EOS = {
    "llama3.1-8b": (128001, 128008, 128009),
    "llama3.1-405b": (128001, 128008, 128009),
    "llama2-70b": (2,),
    "mixtral-8x7b": (2,),
}
"""End-of-text tokens of MLPerf's models. The official script takes 2 unless it is given another one."""
_MODEL_FILES = ("generation_config.json", "config.json")


def known_eos(model: str) -> tuple[int, ...]:
    """Return the end-of-text tokens of a benchmark's model; empty if it is unknown."""
    found = (ids for name, ids in _EOS.items() if model == name or model.startswith(f"{name}-"))
    return next(found, ())


def eos_in(folder: Path) -> tuple[int, ...]:
    """Return the end-of-text tokens in a model's folder; empty if it names none."""
    for name in _MODEL_FILES:
        try:
            told = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
        except (OSError, ValueError, AttributeError):
            continue
        ids = told if isinstance(told, list) else [told]
        if found := tuple(each for each in ids if isinstance(each, int)):
            return found
    return ()
