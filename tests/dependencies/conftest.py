from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from agent.component.component import Dependency, StepContext
from agent.facts import Facts, LocalHost
from agent.host.processes import LocalProcesses

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Messages:
    """A progress display that keeps its messages."""

    texts: list[str] = field(default_factory=list)

    def update(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        assert done is None or total
        self.texts.append(message)


@dataclass(frozen=True)
class RealHost:
    """Carries out plans on this host as the engine does, with a separate package folder."""

    facts: Facts
    context: StepContext
    messages: Messages

    def apply(self, component: Dependency) -> list[str]:
        """Run the steps of a fresh plan, check their effects, and return their names."""
        plan = component.plan(self.facts.fresh())
        for step in plan.steps:
            step.run(self.context)
            assert step.holds is None or step.holds(self.facts.fresh()), step.name
        assert component.plan(self.facts.fresh()).nothing_to_do
        return [step.name for step in plan.steps]


@pytest.fixture
def real_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealHost:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    packages = tmp_path / "packages"
    packages.mkdir()
    facts = Facts(LocalHost(), {"package_dir": packages})
    stop = threading.Event()
    messages = Messages()
    context = StepContext(
        facts=facts,
        processes=LocalProcesses(f"test-{os.getpid()}", stop=stop),
        progress=messages,
        stop=stop,
        run_dir=tmp_path / "run",
        package_dir=packages,
        log=tmp_path / "run" / "logs" / "step.log",
    )
    return RealHost(facts, context, messages)
