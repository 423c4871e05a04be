"""The result of a test: the logs' verdict, and checks that LoadGen cannot make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actions.loadgen import result as loadgen_result
from actions.loadgen.accuracy import Accuracy
from actions.loadgen.exact_match import Reference, Score, judge_answers
from actions.loadgen.parameters import LoadGenParameters
from actions.loadgen.result import merge
from actions.loadgen.sample_sets import SampleSet
from agent.core.records import Metric, ParsedOutput, Reason, Validity, Verdict
from parsers.loadgen import ACCURACY_NOT_JUDGED

CLIENT = {"queue_peak": 0, "queue_wait_max_s": 0.0, "loop_lag_max_s": 0.001, "loop_lag_p99_s": 0.0005}
RESULT: dict[str, Any] = {
    "issued": 4,
    "completed": 4,
    "output_tokens": 32,
    "input_tokens": 20,
    "cached_tokens": 0,
    "token_count_sources": {"usage": 4},
    "client": CLIENT,
    "benchmark_limits": None,
}
VALID = Verdict(Validity.VALID)


def merged(
    verdict: Verdict | None = VALID,
    *,
    details: dict[str, str] | None = None,
    mode: str = "performance",
    scenario: str = "Server",
    accuracy: Accuracy | None = None,
    exact_tokens: bool = False,
    division: str = "closed",
    **result: Any,
) -> ParsedOutput:
    """Return the output for a verdict of the logs and a result that differs in some values."""
    limits = {"ttft_latency_s": 0.5, "tpot_latency_s": 0.1, "target_latency_s": 20.0}
    parsed = ParsedOutput("loadgen", "MLPerf LoadGen", verdict=verdict, details={**limits, **(details or {})})
    parameters = LoadGenParameters.model_validate(
        {
            "model": "m",
            "loadgen_scenario": scenario,
            "mode": mode,
            "division": division,
            "environment": "/env",
            "endpoint": "http://127.0.0.1:1",
            "max_output_tokens": 8,
            "target_qps": None if scenario == "Offline" else 5,
        }
    )
    samples = SampleSet("set", Path("set.jsonl"), ("a",))
    return merge(
        parsed,
        loadgen_result.Tested(
            parameters, samples, "0" * 64, {**RESULT, **result}, exact_tokens, accuracy=accuracy
        ),
    )


def verdict_of(output: ParsedOutput) -> Verdict:
    assert output.verdict is not None
    return output.verdict


def metrics(output: ParsedOutput) -> dict[str, Metric]:
    return {metric.name: metric for metric in output.metrics}


def missed(code: str) -> Verdict:
    return Verdict(Validity.INVALID, (Reason("a limit was missed", "lower target_qps", code=code),))


@pytest.mark.parametrize(
    ("lowest_invalid_qps", "warning", "width"),
    [
        (50.5, None, 0.01),
        (None, "50 queries/s is valid, but not the highest valid rate: all 3 trials", None),
        (60.0, "between 50 and 60 queries/s, 20.0% apart where 2.0% was asked for", 0.2),
    ],
)
def test_a_search_that_did_not_find_the_highest_rate_says_so(
    lowest_invalid_qps: float | None, warning: str | None, width: float | None
) -> None:
    output = merged(
        tuning={
            "target_qps": 50.0,
            "lowest_invalid_qps": lowest_invalid_qps,
            "precision": 0.02,
            "trials": [{}, {}, {}],
        }
    )
    assert verdict_of(output).validity is Validity.VALID
    warnings = verdict_of(output).warnings
    assert warnings == () if warning is None else warning in warnings[0]
    found = metrics(output).get("load_bracket_width")
    assert (found and found.value) == (None if width is None else pytest.approx(width))


def test_a_clean_test_has_nothing_to_warn_of() -> None:
    output = merged()

    assert verdict_of(output) == VALID
    assert metrics(output)["cached_input_token_count"].value == 0
    assert output.details["token_count_source"] == "usage"


def test_a_prefix_cache_spoils_a_result_of_the_closed_division_alone() -> None:
    (reason,) = verdict_of(merged(cached_tokens=7)).reasons
    assert (reason.code, "7 prompt tokens" in reason.message) == ("prefix_cache", True)
    output = merged(division="open", cached_tokens=7)
    assert verdict_of(output).validity is Validity.VALID
    assert "prefix caching is on (7 prompt tokens came from the cache)" in verdict_of(output).warnings[0]
    assert output.details["division"] == "open"
    idle = merged(division="open", engine={"enable_prefix_caching": True})
    assert "a result for the open division only" in verdict_of(idle).warnings[0]
    assert verdict_of(merged(division="open")) == VALID


def test_a_clock_that_was_set_spoils_what_loadgen_measured() -> None:
    output = merged(clock_set_by_s=[-3.2])

    assert verdict_of(output).validity is Validity.INVALID
    (reason,) = verdict_of(output).reasons
    assert reason.code == "clock_set"
    assert "by -3.2 s" in reason.message


def test_a_sum_of_tokens_that_is_right_by_chance_is_not_enough() -> None:
    replies = {"tokens_min": 7, "tokens_max": 9}

    assert verdict_of(merged(exact_tokens=True)).validity is Validity.VALID
    output = merged(exact_tokens=True, replies=replies)
    assert verdict_of(output).validity is Validity.INVALID
    assert "answers have 7 to 9 output tokens" in verdict_of(output).reasons[0].message


def test_what_replies_say_against_themselves_is_judged() -> None:
    sums = {"replies": 4, "tokens": 32}
    bad = merged(replies={"counts": {"choices": 1}, "sums": {**sums, "text_bytes": 99}})
    odd = merged(replies={"counts": {"echo": 4}, "sums": {**sums, "text_bytes": 99}})

    assert [reason.code for reason in verdict_of(bad).reasons] == ["choices"]
    assert verdict_of(bad).validity is Validity.INVALID
    assert verdict_of(odd).validity is Validity.VALID
    assert "4 of 4 replies repeat their prompt" in verdict_of(odd).warnings[0]


def test_a_cache_that_nobody_reported_is_unknown_and_not_none() -> None:
    output = merged(cached_tokens=None, input_tokens=None)

    (warning,) = verdict_of(output).warnings
    assert warning.startswith("cache use unknown")
    assert "--no-enable-prefix-caching" in warning
    assert not {"cached_input_token_count", "input_token_count"} & set(metrics(output))


def test_tokens_counted_by_chunks_are_told() -> None:
    output = merged(token_count_sources={"usage": 1, "chunks": 3})

    assert "tokens of 3 answers were counted by the parts" in verdict_of(output).warnings[0]
    assert output.details["token_count_source"] == "usage, chunks"


def test_limits_that_are_not_the_benchmarks_are_told() -> None:
    output = merged(
        benchmark_limits={
            "ttft_latency": {"benchmark": 2000, "in_effect": 60000, "is_met": False},
            "tpot_latency": {"benchmark": 100, "in_effect": None, "is_met": False},
            "min_query_count": {"benchmark": 13368, "in_effect": 13368, "is_met": True},
            "min_duration": {"benchmark": 600000, "in_effect": 800, "is_met": False},
        }
    )

    assert verdict_of(output).validity is Validity.VALID
    (warning,) = verdict_of(output).warnings
    assert warning == (
        "not the benchmark's limits, so no MLPerf result: ttft_latency 60 s instead of 2 s, "
        "no tpot_latency instead of 100 ms, min_duration 0.8 s instead of 600 s"
    )
    assert str(output.details["mlperf_result"]).startswith("Not an MLPerf result: ttft_latency 60 s instead")


_MET = {"min_duration": {"benchmark": 600000, "in_effect": 600000, "is_met": True}}


@pytest.mark.parametrize(
    ("result", "standing"),
    [
        (
            {},
            (
                "Not an MLPerf result: LoadGen has no benchmark for this model, and the limits are the "
                "profile's own"
            ),
        ),
        (
            {"benchmark_limits": _MET, "engine": {"load_format": "dummy"}},
            "Not an MLPerf result: the weights are random",
        ),
        (
            {"benchmark_limits": _MET},
            "Measured with the settings of MLPerf's benchmark; not verified by MLCommons Association",
        ),
    ],
)
def test_each_case_says_whether_it_is_an_mlperf_result(result: dict[str, Any], standing: str) -> None:
    assert merged(**result).details["mlperf_result"] == standing


@pytest.mark.parametrize(
    ("code", "client", "words"),
    [
        ("ttft_limit", {"queue_wait_max_s": 0.2}, "requests waited up to 0.2 s in the client"),
        ("ttft_limit", {"loop_lag_max_s": 0.2}, "event loop was up to 0.2 s late"),
        ("ttft_limit", {"queue_wait_max_s": 0.09, "loop_lag_max_s": 0.09}, None),
        ("tpot_limit", {"queue_wait_max_s": 9, "loop_lag_max_s": 9}, None),
        ("tpot_limit", {"loop_lag_p99_s": 0.03}, "event loop was up to 0.03 s late"),
        ("latency_limit", {"queue_wait_max_s": 5}, "requests waited up to 5 s in the client"),
        ("min_duration", {"queue_wait_max_s": 5}, None),
    ],
)
def test_the_clients_share_of_a_missed_limit_is_told(
    code: str, client: dict[str, float], words: str | None
) -> None:
    (reason,) = verdict_of(merged(missed(code), client=CLIENT | client)).reasons

    assert ("part of it is the client's" in reason.message) == (words is not None)
    if words is not None:
        assert words in reason.message
        assert reason.remedy.endswith("lower target_qps")


def test_the_clients_share_is_measured() -> None:
    output = merged(client=CLIENT | {"queue_peak": 7})

    metric = metrics(output)["client_queue_peak"]
    assert (metric.value, metric.unit, metric.verbosity) == (7, "count", 3)
    assert metrics(output)["client_loop_lag_max"].unit == "seconds"
    assert output.details["client_queue_peak"] == 7


@pytest.mark.parametrize("logs", [VALID, Verdict(Validity.NOT_APPLICABLE, (), (ACCURACY_NOT_JUDGED,))])
@pytest.mark.parametrize(
    ("right", "expected"), [(("a",), Validity.VALID), ((), Validity.INVALID)], ids=["right", "wrong"]
)
def test_accuracy_is_judged_by_its_score(logs: Verdict, right: tuple[str, ...], expected: Validity) -> None:
    wrong = {} if right else {"a": "?"}
    accuracy = judge_answers(Score(right, wrong), Reference(1.0, "measured"), 0.9, model="m", set_name="set")

    verdict = verdict_of(merged(logs, mode="accuracy", scenario="Offline", accuracy=accuracy))

    assert verdict.validity is expected
    assert [reason.code for reason in verdict.reasons] == ([] if right else ["accuracy"])
    assert verdict.warnings == ()


def test_logs_that_nobody_judged_are_no_valid_result() -> None:
    for mode in ("performance", "accuracy"):
        output = merged(None, mode=mode, scenario="Offline", accuracy=Accuracy(VALID))
        assert verdict_of(output).validity is Validity.FAILED


def test_an_audit_run_is_no_accuracy_run() -> None:
    logs = Verdict(Validity.NOT_APPLICABLE, (), ("an audit run",))
    output = merged(logs, mode="accuracy", scenario="Offline", accuracy=Accuracy(VALID))
    assert verdict_of(output).validity is Validity.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("details", "code"),
    [
        ({"scenario": "Server", "mode": "PerformanceOnly"}, None),
        ({"scenario": "Offline", "mode": "PerformanceOnly"}, "other_test"),
        ({"scenario": "Server", "mode": "AccuracyOnly"}, "other_test"),
    ],
)
@pytest.mark.parametrize("scenario", ["Server", "Interactive"])
def test_the_logs_are_of_the_test_that_was_asked_for(
    details: dict[str, str], code: str | None, scenario: str
) -> None:
    verdict = verdict_of(merged(scenario=scenario, details=details))
    assert verdict.validity is (Validity.INVALID if code else Validity.VALID)
    assert [reason.code for reason in verdict.reasons] == ([code] if code else [])


def test_a_test_that_issued_nothing_is_no_result() -> None:
    verdict = verdict_of(merged(issued=0, completed=0, output_tokens=0))
    assert [reason.code for reason in verdict.reasons] == ["unanswered"]


def test_an_accuracy_run_with_errors_stays_invalid() -> None:
    accuracy = Accuracy(VALID)

    verdict = verdict_of(merged(missed("errors"), mode="accuracy", scenario="Offline", accuracy=accuracy))

    assert verdict.validity is Validity.INVALID


@pytest.mark.parametrize(
    ("mode", "expected"), [("performance", Validity.INVALID), ("accuracy", Validity.NOT_APPLICABLE)]
)
def test_an_empty_answer_is_a_wrong_one_and_no_more_in_accuracy(mode: str, expected: Validity) -> None:
    output = merged(mode=mode, scenario="Offline", exact_tokens=True, output_tokens=24)

    assert verdict_of(output).validity is expected
