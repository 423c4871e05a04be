"""Contexts of steps, for commands and services."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from agent.component.component import StepContext
from agent.facts import Facts
from agent.host.processes import LocalProcesses

if TYPE_CHECKING:
    from pathlib import Path


class Said:
    """Messages that a step showed while it ran."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def update(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        self.messages.append(message)


@pytest.fixture
def context(tmp_path: Path) -> StepContext:
    stop = threading.Event()
    return StepContext(
        facts=Facts(None, {}),
        processes=LocalProcesses("run-x", stop=stop),
        progress=Said(),
        stop=stop,
        run_dir=tmp_path,
        package_dir=tmp_path / "packages",
        log=tmp_path / "logs" / "step.log",
        key="1:actions[0]/execute",
    )
