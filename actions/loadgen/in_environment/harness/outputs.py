"""The files that a test writes into its folder, and how an earlier test's are removed."""

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
    """Remove what an earlier test wrote, so that it is never taken for this one's; nothing else."""
    for pattern in _OUTPUTS:
        for path in output_dir.glob(pattern):
            path.unlink()
    for folder in output_dir.glob("trials/[0-9]*"):
        shutil.rmtree(folder)


def new_file(path: Path, encoding: str = "utf-8") -> TextIO:
    """Open a text file for writing; what stands in its place, such as a link, is removed first."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o666), "w", encoding=encoding)  # noqa: PTH123 - a descriptor


def write_new(path: Path, text: str) -> None:
    """Write a text file; see ``new_file``."""
    with new_file(path) as file:
        file.write(text)


def trial_folder(output_dir: Path, number: int) -> Path:
    """Where a trial of a search for a load writes; it is made."""
    folder = output_dir / "trials" / f"{number:02d}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
