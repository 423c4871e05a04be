"""Parts of the programs that prepare data sets for the harness."""

from __future__ import annotations

import base64
import sys
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def packed(tokens: Sequence[int]) -> str:
    """Return token ids in the harness's packed form: base64 of little-endian 32-bit numbers."""
    numbers = array("i", tokens)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers).decode("ascii")


def unpacked(text: str) -> list[int]:
    """Return the token ids of the packed form.

    Raises:
        ValueError: if the text is not in this form.
    """
    numbers = array("i")
    numbers.frombytes(base64.b64decode(text, validate=True))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def parquet_rows(path: Path, columns: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
    """Return the rows of a parquet file.

    Args:
        path: the file.
        columns: the columns to read, if it has them; None for all.

    Raises:
        ValueError: if it is not one.
    """
    from pyarrow import ArrowException, parquet

    try:
        present = parquet.read_schema(path).names
        wanted = None if columns is None else [name for name in columns if name in present]
        rows: list[Mapping[str, Any]] = parquet.read_table(path, columns=wanted).to_pylist()
    except ArrowException as error:
        raise ValueError(str(error)) from error
    return rows


def note_of(source: str, samples: int, output: Path, lengths: Sequence[int]) -> dict[str, Any]:
    """Return the facts about a prepared data set.

    Args:
        source: what it was made from.
        samples: the number of samples.
        output: the file that was written.
        lengths: the prompts' lengths in tokens; empty if they are text.
    """
    return {
        "source": source,
        "samples": samples,
        "bytes": output.stat().st_size,
        "prompts": "tokens" if lengths else "text",
        "mean_tokens": sum(lengths) / len(lengths) if lengths else None,
        "max_tokens": max(lengths, default=None),
    }
