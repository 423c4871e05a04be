"""Real users against a real server: llama.cpp with a random model of 5 M parameters."""

from __future__ import annotations

import json
import threading
import time
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from actions.commands.readiness import answers
from actions.llamacpp.server import LlamaCppServer
from actions.llamacpp.server_parameters import ServerParameters
from actions.locust.load import LocustLoad
from actions.locust.load_parameters import LocustLoadParameters
from agent.core.errors import ActionFailedError, HostError
from agent.core.records import Validity
from agent.core.secrets import MASK
from agent.facts import Facts
from agent.host.ports import any_free
from agent.host.processes import LocalProcesses
from parsers.locust.requests import read_requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent.component.component import StepContext, StepOutcome
    from agent.core.records import ParsedOutput

pytestmark = pytest.mark.engine

INPUT, OUTPUT, SLOTS = 48, 8, 4


@pytest.fixture(scope="module")
def server(
    bench_python: Path, tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LlamaCppServer]:
    processes = LocalProcesses("load-tests")
    parameters = ServerParameters(model=str(tiny_gguf), parallel=SLOTS, context=64)
    log = tmp_path_factory.mktemp("server") / "server.log"
    with LlamaCppServer(
        parameters, name="tiny", python=bench_python, processes=processes, log=log
    ) as running:
        yield running


@pytest.fixture
def load(locust_environment: Path, server: LlamaCppServer) -> Callable[..., LocustLoad]:
    def make(**parameters: Any) -> LocustLoad:
        return LocustLoad(
            LocustLoadParameters.model_validate(
                {
                    "model": "tiny",
                    "variant": "f16",
                    "environment": locust_environment,
                    "endpoint": server.url,
                    "users": 1,
                    "duration": 1,
                    "input_tokens": INPUT,
                    "output_tokens": OUTPUT,
                    "request_timeout": 60,
                    **parameters,
                }
            )
        )

    return make


def run(action: LocustLoad, context: StepContext) -> list[StepOutcome]:
    steps = action.plan(Facts(modelled={})).steps
    return [step.run(replace(context, key=f"key/{step.name}")) for step in steps]  # type: ignore[misc]


def output_of(outcome: StepOutcome) -> ParsedOutput:
    (output,) = outcome.outputs
    return output


def test_each_number_of_users_is_a_case_of_exact_lengths(
    load: Callable[..., LocustLoad], context: StepContext
) -> None:
    outcomes = run(load(users="1, 2"), context)
    outputs = [output_of(outcome) for outcome in outcomes]
    assert [output.scenario for output in outputs] == ["tiny/F16/load-1", "tiny/F16/load-2"]
    for users, (outcome, output) in enumerate(zip(outcomes, outputs, strict=True), 1):
        assert output.validity is Validity.VALID, output.verdict
        metrics = {metric.name: metric for metric in output.metrics}
        assert metrics["users"].value == users
        assert metrics["output_tokens_per_second"].value > 0
        assert metrics["output_tokens_per_second"].metadata["variant"] == "F16"
        assert metrics["request_failures"].value == 0
        assert outcome.case_dir is not None
        log = read_requests(outcome.case_dir)
        assert {(request.input_tokens, request.output_tokens) for request in log.requests} == {
            (INPUT, OUTPUT)
        }
        assert {request.cached_tokens for request in log.requests} == {0}
        assert len({request.user for request in log.requests}) == users
        assert (outcome.case_dir / "samples.csv").read_text().count("\n") == len(log.requests) + 1
        assert (outcome.case_dir / "locust_stats.csv").is_file()
        assert (outcome.case_dir / "server_metrics.prom").is_file()
    assert outputs[0].tool_version
    assert outputs[0].details["slots"] == SLOTS


def test_locust_s_web_page_is_there_while_a_test_runs(
    load: Callable[..., LocustLoad], context: StepContext
) -> None:
    port = any_free("127.0.0.1")
    seen = threading.Event()

    def look() -> None:
        while not seen.is_set() and not context.stop.is_set():
            if answers(f"http://127.0.0.1:{port}/stats/requests"):
                seen.set()
            time.sleep(0.05)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    action = load(web_port=port, duration=4)
    assert action.plan(Facts(modelled={})).steps[0].reason.endswith(f"shown at http://127.0.0.1:{port}")
    try:
        (outcome,) = run(action, context)
    finally:
        context.stop.set()
        looking.join()
    assert seen.is_set()
    assert output_of(outcome).validity is Validity.VALID, output_of(outcome).verdict


