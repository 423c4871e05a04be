"""Contexts of steps with real processes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil
import pytest

from agent.component.component import StepContext
from agent.facts import Facts
from agent.host.processes import LocalProcesses
from tests.lab.engine import smollm2_gguf, tiny_gguf
from tests.lab.mock_engine import mock_engine, mock_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["mock_engine", "mock_server", "smollm2_gguf", "tiny_gguf"]


@dataclass
class ToldProgress:
    """Keeps the progress messages of a step."""

    told: list[tuple[str, float | None, float | None]] = field(default_factory=list)

    def update(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        self.told.append((message, done, total))


@pytest.fixture
def context(tmp_path: Path) -> Iterator[StepContext]:
    stop = threading.Event()
    processes = LocalProcesses("test-run", stop=stop)
    yield StepContext(
        facts=Facts(
            modelled={
                "gpus": (),
                "amd_gpus": (),
                "visible_devices": None,
                "package_dir": tmp_path / "packages",
            }
        ),
        processes=processes,
        progress=ToldProgress(),
        stop=stop,
        run_dir=tmp_path / "run",
        package_dir=tmp_path / "packages",
        log=tmp_path / "step.log",
        key="actions[0]/step",
    )
    processes.stop_all()


@pytest.fixture
def left_behind() -> Callable[[], list[psutil.Process]]:
    """Return a function that lists this test's processes that still run, but not those of other tests."""
    before = set(psutil.Process().children())
    return lambda: [child for child in psutil.Process().children() if child not in before]
