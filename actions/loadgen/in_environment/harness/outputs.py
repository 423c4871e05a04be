"""Write a test's files into its folder, and remove those of an earlier test."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pathlib import Path

_OUTPUTS = (
    "mlperf_log_*", "samples.csv", "outputs.jsonl", "user.conf", "harness_result.json*",
    "harness_traceback.txt", "engine.log",
)  # fmt: skip


def remove_outputs(output_dir: Path) -> None:
    """Remove an earlier test's files, so that they are not mistaken for this test's; keep all others."""
    for pattern in _OUTPUTS:
        for path in output_dir.glob(pattern):
            path.unlink()
    for folder in output_dir.glob("trials/[0-9]*"):
        shutil.rmtree(folder)


def new_file(path: Path, encoding: str = "utf-8") -> TextIO:
    """Open a text file for writing; first remove a file or link with that name."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o666), "w", encoding=encoding)  # noqa: PTH123 - a descriptor


def write_new(path: Path, text: str) -> None:
    """Write a text file with ``new_file``."""
    with new_file(path) as file:
        file.write(text)


def trial_folder(output_dir: Path, number: int) -> Path:
    """Create the folder of a trial of a load search, and return it."""
    folder = output_dir / "trials" / f"{number:02d}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
