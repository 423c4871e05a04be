"""Logs of other projects: named by VCAGENT_SHARED, or in a folder beside the repository, or skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    folder = Path(os.environ.get("VCAGENT_SHARED") or Path(__file__).parents[2].parent / "shared")
    if not folder.is_dir():
        pytest.skip("no folder of other projects' logs (VCAGENT_SHARED)")
    return folder
