"""Cleans text that was meant for a terminal: removes colours and keeps the last state of redrawn lines."""

from __future__ import annotations

import json
import re

# ECMA-48: CSI sequences, OSC sequences up to BEL or ST, and two-byte escapes.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def plain(text: str) -> str:
    """Return the text as finally shown on the screen.

    Args:
        text: output with escape sequences, redrawn progress bars or Windows line ends.
    """
    text = _ESCAPE.sub("", text).replace("\r\n", "\n")
    if "\r" not in text:
        return text
    return "\n".join(_last_state(line) for line in text.split("\n"))


def whole_lines(text: str) -> tuple[str, bool]:
    """Return the text up to its last complete line, and True if more follows (it may be incomplete).

    A last line that is JSON counts as complete.
    """
    if not text or text.endswith("\n"):
        return text, False
    last = text[text.rfind("\n") + 1 :].strip()
    if last in {"]", "}"} or (last.startswith("{") and last.endswith("}") and _is_json(last)):
        return f"{text}\n", False
    return text[: text.rfind("\n") + 1], True


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _last_state(line: str) -> str:
    """Return the final text of a redrawn line: its last non-empty state."""
    states = [state for state in line.split("\r") if state.strip()]
    return states[-1] if states else ""
