"""Record what a model's file was made from: a file made from something else is never replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import ActionFailedError
from agent.core.safe_files import replace_text

if TYPE_CHECKING:
    from pathlib import Path


def _note(path: Path) -> Path:
    return path.with_suffix(".origin")


def check_origin(path: Path, origin: str) -> None:
    """Check that a model's file may be made.

    Args:
        path: the file to make.
        origin: the source: a variant's name, a path, or ``package:<module>``.

    Raises:
        ActionFailedError: if the file exists and was made from something else, or its origin is not recorded.
    """
    if not path.exists():
        return
    note = _note(path)
    before = note.read_text(encoding="utf-8") if note.is_file() else ""
    if before != origin:
        raise ActionFailedError(
            f"{path} exists and was made from {before or 'an unrecorded source'}, not from "
            f"{origin}: it is not replaced",
            remedy="give the model another name, or move the file away; to measure the file as it is, remove "
            "the parameter that would make it (quantizeFrom in PERF-LLAMACPP)",
        )


def keep_made(part: Path, path: Path, origin: str) -> None:
    """Rename the finished part to its final name, and record what it was made from."""
    replace_text(_note(path), origin)
    part.replace(path)
