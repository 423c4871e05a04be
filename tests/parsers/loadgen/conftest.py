"""Real LoadGen logs, and copies of them with some records changed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, Protocol

import pytest

LOGS = Path(__file__).parent / "logs"
DETAIL, SUMMARY = "mlperf_log_detail.txt", "mlperf_log_summary.txt"


class Edit(Protocol):
    def __call__(self, case: str, *, drop: tuple[str, ...] = (), **values: Any) -> Path: ...


@pytest.fixture(scope="session")
def logs() -> Path:
    return LOGS


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    """Copy a case with other values by key (dots as __), without its summary, which would contradict them."""

    def make(case: str, *, drop: tuple[str, ...] = (), **values: Any) -> Path:
        folder = tmp_path / case
        shutil.copytree(LOGS / case, folder)
        (folder / SUMMARY).unlink()
        text = (folder / DETAIL).read_text()
        for name, value in values.items():
            key = re.escape(name.replace("__", "."))
            text, changed = re.subn(
                rf'("key": "{key}", "value": ).*?(, "time_ms")',
                lambda found, value=value: found[1] + json.dumps(value) + found[2],
                text,
            )
            assert changed, f"{case} has no {name}"
        lines = [
            line for line in text.splitlines(keepends=True) if not any(f'"{key}"' in line for key in drop)
        ]
        (folder / DETAIL).write_text("".join(lines))
        return folder

    return make
