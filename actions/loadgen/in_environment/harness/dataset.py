"""Read the samples: JSON lines with a prompt, the ids of its tokens, or both.

Token ids are a list, or packed: base64 of their bytes as little-endian 32-bit numbers. The packed form of
millions of tokens is read in a second and uses four bytes per token; a list takes ten times the time and
memory.
"""

from __future__ import annotations

import base64
import json
import sys
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_TYPECODE = "i"
"""Type code of arrays with 32-bit items, on every platform of CPython."""


@dataclass(frozen=True)
class Sample:
    """One input.

    Args:
        id: the name in the data set; if missing there, the number of the line, from 0.
        prompt: the text; empty if the data set has only token ids.
        tokens: ids of the prompt's tokens, which an engine gets in place of the text; empty if the data set
            has only text.
        max_output_tokens: output tokens to request; None for the number that the test sets for all samples.
    """

    id: str
    prompt: str
    tokens: Sequence[int] = ()
    max_output_tokens: int | None = None


def pack_tokens(tokens: Iterable[int]) -> str:
    """Return token ids in packed form."""
    numbers = array(_TYPECODE, tokens)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers).decode("ascii")


def unpack_tokens(text: str) -> Sequence[int]:
    """Return the token ids from the packed form.

    Raises:
        ValueError: if the text is not packed token ids.
    """
    numbers = array(_TYPECODE)
    numbers.frombytes(base64.b64decode(text, validate=True))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def read_dataset(path: Path) -> list[Sample]:
    """Read the data set; a sample's index is its position in the list.

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
    """Read the line with this number, counted from 1."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise _malformed(path, number, f"is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise _malformed(path, number, "is not a JSON object")
    prompt, tokens = row.get("prompt", ""), _tokens(row.get("token_ids", []))
    if not isinstance(prompt, str) or tokens is None or not (prompt or tokens):
        raise _malformed(path, number, "has neither a prompt (text) nor token_ids (integers)")
    most = row.get("max_output_tokens")
    if most is not None and (type(most) is not int or most < 1):
        raise _malformed(path, number, "has max_output_tokens that is not a whole number above 0")
    return Sample(str(row.get("id", number - 1)), prompt, tokens, most)


def _tokens(value: Any) -> Sequence[int] | None:
    """Return token ids from either form; None if the value is neither."""
    try:
        if isinstance(value, str):
            numbers = unpack_tokens(value)
        elif isinstance(value, list) and all(type(token) is int for token in value):
            numbers = array(_TYPECODE, value)
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return numbers if not numbers or min(numbers) >= 0 else None


def _malformed(path: Path, number: int, what: str) -> HarnessError:
    return HarnessError(
        "dataset",
        f"{path}:{number} {what}",
        'each line is an object such as {"id": "7", "prompt": "…"} or {"token_ids": [1, 2]}',
    )
