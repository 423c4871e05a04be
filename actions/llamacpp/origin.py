"""What a variant's file was made from, noted beside it: one made from something else is never replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import ActionFailedError
from agent.core.safe_files import replace_text

if TYPE_CHECKING:
    from pathlib import Path

    from actions.llamacpp.variants import Variant


def _note(variant: Variant) -> Path:
    return variant.path.with_suffix(".origin")


def check_origin(variant: Variant, origin: str) -> None:
    """See whether a variant's file may be made.

    Args:
        variant: what is to be made.
        origin: what from: a variant's name, a path, or ``package:<module>``.

    Raises:
        ActionFailedError: if the file is there, and was made from something else or by somebody else.
    """
    if not variant.path.exists():
        return
    note = _note(variant)
    before = note.read_text(encoding="utf-8") if note.is_file() else ""
    if before != origin:
        raise ActionFailedError(
            f"{variant.path} is there and was made from {before or 'something that nobody noted'}, not from "
            f"{origin}: it is not replaced",
            remedy="give the model another name, or move the file away; to measure it as it is, leave "
            "out what would make it (quantizeFrom in PERF-LLAMACPP)",
        )


def keep_made(variant: Variant, origin: str) -> None:
    """Give the finished part its name, with a note of what it was made from."""
    replace_text(_note(variant), origin)
    variant.part.replace(variant.path)
