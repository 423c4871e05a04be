"""Sends a run's files to the controller: first a list with sizes and hashes, then the requested files."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

from agent.core.file_hash import sha256_of
from agent.fleet.remote.standing import OUTPUT, RESULTS
from agent.store.results import ResultsFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def send(run_dir: Path) -> None:
    """Write the list as a line of JSON; read the requested files and their offsets; write their bytes."""
    files = dict(offered_files(run_dir))
    listed = [[name, path.stat().st_size, sha256_of(path)] for name, path in files.items()]
    sys.stdout.write(json.dumps({"files": listed}) + "\n")
    sys.stdout.flush()
    sizes = {name: size for name, size, _ in listed}
    for name, offset in json.loads(sys.stdin.buffer.readline() or "[]"):
        with files[name].open("rb") as file:
            file.seek(offset)
            left = sizes[name] - offset
            while left > 0 and (piece := file.read(min(left, shutil.COPY_BUFSIZE))):  # type: ignore[attr-defined]
                sys.stdout.buffer.write(piece)
                left -= len(piece)
    sys.stdout.buffer.flush()


def offered_files(run_dir: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and path of each file to send: the files of the run, and the agent's output."""
    if (run_dir / OUTPUT).is_file():
        yield OUTPUT, run_dir / OUTPUT
    for run in ResultsFolder(run_dir / RESULTS).runs()[-1:]:
        for path in sorted(run.rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(run).as_posix(), path
