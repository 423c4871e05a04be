"""Cleans text that was meant for a terminal: colours go, of a redrawn line the last state stays."""

from __future__ import annotations

import re

__all__ = ["plain", "whole_lines"]

# ECMA-48: CSI sequences, OSC sequences up to BEL or ST, and two-byte escapes.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def plain(text: str) -> str:
    """The text as it stood on the screen in the end.

    Args:
        text: output with escape sequences, redrawn progress bars or Windows line ends.
    """
    text = _ESCAPE.sub("", text).replace("\r\n", "\n")
    if "\r" not in text:
        return text
    return "\n".join(_last_state(line) for line in text.split("\n"))


def whole_lines(text: str) -> tuple[str, bool]:
    """The text without a last line that has no end, and whether there was one: its last number may be cut.

    A text of one line is kept, and so is one that ends as JSON does.
    """
    if text.endswith("\n") or text.rstrip().endswith(("]", "}")):
        return text, False
    return text[: text.rfind("\n") + 1] or text, True


def _last_state(line: str) -> str:
    """What remains of a redrawn line: its last non-empty state."""
    states = [state for state in line.split("\r") if state.strip()]
    return states[-1] if states else ""
