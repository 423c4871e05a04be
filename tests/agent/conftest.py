"""Runs in a temporary folder, with the test component types registered."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from agent.component import registry
from agent.core.progress import RunProgress
from agent.run.request import RunRequest
from agent.run.session import FinishedRun, start
from tests.agent.counting_components import register


@pytest.fixture(autouse=True)
def _test_types() -> Iterator[None]:
    with patch.dict(registry._registered()):  # entry points are read once: reading takes milliseconds
        register()
        yield


@pytest.fixture
def without_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the host's facts out of run.json: reading them takes longer than the run of a test."""
    monkeypatch.setattr("agent.run.description.known_facts", dict)


@pytest.fixture
def run_profile(tmp_path: Path) -> Callable[..., FinishedRun]:
    """Return a function that writes and runs a profile: ``run_profile({"actions": [...]}, iterations=2)``."""

    def run(profile: dict[str, Any], **options: Any) -> FinishedRun:
        path = tmp_path / "TEST.json"
        path.write_text(json.dumps({"Description": "A test.", **profile}))
        request = RunRequest(
            (str(path),),
            results_dir=tmp_path / "results",
            package_dir=tmp_path / "packages",
            client_id="host",
            **options,
        )
        return start(request, RunProgress())

    return run


def records_of(finished: FinishedRun) -> list[dict[str, Any]]:
    """Return the run's records from the JSON lines."""
    return [json.loads(line) for line in (finished.run_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def vcagent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Call the program in this process; returns exit code, standard output and standard error."""
    from agent.cli.main import main

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["vcagent", *arguments])
        code: Any = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        return int(code), captured.out, captured.err

    return call
