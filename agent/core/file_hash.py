"""Computes the hash of a file's content."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PIECE_BYTES = 1 << 20


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal; the file is read in pieces.

    Raises:
        OSError: if it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
