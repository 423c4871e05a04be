"""Runs MLPerfExecutor on a host with a stand-in for NVIDIA's repository."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.progress import RunProgress
from agent.run.request import RunRequest
from agent.run.session import FinishedRun, start
from tests.lab.container_engine import container_engine
from tests.lab.harness.nvidia_harness import (
    BASE,
    PROGRAMS,
    PYTHON,
    HarnessHost,
    base_archive,
    harness_host,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.lab.restartable_docker import RestartableDocker

__all__ = ["container_engine"]


@pytest.fixture(scope="session")
def harness_engine(container_engine: RestartableDocker) -> RestartableDocker:
    """Return the engine, with the base image of the harness."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or not PYTHON.exists():
        reason = f"the harness's stand-in needs {', '.join([*missing, str(PYTHON)])}"
        (pytest.fail if os.environ.get("VCAGENT_TEST_LAB") == "required" else pytest.skip)(reason)
    archive = base_archive(container_engine.folder / "harness-base")
    container_engine.docker("import", "-", BASE, stdin=archive)
    return container_engine


@pytest.fixture
def make_harness(
    harness_engine: RestartableDocker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], HarnessHost]]:
    """Return a function that makes the host of a round; used once per test."""
    with pytest.MonkeyPatch.context() as patch:
        contexts = []

        def make(version: str) -> HarnessHost:
            context = harness_host(harness_engine, version)
            contexts.append(context)
            host = context.__enter__()
            patch.setenv("DOCKER_HOST", harness_engine.address)
            patch.setenv("PATH", f"{host.folder / 'bin'}:{os.environ['PATH']}")
            return host

        yield make
        for context in contexts:
            context.__exit__(None, None, None)


def action(host: HarnessHost, model: str, **values: Any) -> dict[str, Any]:
    """Return an element of a profile."""
    parameters = {
        "Scenario": f"inferencemodels-{model}",
        "Model": model,
        "Username": host.account.pw_name,
        "Repository": str(host.folder / "repository"),
        "ScratchPath": str(host.scratch),
        "LeastFreeGb": 0.01,
        "ImageGb": 0.01,
        # This engine is not allowed to raise limits.
        "Ulimits": {},
        "Capabilities": [],
        "ShmSizeGb": 0.0625,
        **values,
    }
    return {"Type": "MLPerfExecutor", "Parameters": parameters}


def request(host: HarnessHost, *actions: dict[str, Any], monitors: Sequence[str] = ()) -> RunRequest:
    """Return a request to run these actions with these types of monitors."""
    path = host.folder / "HARNESS.json"
    watching = [{"Type": name, "Parameters": {"Interval": "00:00:00.5"}} for name in monitors]
    profile = {"Description": "NVIDIA's harness.", "Actions": actions, "Monitors": watching}
    path.write_text(json.dumps(profile))
    return RunRequest(
        (str(path),),
        results_dir=host.folder / "results",
        package_dir=host.folder / "packages",
        client_id="host",
        fail_fast=True,
    )


def run(host: HarnessHost, *actions: dict[str, Any], monitors: Sequence[str] = ()) -> FinishedRun:
    """Run these actions in this process."""
    return start(request(host, *actions, monitors=monitors), RunProgress())


def records_of(finished: FinishedRun) -> list[dict[str, Any]]:
    """Return the run's records from the JSON lines."""
    path = Path(finished.run_dir) / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