def test_workers_share_the_users_out(load: Callable[..., LocustLoad], context: StepContext) -> None:
    (outcome,) = run(load(users=4, workers=2, duration=4), context)
    output = output_of(outcome)
    assert output.validity is Validity.VALID, output.verdict
    assert outcome.case_dir is not None
    log = read_requests(outcome.case_dir)
    assert (log.processes, len({request.user for request in log.requests})) == (2, 4)
    # No two prompts begin with the same tokens, whichever process made them.
    assert output.details["processes"] == 2


def test_the_same_seed_gives_the_same_prompts(
    load: Callable[..., LocustLoad], context: StepContext, tmp_path: Path
) -> None:
    def first_prompts(name: str, **asked: Any) -> dict[str, int]:
        (outcome,) = run(load(users=2, **asked), replace(context, run_dir=tmp_path / name))
        assert outcome.case_dir is not None
        lines = [
            json.loads(line)
            for path in outcome.case_dir.glob("requests-*.jsonl")
            for line in path.read_text().splitlines()
        ]
        asked_for = [line for line in lines if line["event"] == "request"]
        return {line["user"]: line["prompt_crc32"] for line in reversed(asked_for)}

    once, again, other = first_prompts("once"), first_prompts("again"), first_prompts("other", seed=2)
    assert once == again
    assert len({*once.values(), *other.values()}) == 4


