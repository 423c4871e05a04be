"""Engines that fail: every run ends as failed, names the cause, and keeps its partial results."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.actions.loadgen.in_environment.harness.conftest import Outcome, start_process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.engine


def assert_failed(outcome: Outcome, kind: str, *words: str) -> None:
    """Check for one line for people, and for the same line with its kind in the result."""
    assert outcome.exit_code == 1
    assert outcome.error["kind"] == kind
    for word in words:
        assert word in outcome.error["message"]
    assert outcome.stderr.startswith(f"{kind}: {outcome.error['message']}")
    assert outcome.stderr.count("\n") == 1
    assert "Traceback" not in outcome.stderr
    assert outcome.result["status"] == "failed"


def limit_s(fault: str) -> float:
    """Return a short limit if the test waits for it; a busy machine needs some time for one answer."""
    return 3 if fault.startswith("hang") else 30


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("http_500", "http_error", ["HTTP 500", "out of memory, said the mock"]),
        ("http_400", "http_error", ["HTTP 400"]),
        ("http_206", "http_error", ["HTTP 206"]),
        ("http_307", "http_error", ["HTTP 307"]),
        ("hang", "timeout", ["within 3 s", "0 parts"]),
        ("hang_midway", "timeout", ["within 3 s", "4 parts"]),
        ("cut", "cut_stream", ["after 4 parts"]),
        ("reset", "cut_stream", ["after 4 parts"]),
        ("die", "cut_stream", ["the connection broke after"]),
        ("malformed", "malformed_reply", ["{not JSON}"]),
        ("error_event", "engine_error", ["the slot was lost"]),
        ("abort", "engine_error", ["finish_reason abort"]),
        ("no_tokens", "no_tokens", ["no output token"]),
        ("drop", "connection", ["cannot be reached"]),
    ],
)
def test_the_first_failure_of_a_stream_ends_the_run(
    harness: Callable[..., Outcome], mock_server: Callable[..., str], fault: str, kind: str, words: list[str]
) -> None:
    url = mock_server(fault=fault, fault_after=20, token_s=0.001)

    # Few at once, so that some are answered before the fault. If the server dies, only one: a second query
    # could find no server before the cut of the first stream is noticed.
    backend = {"type": "openai", "url": url, "max_in_flight": 1 if fault == "die" else 4}
    outcome = harness(backend=backend, sample_timeout_s=limit_s(fault))

    assert_failed(outcome, kind, *words)
    assert outcome.result["issued"] >= outcome.result["completed"] > 0
    answered = [sample for sample in outcome.samples() if sample["completed_s"]]
    assert len(answered) == outcome.result["completed"]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("http_500", "http_error"),
        ("hang", "timeout"),
        ("die", "cut_stream"),
        ("malformed", "malformed_reply"),
        ("no_tokens", "no_tokens"),
        ("abort", "engine_error"),
    ],
)
def test_the_first_failure_of_a_whole_reply_ends_the_run(
    harness: Callable[..., Outcome], mock_server: Callable[..., str], fault: str, kind: str
) -> None:
    url = mock_server(fault=fault, fault_after=20)

    outcome = harness(
        scenario="Offline",
        settings={"target_qps": 100, "min_duration": 1000, "min_query_count": 50},
        backend={"type": "openai", "url": url, "max_in_flight": 8},
        sample_timeout_s=limit_s(fault),
    )

    if fault == "die" and outcome.error["kind"] == "connection":
        kind = "connection"  # requests without any answer yet see a closed connection
    assert_failed(outcome, kind)


def test_a_failure_in_the_warm_up_ends_the_run(
    harness: Callable[..., Outcome], mock_server: Callable[..., str]
) -> None:
    outcome = harness(backend={"type": "openai", "url": mock_server(fault="http_500")})

    assert_failed(outcome, "http_error", "HTTP 500")
    assert outcome.result["issued"] == 0


def test_nobody_listens(harness: Callable[..., Outcome]) -> None:
    outcome = harness(backend={"type": "openai", "url": "http://127.0.0.1:9", "connect_timeout_s": 0.2})

    assert_failed(outcome, "connection", "http://127.0.0.1:9")


def test_a_model_that_is_loading_is_waited_for(
    harness: Callable[..., Outcome], mock_server: Callable[..., str]
) -> None:
    outcome = harness(backend={"type": "openai", "url": mock_server(loading_s=0.5)})

    assert outcome.exit_code == 0, outcome.stderr


def test_a_model_that_never_loads(harness: Callable[..., Outcome], mock_server: Callable[..., str]) -> None:
    url = mock_server(loading_s=60)

    outcome = harness(backend={"type": "openai", "url": url, "connect_timeout_s": 0.2})

    assert_failed(outcome, "http_error", "HTTP 503", "Loading model")


def test_another_model_is_served(harness: Callable[..., Outcome], mock_server: Callable[..., str]) -> None:
    outcome = harness(backend={"type": "openai", "url": mock_server(model="that"), "model": "this"})

    assert_failed(outcome, "model_mismatch", "'this'", "'that'")


def test_a_model_without_a_name_at_the_endpoint_must_be_called_alike(
    harness: Callable[..., Outcome], mock_server: Callable[..., str]
) -> None:
    backend = {"type": "openai", "url": mock_server(model="org/Llama-3.1-8B")}

    outcome = harness(backend={**backend, "model_like": "llama3.1-8b"})
    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.result["engine"]["model"] == "org/Llama-3.1-8B"

    other = harness(backend={**backend, "model_like": "llama3.1-70b"})
    assert_failed(other, "model_mismatch", "'llama3.1-70b'", "'org/Llama-3.1-8B'")


def test_a_connection_closed_after_each_reply_is_made_again(
    harness: Callable[..., Outcome], mock_server: Callable[..., str]
) -> None:
    outcome = harness(
        scenario="SingleStream",
        settings={"target_latency": 1, "min_duration": 300, "min_query_count": 100},
        backend={"type": "openai", "url": mock_server(keep_alive=False)},
    )

    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.detail()["result_validity"] == "VALID"


def test_a_request_that_was_dropped_is_sent_once_more(
    harness: Callable[..., Outcome], mock_server: Callable[..., str]
) -> None:
    outcome = harness(
        backend={"type": "openai", "url": mock_server(fault="drop", fault_after=10, fault_count=1)}
    )

    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.result["retries"] == 1


def test_cached_prompts_are_counted(harness: Callable[..., Outcome], mock_server: Callable[..., str]) -> None:
    outcome = harness(backend={"type": "openai", "url": mock_server(cached_tokens=3)})

    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.result["cached_tokens"] == 3 * outcome.result["completed"]


def test_cached_prompts_that_are_not_reported_are_unknown(
    harness: Callable[..., Outcome], mock_server: Callable[..., str]
) -> None:
    outcome = harness(backend={"type": "openai", "url": mock_server(cache_report=False)})

    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.result["cached_tokens"] is None
    assert outcome.result["input_tokens"] > 0


def test_the_wait_for_a_free_request_is_told(
    harness: Callable[..., Outcome], mock_server: Callable[..., str]
) -> None:
    backend = {"type": "openai", "url": mock_server(token_s=0.01)}

    narrow = harness(backend={**backend, "max_in_flight": 2}).result["client"]
    assert narrow["queue_peak"] > 10
    assert narrow["queue_wait_max_s"] > 0.2

    wide = harness(backend={**backend, "max_in_flight": 512}).result["client"]
    assert wide["queue_peak"] == 0
    assert wide["queue_wait_max_s"] < 0.1
    assert 0 <= wide["loop_lag_p99_s"] <= wide["loop_lag_max_s"]


def test_tokens_are_counted_by_parts_where_the_engine_gives_no_usage(
    harness: Callable[..., Outcome], mock_server: Callable[..., str]
) -> None:
    outcome = harness(backend={"type": "openai", "url": mock_server(usage=False)})

    assert outcome.exit_code == 0, outcome.stderr
    assert outcome.result["token_count_sources"] == {"chunks": outcome.result["completed"]}
    assert outcome.result["output_tokens"] == 8 * outcome.result["completed"]


def test_a_whole_reply_without_usage_cannot_be_counted(
    harness: Callable[..., Outcome], mock_server: Callable[..., str]
) -> None:
    backend = {"type": "openai", "url": mock_server(usage=False)}

    assert_failed(harness(scenario="Offline", settings={}, backend=backend), "malformed_reply", "no usage")


def test_the_key_opens_the_engine_and_stays_secret(
    harness: Callable[..., Outcome], mock_server: Callable[..., str], tmp_path: Path
) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("planted-key\n")
    url = mock_server(api_key="planted-key")

    good = harness(backend={"type": "openai", "url": url, "api_key_file": str(key_file)})
    assert good.exit_code == 0, good.stderr

    # The mock repeats the request's head in its refusal, as some careless servers do.
    bad = harness(
        backend={"type": "openai", "url": url, "api_key_env": "ENGINE_KEY"}, env={"ENGINE_KEY": "wrong-key"}
    )
    assert_failed(bad, "http_error", "HTTP 401")
    written = "".join(path.read_text() for path in bad.output_dir.iterdir()) + bad.stderr
    assert "wrong-key" not in written


def test_nothing_moves(harness: Callable[..., Outcome]) -> None:
    backend = {"type": "null", "first_token_delay_s": 60, "delay_s": 60}

    outcome = harness(backend=backend, warmup_samples=0, sample_timeout_s=0.3)

    assert_failed(outcome, "stalled", "0.3 s")


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"backend": {"type": "nul"}}, "config", ["'nul'"]),
        ({"backend": {"type": "null", "delay": 1}}, "config", ["'delay'"]),
        ({"backend": {"type": "openai", "url": "127.0.0.1:80"}}, "config", ["'127.0.0.1:80'"]),
        ({"backend": {"type": "openai", "url": "http://u:p@h"}}, "config", ["password"]),
        (
            {"backend": {"type": "openai", "url": "http://h", "request": {"stream": False}}},
            "config",
            ["'stream'"],
        ),
        ({"dataset": "/nowhere.jsonl"}, "dataset", ["/nowhere.jsonl"]),
        ({"settings": {"target_qsp": 1}}, "settings", ["target_qsp"]),
        (
            {"settings": {"target_qps": 1, "ttft_latency": 9}},
            "settings",
            ["'tiny'", "tpot_latency is not set"],
        ),
        (
            {"model": "llama3_1-8b-edge", "settings": {"target_qps": 1, "ttft_latency": 9}},
            "settings",
            ["'llama3_1-8b-edge'", "tpot_latency is not set"],
        ),
        (
            {"settings": {"min_query_count": 10.5, "ttft_latency": 9, "tpot_latency": 9}},
            "settings",
            ["min_query_count = 10.5", "LoadGen uses 10"],
        ),
        (
            {"settings": {"target_latency": 0.5}},
            "settings",
            ["target_latency = 0.5", "LoadGen uses 0"],
        ),
        ({"performance_sample_count": 17}, "settings", ["17", "16"]),
        ({"audit_config": "/nowhere.config"}, "config", ["/nowhere.config"]),
    ],
)
def test_what_cannot_be_done_is_refused(
    harness: Callable[..., Outcome], changes: dict[str, Any], kind: str, words: list[str]
) -> None:
    assert_failed(harness(**changes), kind, *words)


def test_an_unknown_key_of_the_configuration_is_named(harness: Callable[..., Outcome]) -> None:
    outcome = harness(warmup_sample=3)

    assert outcome.exit_code == 2
    assert "did you mean 'warmup_samples'?" in outcome.error["message"]


def test_a_folder_that_cannot_be_written_is_said_in_words(
    bench_python: Path, config: Callable[..., Path], dataset: Path, tmp_path: Path
) -> None:
    path = config(output_dir=str(dataset / "below_a_file"))

    process = start_process(bench_python, "-m", "harness", str(path), cwd=tmp_path)
    _, stderr = process.communicate(timeout=60)

    assert process.returncode == 1
    assert stderr.startswith("config: output_dir ")
    assert "Traceback" not in stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_at_once(
    bench_python: Path, config: Callable[..., Path], tmp_path: Path, number: signal.Signals
) -> None:
    path = config(
        scenario="Offline",
        settings={"target_qps": 100, "min_duration": 60_000},
        backend={"type": "null", "delay_s": 60},
        warmup_samples=0,
    )
    process = start_process(bench_python, "-m", "harness", str(path), cwd=tmp_path)
    assert process.stdout is not None
    while json.loads(process.stdout.readline())["phase"] not in {"run", "drain"}:
        pass
    process.send_signal(number)
    _, stderr = process.communicate(timeout=50)

    assert process.returncode == 143
    assert stderr.startswith("interrupted: ")
    result = json.loads((tmp_path / "out" / "harness_result.json").read_text())
    assert result["error"]["kind"] == "interrupted"
