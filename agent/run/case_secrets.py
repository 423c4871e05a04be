"""Removes secrets from the files that programs wrote into a case's folder: from their names and texts."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from agent.component.component import CASE_OWNER
from agent.core.safe_files import open_file, replace_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.core.secrets import Secrets

_BLOCK_BYTES = 16 << 20
_SNIFFED_BYTES = 8192
_AS_WRITTEN = "mlperf_log_"
"""Prefix of LoadGen's own logs. They are submitted byte for byte, and LoadGen knows no secrets."""


def hide_secrets(run_dir: Path, key: str, secrets: Secrets) -> None:
    """Mask the known secrets in the case folders of a step.

    The agent's own logs are masked while they are written. Links, binary files and LoadGen's logs stay as
    they are.

    Args:
        run_dir: the run's folder.
        key: the step's key, which is noted in the step's case folders.
        secrets: what to mask.

    Raises:
        OSError: if a file cannot be read or replaced.
    """
    for folder in _case_folders(run_dir, key):
        for parent, folders, files in os.walk(folder, topdown=False):
            for name in files:
                path = Path(parent, name)
                if name != CASE_OWNER and not name.startswith(_AS_WRITTEN):
                    _mask_text(path, secrets)
            for name in (*files, *folders):
                _mask_name(Path(parent, name), secrets)


def _case_folders(run_dir: Path, key: str) -> Iterator[Path]:
    for owner in sorted(run_dir.glob(f"*/*/{CASE_OWNER}")):
        if owner.read_text(encoding="utf-8", errors="replace") == key:
            yield owner.parent


def _mask_name(path: Path, secrets: Secrets) -> None:
    name = secrets.mask(path.name)
    if name == path.name:
        return
    target, number = path.with_name(name), 1
    while os.path.lexists(target):
        number += 1
        target = path.with_name(f"{name}-{number}")
    path.rename(target)


def _mask_text(path: Path, secrets: Secrets) -> None:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:  # the step's log is linked under two names
        return
    parts: list[str] = []
    changed = False
    with os.fdopen(open_file(path, os.O_RDONLY, owner=status.st_uid), "rb") as file:
        if b"\0" in file.read(_SNIFFED_BYTES):
            return
        file.seek(0)
        while block := file.read(_BLOCK_BYTES):
            text = (block + file.readline(_BLOCK_BYTES)).decode("utf-8", "surrogateescape")
            masked = secrets.mask_values(text)
            changed |= masked != text
            parts.append(masked)
    if changed:
        data = "".join(parts).encode("utf-8", "surrogateescape")
        replace_bytes(path, data, stat.S_IMODE(status.st_mode))
