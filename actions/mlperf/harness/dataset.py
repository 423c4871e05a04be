"""The samples: JSON lines with a prompt or its token ids."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import HarnessError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Sample", "read_dataset"]


@dataclass(frozen=True)
class Sample:
    """One input.

    Args:
        id: its name in the data set; its line's number, from 0, where the data set gives none.
        prompt: the text, or the ids of its tokens.
    """

    id: str
    prompt: str | list[int]


def read_dataset(path: Path) -> list[Sample]:
    """Read the data set; a sample's index is its place in the list.

    Raises:
        HarnessError: (``dataset``) if the file is missing or empty, or a line is not a sample.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            samples = [
                _sample(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()
            ]
    except OSError as error:
        raise HarnessError(
            "dataset", f"the data set {path} cannot be read: {error.strerror}", "prepare the data set first"
        ) from error
    except UnicodeDecodeError as error:
        raise HarnessError("dataset", f"the data set {path} is not UTF-8: {error}") from error
    if not samples:
        raise HarnessError("dataset", f"the data set {path} holds no sample", "prepare the data set again")
    return samples


def _sample(path: Path, number: int, line: str) -> Sample:
    """Read the line of this number, counted from 1."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise _malformed(path, number, f"is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise _malformed(path, number, "is no JSON object")
    prompt: Any = row.get("prompt", row.get("token_ids"))
    is_text = isinstance(prompt, str) and prompt != ""
    is_tokens = isinstance(prompt, list) and prompt != [] and all(type(token) is int for token in prompt)
    if not is_text and not is_tokens:
        raise _malformed(path, number, "has neither a prompt (text) nor token_ids (integers)")
    return Sample(id=str(row.get("id", number - 1)), prompt=prompt)


def _malformed(path: Path, number: int, what: str) -> HarnessError:
    return HarnessError(
        "dataset",
        f"{path}:{number} {what}",
        'each line is an object such as {"id": "7", "prompt": "…"} or {"token_ids": [1, 2]}',
    )
