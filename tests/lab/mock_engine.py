"""Mock engines for tests: one process, with a server of its own for each test."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from actions.loadgen.harness_run import harness_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["mock_engine", "mock_server"]


@contextmanager
def _started(python: Path, log: Path, **options: Any) -> Iterator[str]:
    """Run the mock engine with command-line options; yield its URL."""
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            [python, "-m", "mock_engine", "--port=0", *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **harness_environment()},
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def mock_engine(bench_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a mock engine that starts further servers in its process."""
    with _started(bench_python, tmp_path_factory.mktemp("mock_engine") / "log") as url:
        yield url


@pytest.fixture
def mock_server(
    bench_python: Path, mock_engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., str]]:
    """Return a function that starts a server with options of MockOptions and returns its URL.

    Clients find no certificates in this test: aiohttp reads all of them when it is imported, which takes a
    quarter of the harness's start, and the servers speak plain HTTP.
    """
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    with ExitStack() as own:

        def start(**options: Any) -> str:
            if options.get("fault") == "die":  # it ends the whole process
                return own.enter_context(_started(bench_python, tmp_path / "mock_engine.log", **options))
            asked = json.dumps(options).encode()
            with urlopen(f"{mock_engine}/servers", asked, timeout=60) as reply:  # noqa: S310 - http
                return f"http://127.0.0.1:{json.load(reply)['port']}"

        yield start
