"""The harness with llama.cpp's own server and a model that costs next to nothing."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.actions.loadgen.in_environment.harness.conftest import Outcome, start_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.engine

SERVE = """
import os, signal, sys, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.model_alias = sys.argv[2], {"tiny"}
parameters.hostnames, parameters.port = ["127.0.0.1"], int(sys.argv[1])
parameters.n_parallel, parameters.n_ctx = 4, 2048
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = os.cpu_count()
server = xllamacpp.Server(parameters)
signal.sigwait([signal.SIGTERM])
"""


@pytest.fixture(scope="module")
def llama_cpp(bench_python: Path, tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("llama_cpp")
    process = start_process(bench_python, "-c", SERVE, str(port), str(tiny_gguf), cwd=folder, quiet=True)
    yield f"http://127.0.0.1:{port}"
    process.kill()
    process.wait()


@pytest.mark.parametrize("scenario", ["SingleStream", "Offline"])
def test_llama_cpps_server_is_measured(
    harness: Callable[..., Outcome], llama_cpp: str, scenario: str
) -> None:
    outcome = run(harness, llama_cpp, scenario, cache_prompt=False)

    assert outcome.exit_code == 0, outcome.stderr
    result = outcome.result
    assert result["engine"]["model"] == "tiny"
    assert "llama.cpp" in result["versions"]["backend"]
    assert result["token_count_sources"] == {"usage": result["completed"]}
    assert result["output_tokens"] == 8 * result["completed"]
    assert result["cached_tokens"] == 0
    assert result["retries"] == 0, "each request has a connection of its own"
    assert outcome.detail()["num_errors"] == 0


def test_its_prefix_cache_is_seen(harness: Callable[..., Outcome], llama_cpp: str) -> None:
    outcome = run(harness, llama_cpp, "SingleStream", cache_prompt=True)

    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.result["cached_tokens"] > 0


def run(harness: Callable[..., Outcome], url: str, scenario: str, **request: Any) -> Outcome:
    rate = {"target_latency": 1} if scenario == "SingleStream" else {"target_qps": 10}
    return harness(
        scenario=scenario,
        settings={"min_duration": 500, "min_query_count": 8, **rate},
        backend={
            "type": "openai",
            "url": url,
            "model": "tiny",
            "connect_timeout_s": 30,
            "request": {"ignore_eos": True, "temperature": 0, **request},
        },
    )