def test_vllm_s_and_others_api_is_measured_alike(
    load: Callable[..., LocustLoad], context: StepContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    # llama.cpp answers /v1/completions as well, but uses its own names at /tokenize.
    from actions.locust.text_server import TextServer

    own = TextServer.token_ids
    monkeypatch.setattr(
        TextServer, "token_ids", lambda self, text, model: own(replace(self, api="llamacpp"), text, model)
    )
    (outcome,) = run(load(api="openai", request={"cache_prompt": False}), context)
    output = output_of(outcome)
    assert output.validity is Validity.VALID, output.verdict


def test_more_users_than_slots_is_told(load: Callable[..., LocustLoad], context: StepContext) -> None:
    verdict = output_of(run(load(users=SLOTS + 1), context)[0]).verdict
    assert verdict is not None
    assert (
        f"{SLOTS + 1} users share {SLOTS} slots of the server: requests wait for a slot" in verdict.warnings
    )


def test_a_context_that_is_too_short_is_refused_before_the_load(
    load: Callable[..., LocustLoad], context: StepContext
) -> None:
    with pytest.raises(ActionFailedError, match=r"48 \+ 4000 tokens; the server's context holds") as failure:
        run(load(output_tokens=4000), context)
    assert "a context of 4049" in str(failure.value.remedy)


def test_a_reply_of_another_length_is_a_failed_request(
    load: Callable[..., LocustLoad], context: StepContext
) -> None:
    output = output_of(run(load(request={"n_predict": OUTPUT - 1}), context)[0])
    assert output.validity is Validity.FAILED
    assert output.verdict is not None
    assert "output_tokens are 7, not 8" in output.verdict.reasons[0].message


def test_no_server_is_a_clear_error(load: Callable[..., LocustLoad], context: StepContext) -> None:
    with pytest.raises(ActionFailedError, match=r"does not answer: .*Connection refused"):
        run(load(endpoint="http://127.0.0.1:9"), context)
    with pytest.raises(ActionFailedError, match="no service named gone runs beside this step"):
        run(load(endpoint="service:gone"), context)


def test_no_locust_is_a_clear_error(
    load: Callable[..., LocustLoad], context: StepContext, tmp_path: Path
) -> None:
    with pytest.raises(ActionFailedError, match="has no locust"):
        run(load(environment=tmp_path), context)


class HalfBroken(BaseHTTPRequestHandler):
    """Answers as llama.cpp does, but cuts every second reply short."""

    count = 0

    def do_GET(self) -> None:
        told = {"/props": {"total_slots": 1, "default_generation_settings": {"n_ctx": 100}}}
        self._say(json.dumps(told.get(self.path, {"data": [{"id": "tiny"}]})).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/tokenize":
            self._say(json.dumps({"tokens": list(range(100))}).encode())
            return
        type(self).count += 1
        events: list[dict[str, Any]] = [{"content": "x", "stop": False} for _ in range(OUTPUT)]
        if self.count % 2:
            events.append(
                {"stop": True, "tokens_evaluated": INPUT, "tokens_predicted": OUTPUT, "timings": {}}
            )
        self._say(b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events))

    def _say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Ignore the message."""


def test_failed_requests_make_the_result_invalid(
    load: Callable[..., LocustLoad], context: StepContext
) -> None:
    with closing(_Closing(ThreadingHTTPServer(("127.0.0.1", 0), HalfBroken))) as served:
        output = output_of(run(load(endpoint=served.url, warmup_requests=0, duration=2), context)[0])
    assert output.validity is Validity.INVALID
    assert output.verdict is not None
    # The answers that it gives are the same for each prompt, which is reported too.
    assert {reason.code for reason in output.verdict.reasons} == {"request_failures", "shared_text"}
    assert "the stream ended before the reply was complete" in output.verdict.reasons[0].message


class Hanging(HalfBroken):
    """Replies completely for a while; then begins a reply and never ends it."""

    began_s = 0.0
    over = threading.Event()

    def do_POST(self) -> None:
        if self.path == "/tokenize":
            super().do_POST()
            return
        type(self).began_s = self.began_s or time.monotonic()
        if time.monotonic() < self.began_s + 0.6:
            type(self).count = 0
            super().do_POST()
            return
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'data: {"content": "x", "stop": false}\n\n')
        self.over.wait(60)


def test_a_request_that_hangs_when_the_test_ends_is_a_failed_one(
    load: Callable[..., LocustLoad], context: StepContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = LocustLoad._command

    def impatient(self: LocustLoad, users: int) -> list[str]:
        command = whole(self, users)
        command[command.index("--stop-timeout") + 1] = "1"
        return command

    monkeypatch.setattr(LocustLoad, "_command", impatient)
    with closing(_Closing(ThreadingHTTPServer(("127.0.0.1", 0), Hanging))) as served:
        try:
            action = load(endpoint=served.url, warmup_requests=0, duration=3)
            output = output_of(run(action, context)[0])
        finally:
            Hanging.over.set()
    assert output.validity is Validity.INVALID
    assert output.verdict is not None
    assert "it was unanswered until locust ended it" in output.verdict.reasons[0].message


class _Closing:
    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Telling(HalfBroken):
    """Refuses each request, and repeats the key of the request."""

    def do_POST(self) -> None:
        if self.path == "/tokenize":
            super().do_POST()
            return
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(401, "no", f"I do not know {self.headers['Authorization']}")


def test_a_key_of_any_name_is_masked(
    load: Callable[..., LocustLoad], context: StepContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_ACCESS", "abracadabra-1")
    with closing(_Closing(ThreadingHTTPServer(("127.0.0.1", 0), Telling))) as served:
        action = load(endpoint=served.url, warmup_requests=0, api_key_env="MY_ACCESS")
        output = output_of(run(action, context)[0])
    assert output.validity is Validity.FAILED
    files = [context.log, *(path for path in context.run_dir.rglob("*") if path.is_file())]
    assert [path for path in files if "abracadabra-1" in path.read_text()] == []
    assert output.verdict is not None
    assert "I do not know Bearer ***" in output.verdict.reasons[0].message
    assert context.processes.secrets.mask("abracadabra-1") == MASK


def test_a_key_that_is_not_set_is_refused_in_the_plan(load: Callable[..., LocustLoad]) -> None:
    with pytest.raises(HostError, match="NO_SUCH_KEY, which is not set"):
        load(api_key_env="NO_SUCH_KEY").plan(Facts(modelled={}))
