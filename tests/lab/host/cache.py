"""A cache for slow results: a folder for each recipe, complete or absent."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CACHE", "cached_folder", "fingerprint", "locked"]

CACHE = Path(os.environ.get("VCAGENT_TEST_CACHE") or Path.home() / ".cache" / "vcagent-tests")


def fingerprint(*parts: object) -> str:
    """Return a short name for a recipe: texts, and files by their content."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else repr(part).encode()
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock of the cache: several test processes may want to make the same part at once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cached_folder(kind: str, recipe: str, make: Callable[[Path], None]) -> Path:
    """Return the folder that a recipe makes; older folders of its kind are removed.

    Args:
        kind: the beginning of the folder's name.
        recipe: a fingerprint of everything that it is made from.
        make: fills an empty folder.
    """
    folder = CACHE / f"{kind}-{recipe}"
    with locked(kind):
        if not folder.exists():
            for old in CACHE.glob(f"{kind}-*"):
                shutil.rmtree(old)
            part = CACHE / f"{kind}-{recipe}.part"
            part.mkdir()
            make(part)
            part.rename(folder)
    return folder
