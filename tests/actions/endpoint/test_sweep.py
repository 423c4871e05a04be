"""EndpointSweep against a server that may misbehave."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from actions.endpoint.parameters import EndpointSweepParameters
from actions.endpoint.sweep import EndpointSweep
from agent.core.errors import ActionFailedError, HostError, InterruptedRunError
from agent.core.records import Validity
from agent.facts import Facts
from agent.store.exhibits import read_exhibits
from parsers.endpoint_load import PARSER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psutil

    from agent.component.component import StepContext, StepOutcome
    from agent.core.records import ParsedOutput

PACE = {"first_token_s": 0.02, "token_s": 0.002, "echo": False}


@pytest.fixture
def sweep(bench_python: Path) -> Callable[..., EndpointSweep]:
    """Return a function that makes a small sweep; its limits and durations also suit a busy host."""

    def make(**parameters: Any) -> EndpointSweep:
        asked = {
            "model": "mock",
            "environment": bench_python.parent.parent,
            "endpoint": "http://127.0.0.1:9",
            "concurrency": 2,
            "duration": 0.5,
            "least_requests": 20,
            "most_requests": 40,
            "input_tokens": 24,
            "output_tokens": 16,
            "warmup_requests": 1,
            **parameters,
        }
        return EndpointSweep(EndpointSweepParameters.model_validate(asked))

    return make


def run(action: EndpointSweep, context: StepContext) -> dict[str, StepOutcome]:
    steps = action.plan(Facts(modelled={})).steps
    return {step.name: step.run(replace(context, key=f"key/{step.name}")) for step in steps}  # type: ignore[misc]


def only(outcome: StepOutcome) -> ParsedOutput:
    (output,) = outcome.outputs
    return output


def values(output: ParsedOutput) -> dict[str, float]:
    return {metric.name: metric.value for metric in output.metrics}


def test_the_plan_has_a_step_for_each_point(sweep: Callable[..., EndpointSweep], tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 5, "output_length": 5}')

    def names(**parameters: Any) -> list[str]:
        return [step.name for step in sweep(**parameters).plan(Facts(modelled={})).steps]

    assert names(concurrency="4, 1", rates="2.5, 10", ttft_limit_ms=100) == [
        "concurrency-1", "concurrency-4", "rate-2.5", "rate-10", "highest-rate"
    ]  # fmt: skip
    assert names(trace_file=str(trace), search=False, ttft_limit_ms=5) == ["concurrency-2", "trace", "curve"]


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"concurrency": ""}, "nothing to measure"),
        ({"api": "chat", "prompts": "tokens"}, "chat API takes only texts"),
        ({"limit_share": 0.9}, "limit_share needs a limit"),
        ({"least_requests": 50}, "above most_requests"),
        ({"api_key_env": "A", "api_key_file": "/b"}, "give one of them"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    sweep: Callable[..., EndpointSweep], parameters: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        sweep(**parameters)


def test_a_key_and_a_trace_must_be_there(
    sweep: Callable[..., EndpointSweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SWEEP_KEY", raising=False)
    with pytest.raises(HostError, match="SWEEP_KEY, which is not set"):
        sweep(api_key_env="SWEEP_KEY").plan(Facts(modelled={}))
    with pytest.raises(HostError, match="trace_file /no/trace is not a readable file"):
        sweep(trace_file="/no/trace").plan(Facts(modelled={}))


@pytest.mark.engine
def test_points_and_the_highest_rate(
    sweep: Callable[..., EndpointSweep], mock_server: Callable[..., str], context: StepContext
) -> None:
    # Two slots of 52 ms each: about 38 requests/s at most. The limits are far beyond the host's noise.
    action = sweep(
        endpoint=mock_server(slots=2, **PACE),
        rates="4",
        ttft_limit_ms=2000,
        latency_limit_ms=20_000,
        limit_percentile=90,
        rate_precision=0.9,
        most_trials=2,
        confirmations=1,
    )
    outcomes = run(action, context)
    closed, paced = only(outcomes["concurrency-2"]), only(outcomes["rate-4"])
    found = values(paced)
    assert found["request_count"] == 20
    assert found["offered_rate"] == 4
    assert (found["input_tokens_mean"], found["output_tokens_mean"]) == (24, 16)
    assert found["ttft_p50"] >= PACE["first_token_s"]
    assert found["tpot_p50"] >= PACE["token_s"]
    assert 0 < found["goodput"] <= found["requests_per_second"]
    assert values(closed)["concurrency"] == 2
    assert paced.details["url"] == action.asked.endpoint
    assert paced.details["served_model"] == "mock"
    case_dir = outcomes["rate-4"].case_dir
    assert case_dir is not None
    assert (case_dir / "samples.csv").read_text().count("\n") == 21
    assert not list(case_dir.rglob("sample_set.jsonl"))
    assert [output.scenario for output in PARSER.parse(case_dir)] == ["mock/rate-4"]

    highest = outcomes["highest-rate"]
    verdict = only(highest).verdict
    assert verdict is not None
    # On a host that others use, no rate may hold, or the client may limit the next one. The verdict says so.
    is_valid = verdict.validity is Validity.VALID
    assert is_valid == (not verdict.reasons)
    nothing_holds = any(reason.message.startswith("no rate ") for reason in verdict.reasons)
    assert ("highest_rate" in values(only(highest))) == (not nothing_holds)
    assert highest.case_dir is not None
    shown = read_exhibits(highest.case_dir)
    assert {"2 requests at once", "4 requests/s"} <= {row.name for row in shown.tables[0].rows}
    assert [chart.title for chart in shown.charts][:2] == [
        "Goodput against the rate offered", "Throughput against time to first token"
    ]  # fmt: skip


@pytest.mark.engine
def test_what_is_done_is_not_done_again(
    sweep: Callable[..., EndpointSweep], mock_server: Callable[..., str], context: StepContext
) -> None:
    action = sweep(endpoint=mock_server(**PACE), repeats=2)
    outcome = run(action, context)["concurrency-2"]
    assert outcome.case_dir is not None
    files = sorted(outcome.case_dir.glob("run-*/samples.csv"))
    written = [path.stat().st_mtime_ns for path in files]
    files[1].unlink()
    again = run(action, context)["concurrency-2"]
    assert [path.stat().st_mtime_ns == moment for path, moment in zip(files, written, strict=True)] == [
        True,
        False,
    ]
    assert only(again).details["runs"] == 2
    rate = {metric.name: metric for metric in only(again).metrics}["requests_per_second"]
    assert rate.metadata["spread_by"] == "2 runs"


@pytest.mark.engine
def test_a_stop_ends_the_client_and_the_same_point_goes_on_afterwards(
    sweep: Callable[..., EndpointSweep],
    mock_server: Callable[..., str],
    context: StepContext,
    left_behind: Callable[[], list[psutil.Process]],
) -> None:
    action = sweep(endpoint=mock_server(**PACE), duration=600, most_requests=1000)
    before = {child.pid for child in left_behind()}
    update = context.progress.update

    def stop_at_an_answer(message: str, **values: float | None) -> None:
        update(message, **values)
        if "requests answered" in message and not message.startswith("0"):
            context.stop.set()

    context.progress.update = stop_at_an_answer  # type: ignore[method-assign]
    with pytest.raises(InterruptedRunError):
        run(action, context)
    assert {child.pid for child in left_behind()} == before
    assert not list(context.run_dir.rglob("sample_set.jsonl"))

    context.progress.update = update  # type: ignore[method-assign]
    context.stop.clear()
    output = only(run(sweep(endpoint=action.asked.endpoint), context)["concurrency-2"])
    assert output.validity is not Validity.FAILED


@pytest.mark.engine
def test_chat_takes_texts_and_the_key_is_never_shown(
    sweep: Callable[..., EndpointSweep],
    mock_server: Callable[..., str],
    context: StepContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SWEEP_KEY", "sk-never-shown")
    url = mock_server(api_key="sk-never-shown", **PACE)
    output = only(run(sweep(endpoint=url, api="chat", api_key_env="SWEEP_KEY"), context)["concurrency-2"])
    found = values(output)
    assert (output.details["api"], found["request_failures"]) == ("chat", 0)
    assert (found["input_tokens_mean"], found["output_tokens_mean"]) == (24, 16)
    for path in (path for path in context.run_dir.rglob("*") if path.is_file()):
        assert "sk-never-shown" not in path.read_text(errors="replace")

    monkeypatch.setenv("SWEEP_KEY", "sk-another-one")
    with pytest.raises(ActionFailedError, match="HTTP 401") as caught:
        run(sweep(endpoint=url, api="chat", api_key_env="SWEEP_KEY", seed=2), context)
    assert "sk-another-one" not in str(caught.value)


@pytest.mark.engine
def test_requests_that_fail_are_counted_and_the_rest_is_measured(
    sweep: Callable[..., EndpointSweep], mock_server: Callable[..., str], context: StepContext
) -> None:
    url = mock_server(fault="http_500", fault_after=6, share=0.5, **PACE)
    output = only(
        run(sweep(endpoint=url, concurrency="", rates="40", ttft_limit_ms=5000, search=False), context)[
            "rate-40"
        ]
    )
    found = values(output)
    assert 0 < found["request_failures"] < found["request_count"] == 20
    assert found["slo_attainment"] == pytest.approx(1 - found["request_failure_ratio"])
    assert output.verdict is not None
    assert any("HTTP 500" in warning for warning in output.verdict.warnings)


@pytest.mark.engine
def test_an_endpoint_that_does_not_answer_fails_the_step(
    sweep: Callable[..., EndpointSweep], context: StepContext
) -> None:
    with pytest.raises(ActionFailedError, match="cannot be reached"):
        run(sweep(connect_timeout=0.1), context)


@pytest.mark.engine
def test_a_cheating_endpoint_is_invalid(
    sweep: Callable[..., EndpointSweep], mock_server: Callable[..., str], context: StepContext
) -> None:
    url = mock_server(cached_tokens=8, **PACE)
    output = only(run(sweep(endpoint=url), context)["concurrency-2"])
    assert output.validity is Validity.INVALID
    assert output.verdict is not None
    assert "prefix_cache" in {reason.code for reason in output.verdict.reasons}


@pytest.mark.engine
def test_a_trace_gives_lengths_and_moments(
    sweep: Callable[..., EndpointSweep], mock_server: Callable[..., str], context: StepContext, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = (
        {
            "timestamp": number * 50,
            "input_length": 10 + number,
            "output_length": 4 + number % 3,
            "hash_ids": [0],
        }
        for number in range(12)
    )
    trace.write_text("\n".join(map(json.dumps, rows)))
    url = mock_server(cached_tokens=8, **PACE)
    output = only(
        run(sweep(endpoint=url, concurrency="", trace_file=trace, ttft_limit_ms=5000, search=False), context)[
            "trace"
        ]
    )
    found = values(output)
    assert found["request_count"] == 12
    assert found["input_tokens_mean"] == pytest.approx(15.5)
    assert found["output_tokens_mean"] == pytest.approx(5.0)
    assert output.details["trace"] == "trace.jsonl"
    assert output.verdict is not None
    assert "prefix_cache" not in {reason.code for reason in output.verdict.reasons}
