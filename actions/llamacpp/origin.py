"""What a model's file was made from, noted beside it: one made from something else is never replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import ActionFailedError
from agent.core.safe_files import replace_text

if TYPE_CHECKING:
    from pathlib import Path


def _note(path: Path) -> Path:
    return path.with_suffix(".origin")


def check_origin(path: Path, origin: str) -> None:
    """See whether a model's file may be made.

    Args:
        path: the file that is to be made.
        origin: what from: a variant's name, a path, or ``package:<module>``.

    Raises:
        ActionFailedError: if the file is there, and was made from something else or by somebody else.
    """
    if not path.exists():
        return
    note = _note(path)
    before = note.read_text(encoding="utf-8") if note.is_file() else ""
    if before != origin:
        raise ActionFailedError(
            f"{path} is there and was made from {before or 'something that nobody noted'}, not from "
            f"{origin}: it is not replaced",
            remedy="give the model another name, or move the file away; to measure it as it is, leave "
            "out what would make it (quantizeFrom in PERF-LLAMACPP)",
        )


def keep_made(part: Path, path: Path, origin: str) -> None:
    """Give the finished part its name, with a note of what it was made from."""
    replace_text(_note(path), origin)
    part.replace(path)
