"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.lab.environment import bench_python

__all__ = ["bench_python", "shared"]


@pytest.fixture(scope="session")
def shared() -> Path:
    """Profiles and logs of other projects: VCAGENT_SHARED, or a folder beside the repository, or a skip."""
    folder = Path(os.environ.get("VCAGENT_SHARED") or Path(__file__).parents[2] / "shared")
    if not folder.is_dir():
        pytest.skip("no folder of other projects' profiles and logs (VCAGENT_SHARED)")
    return folder
