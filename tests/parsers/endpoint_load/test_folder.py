"""Points of EndpointSweep: measurements, and conditions that would make them unusable."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Validity
from parsers.endpoint_load import PARSER

if TYPE_CHECKING:
    from pathlib import Path

Row = tuple[float, float | None, float | None, int]
Judged = Callable[..., ParsedOutput]
CLIENT = {
    "cpu_s": 1.0,
    "elapsed_s": 10.0,
    "lateness_p99_s": 0.001,
    "loop_lag_p99_s": 0.001,
    "queue_wait_max_s": 0.0,
}


def write(folder: Path, rows: Sequence[Row], *, concurrency: int = 0, **changes: Any) -> Path:
    """Write a point of requests at 10/s; ``changes`` replace values of load, client and result."""
    client = {**CLIENT, **{name: changes.pop(name) for name in CLIENT if name in changes}}
    result = {"client": client, "input_tokens": 100 * len(rows), "cached_tokens": 0, "failures": []}
    result |= {name: changes.pop(name) for name in (*result, "retries", "replies") if name in changes}
    about: dict[str, Any] = {"scenario": "m/rate-10", "limits": {"ttft_s": 0.1}, "input_tokens_mean": 100}
    about |= {"concurrency": concurrency} if concurrency else {"rate": 10.0}
    load = {"duration_s": 10.0, "arrivals_s": [] if concurrency else [row[0] for row in rows]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "endpoint_load.json").write_text(json.dumps({"about": {**about, **changes}, "load": load}))
    (folder / "endpoint_load_result.json").write_text(json.dumps(result))
    lines = ["sample_id,sample_index,issued_s,first_token_s,completed_s,output_tokens"]
    for number, row in enumerate(rows):
        lines.append(",".join([str(number)] * 2 + ["" if value is None else str(value) for value in row]))
    (folder / "samples.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    def make(rows: Sequence[Row], **changes: Any) -> ParsedOutput:
        folder = write(tmp_path / "point", rows, **changes)
        assert PARSER.recognise(folder)
        (output,) = PARSER.parse(folder)
        return output

    return make


def steady(count: int = 200, ttft_s: float = 0.05) -> list[Row]:
    return [
        (number / 10, number / 10 + ttft_s, round(number / 10 + ttft_s + 0.1, 6), 11)
        for number in range(count)
    ]


def metrics(output: ParsedOutput) -> dict[str, Metric]:
    assert len({metric.name for metric in output.metrics}) == len(output.metrics)
    return {metric.name: metric for metric in output.metrics}


def codes(output: ParsedOutput) -> list[str]:
    return [reason.code for reason in output.verdict.reasons] if output.verdict else []


def test_a_point_has_its_rates_times_and_goodput(judged: Judged) -> None:
    output = judged(steady())
    found = {name: metric.value for name, metric in metrics(output).items()}
    assert output.validity is Validity.VALID
    assert output.verdict is not None
    assert output.verdict.warnings == ()
    assert (output.scenario, output.format) == ("m/rate-10", "endpoint_load")
    assert found["requests_per_second"] == pytest.approx(10, rel=0.01)
    assert found["output_tokens_per_second"] == pytest.approx(110, rel=0.01)
    assert found["goodput"] == found["requests_per_second"]
    assert found["slo_attainment"] == 1
    assert found["ttft_p99"] == pytest.approx(0.05)
    assert found["tpot_p50"] == pytest.approx(0.01)
    assert found["latency_p99"] == pytest.approx(0.15)
    assert (found["offered_rate"], found["request_count"], found["request_failures"]) == (10, 200, 0)
    assert (found["input_tokens_mean"], found["output_tokens_mean"]) == (100, 11)
    assert found["client_cpu"] == pytest.approx(0.1)


def test_goodput_counts_only_what_meets_every_limit(judged: Judged) -> None:
    rows = [*steady()[:150], *steady(ttft_s=0.2)[150:]]
    found = metrics(judged(rows))
    assert found["slo_attainment"].value == 0.75
    assert found["goodput"].value == pytest.approx(7.5, rel=0.01)
    assert found["requests_per_second"].value == pytest.approx(10, rel=0.02)


def test_without_limits_there_is_no_goodput(judged: Judged) -> None:
    assert not {"goodput", "slo_attainment"} & metrics(judged(steady(), limits={})).keys()


def test_a_concurrency_counts_what_lies_within_its_time(judged: Judged) -> None:
    # Requests of 4 s, one after the other, for 10 s: the third ends 2 s after the end.
    rows = [(start, start + 1.0, start + 4.0, 4) for start in (0.0, 4.0, 8.0)]
    found = metrics(judged(rows, concurrency=1, input_tokens_mean=None))
    assert found["requests_per_second"].value == pytest.approx(2.5 / 10)
    assert found["concurrency"].value == 1
    assert "offered_rate" not in found


def test_failures_are_told_and_do_not_end_the_point(judged: Judged) -> None:
    rows = [*steady()[:180], *[(number / 10, None, None, 0) for number in range(180, 200)]]
    failures = [{"kind": "http_error", "message": "answered HTTP 503", "count": 20}]
    output = judged(rows, failures=failures, input_tokens=18000)
    assert output.validity is Validity.VALID
    assert output.verdict is not None
    assert output.verdict.warnings == ("20 of 200 requests failed: 20 of 'answered HTTP 503'",)
    assert metrics(output)["slo_attainment"].value == 0.9
    assert metrics(output)["request_failures"].value == 20


def test_a_point_without_any_answer_has_failed(judged: Judged) -> None:
    failures = [{"kind": "connection", "message": "refused", "count": 2}]
    output = judged([(0.0, None, None, 0)] * 2, failures=failures, input_tokens=None)
    assert output.validity is Validity.FAILED
    assert codes(output) == ["no_answer"]
    assert output.verdict is not None
    assert "2 of 'refused'" in output.verdict.reasons[0].message
    assert "ttft_mean" not in metrics(output)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cpu_s": 9.5}, "client_cpu"),
        ({"lateness_p99_s": 0.03}, "client_late"),
        ({"loop_lag_p99_s": 0.03}, "client_late"),
        ({"queue_wait_max_s": 0.5}, "client_queue"),
        ({"cached_tokens": 512}, "prefix_cache"),
        ({"replies": {"counts": {"other_model": 3}, "sums": {"replies": 200}}}, "other_model"),
    ],
)
def test_what_spoils_a_point(judged: Judged, changes: dict[str, Any], code: str) -> None:
    output = judged(steady(), **changes)
    assert output.validity is Validity.INVALID
    assert codes(output) == [code]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cpu_s": 8.0}, "the client took 80% of one CPU"),
        ({"lateness_p99_s": 0.015}, "15% of the limit of 0.1 s"),
        ({"retries": 3}, "closed the connection of 3 requests"),
        ({"input_tokens": 24000}, "inputs have 120 tokens on average, 100 were asked for"),
    ],
)
def test_what_is_warned_of(judged: Judged, changes: dict[str, Any], words: str) -> None:
    output = judged(steady(), **changes)
    assert output.validity is Validity.VALID
    assert output.verdict is not None
    (warning,) = output.verdict.warnings
    assert words in warning


def test_a_late_client_is_measured_by_the_median_where_there_is_no_limit(judged: Judged) -> None:
    assert codes(judged(steady(), limits={}, lateness_p99_s=0.02)) == ["client_late"]
    assert codes(judged(steady(ttft_s=2.0), limits={}, lateness_p99_s=0.02)) == []


def test_a_cache_is_expected_where_the_trace_shares_prefixes(judged: Judged) -> None:
    output = judged(steady(), cached_tokens=512, shared_prefixes=True)
    assert output.validity is Validity.VALID
    assert metrics(output)["cached_input_token_count"].value == 512


def test_percentiles_that_are_but_the_largest_value_are_absent(judged: Judged) -> None:
    found = metrics(judged(steady(50)))
    assert "ttft_p99" not in found
    assert "ttft_p95" in found


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("endpoint_load.json", "{", "is not JSON"),
        ("endpoint_load.json", '{"about": {}, "load": 3}', "makes no sense"),
        ("endpoint_load.json", '{"about": {"limits": {"ttft_s": -1}}, "load": {}}', "not a limit in seconds"),
        ("endpoint_load_result.json", "{}", "makes no sense"),
        ("samples.csv", "issued_s,first_token_s,completed_s,output_tokens\n", "no request was sent"),
        ("samples.csv", "issued_s,first_token_s,completed_s,output_tokens\n5,4,6,1\n", "makes no sense"),
        ("samples.csv", "issued_s,first_token_s,completed_s,output_tokens\n5,,6\n5,x", "makes no sense"),
    ],
)
def test_a_file_that_makes_no_sense_is_an_error(tmp_path: Path, name: str, text: str, words: str) -> None:
    folder = write(tmp_path, steady(3))
    (folder / name).write_text(text)
    with pytest.raises(ParseError) as caught:
        PARSER.parse(folder)
    assert words in caught.value.message


def test_all_points_below_a_folder_are_read_and_one_that_is_broken_hides_none(tmp_path: Path) -> None:
    write(tmp_path / "a", steady(3))
    (write(tmp_path / "b", steady(3)) / "endpoint_load.json").write_text("{")
    outputs = PARSER.parse(tmp_path)
    assert [output.validity for output in outputs] == [Validity.VALID, Validity.FAILED]
    assert outputs[0].scenario == "a/m/rate-10"
