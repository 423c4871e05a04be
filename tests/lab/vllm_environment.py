"""A virtual environment that has LoadGen and the stand-in for vLLM."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

__all__ = ["STAND_IN", "environment", "make_environment"]

STAND_IN = Path(__file__).with_name("vllm_stand_in")


def make_environment(python: Path, folder: Path) -> Path:
    """Return a new virtual environment with the packages of another one and the stand-in for vLLM."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    (packages,) = python.parent.parent.glob("lib/python3*/site-packages")
    (site / "bench.pth").write_text(f"{packages}\n{STAND_IN}\n", encoding="utf-8")
    return folder


@pytest.fixture
def environment(bench_python: Path, tmp_path: Path) -> Path:
    """Return a virtual environment with LoadGen and the stand-in for vLLM."""
    return make_environment(bench_python, tmp_path / "environment")
