"""Finds the token of the model hub under the names that guides use for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from pathlib import Path

TOKEN_VARIABLES = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HUGGINGFACE_HUB_TOKEN",
    "HUGGINGFACE_TOKEN",
    "HUGGINGFACE_ACCESS_TOKEN",
)
"""Hugging Face's libraries read only the first two."""


def adopt_hub_token(environment: MutableMapping[str, str], dotenv: Path) -> str:
    """Set HF_TOKEN, which every program of the run reads, from another name or a ``.env``.

    Quotes and blanks around a value are removed. A variable that is already set takes precedence.

    Args:
        environment: the variables; HF_TOKEN is set in them.
        dotenv: a file of lines such as ``HUGGINGFACE_TOKEN="hf_…"``; it may be missing.

    Returns:
        Where the token was found, for people; empty if there is none.
    """
    for name in TOKEN_VARIABLES:
        if value := _bare(environment.get(name, "")):
            environment["HF_TOKEN"] = value
            return f"the variable {name}"
    try:
        lines = dotenv.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    pairs = (line.strip().removeprefix("export ").partition("=") for line in lines)
    found = {key.strip(): _bare(value) for key, _, value in pairs}
    for name in TOKEN_VARIABLES:
        if value := found.get(name, ""):
            environment["HF_TOKEN"] = value
            return f"{name} in {dotenv}"
    return ""


def _bare(value: str) -> str:
    """Return a value without its quotes; if it has none, up to a ``#`` that follows a blank."""
    value = value.strip()
    quote = value[:1]
    if quote in {'"', "'"}:
        return value[1:].partition(quote)[0].strip()
    return value.partition(" #")[0].strip()
