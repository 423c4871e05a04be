"""A virtual environment that has LoadGen and the stand-in for vLLM."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

__all__ = ["STAND_IN", "environment"]

STAND_IN = Path(__file__).with_name("vllm_stand_in")


@pytest.fixture
def environment(bench_python: Path, tmp_path: Path) -> Path:
    """Return a virtual environment with LoadGen and the stand-in for vLLM."""
    folder = tmp_path / "environment"
    subprocess.run([bench_python, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    (bench,) = bench_python.parent.parent.glob("lib/python3*/site-packages")
    (site / "bench.pth").write_text(f"{bench}\n{STAND_IN}\n", encoding="utf-8")
    return folder
