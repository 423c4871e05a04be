"""Load tests of real users with a real server, and conditions that would make one unusable."""

from __future__ import annotations

import json
import math
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.component.parsing import parse_path
from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Validity
from parsers.locust import LOAD_PARSER, PARSER

LOADS = Path(__file__).parent / "load"


def one(folder: Path) -> ParsedOutput:
    (output,) = parse_path(folder)
    assert output.format == "locust_load"
    return output


def metrics(output: ParsedOutput) -> dict[str, Metric]:
    assert len({metric.name for metric in output.metrics}) == len(output.metrics)
    return {metric.name: metric for metric in output.metrics}


def codes(output: ParsedOutput) -> set[str]:
    return {reason.code for reason in output.verdict.reasons} if output.verdict else set()


def rows(folder: Path) -> list[dict[str, Any]]:
    (log,) = folder.glob("requests-*.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


Write = Callable[..., ParsedOutput]


@pytest.fixture
def judged(tmp_path: Path) -> Write:
    """Return a function that judges requests made by ``request`` below."""

    def write(requests: list[dict[str, Any]], users: int = 1, **load: Any) -> ParsedOutput:
        asked = {"scenario": "m/Q4/load", "users": users, "input_tokens": 8, "output_tokens": 4, **load}
        (tmp_path / "load.json").write_text(json.dumps(asked))
        lines = [json.dumps(values) for values in requests]
        lines.append(json.dumps({"event": "client", "cpu_s": load.get("cpu_s", 0.1), "elapsed_s": 1.0}))
        (tmp_path / "requests-1.jsonl").write_text("\n".join(lines) + "\n")
        return one(tmp_path)

    return write


def request(sent_s: float, user: str = "a", **values: Any) -> dict[str, Any]:
    """Return a request with four tokens that come 0.1, 0.2, 0.3 and 0.4 s after it was sent."""
    whole = {
        "event": "request",
        "user": user,
        "sent_s": sent_s,
        "latency_s": 0.4,
        "arrivals_s": [0.1, 0.2, 0.3, 0.4],
        "input_tokens": 8,
        "output_tokens": 4,
        "cached_tokens": 0,
        "timings": {
            "prompt_ms": 80.0,
            "prompt_per_second": 100,
            "predicted_ms": 300.0,
            "predicted_per_second": 10,
        },
        "error": "",
    }
    return whole | values


def test_a_real_test_is_valid_and_its_numbers_fit_each_other() -> None:
    output, requests = (
        one(LOADS / "valid"),
        [row for row in rows(LOADS / "valid") if row["event"] == "request"],
    )
    found = metrics(output)
    assert output.validity is Validity.VALID
    assert output.scenario == "tiny/F16/load-2"
    assert output.tool_version == "2.47.0"
    assert found["request_count"].value == len(requests) == 36
    assert found["request_failures"].value == 0
    # Users send the next request at once: by Little's law, their number is the rate times the mean latency.
    rate, latency = found["requests_per_second"].value, found["latency_mean"].value
    assert rate * latency == pytest.approx(2, rel=0.1)
    assert found["output_tokens_per_second"].value == pytest.approx(12 * rate, rel=0.1)
    assert found["output_tokens_per_second_per_user"].value * 2 == found["output_tokens_per_second"].value
    assert found["ttft_mean"].value + 11 * found["tpot_mean"].value == pytest.approx(latency, rel=0.02)
    assert {metric.unit for metric in output.metrics} == {
        "tokens/s",
        "requests/s",
        "seconds",
        "count",
        "ratio",
    }


def test_a_server_that_dies_in_the_middle_makes_the_result_invalid() -> None:
    output = one(LOADS / "server_died")
    assert output.validity is Validity.INVALID
    assert codes(output) == {"request_failures"}
    assert output.verdict is not None
    assert "6 of 18 requests failed" in output.verdict.reasons[0].message
    assert metrics(output)["request_failure_ratio"].value == pytest.approx(1 / 3)


def test_throughput_is_that_of_the_time_in_which_all_users_are_at_work(judged: Write) -> None:
    # User b starts at a's second request, and continues alone after a has ended.
    requests = [
        request(0),
        request(0.4),
        request(0.8),
        request(0.6, "b"),
        request(1.0, "b"),
        request(1.4, "b"),
    ]
    output = judged(requests, users=2)
    found = metrics(output)
    assert output.details["window_s"] == pytest.approx(0.6)  # from 0.6 to 1.2
    # Parts at 0.6 0.7 0.8 (a's second) 0.9 1.0 1.1 1.2 (its third), 0.7 0.8 0.9 1.0 1.1 1.2 (b's).
    assert found["output_tokens_per_second"].value == pytest.approx(13 / 0.6)
    assert found["requests_per_second"].value == pytest.approx(3 / 0.6)
    # The first request of a and the last request of b lie outside.
    assert found["ttft_mean"].value == pytest.approx(0.1)
    assert found["server_generation_tokens_per_second"].value == pytest.approx(10)
    assert found["server_prompt_tokens_per_second"].value == pytest.approx(100)


def test_the_rate_has_its_standard_error(judged: Write) -> None:
    steady = [request(number) for number in range(10)]  # each within its tenth of 9.4 s
    assert metrics(judged(steady))["output_tokens_per_second_stderr"].value == pytest.approx(0, abs=1e-9)
    paused = [request(number + (5 if number >= 5 else 0)) for number in range(10)]
    rates = [tokens / 1.44 for tokens in (8, 4, 7, 1, 0, 0, 0, 8, 4, 8)]  # of the tenths of 14.4 s
    error = metrics(judged(paused))["output_tokens_per_second_stderr"].value
    assert error == pytest.approx(statistics.stdev(rates) / 10**0.5)
    assert "output_tokens_per_second_stderr" not in metrics(judged(steady[:9])), "too few requests"


def test_one_request_of_one_user_is_measured_whole(judged: Write) -> None:
    found = metrics(judged([request(5)]))
    assert found["output_tokens_per_second"].value == pytest.approx(10)
    assert found["tpot_mean"].value == pytest.approx(0.1)
    assert "ttft_p50" not in found  # from only one value


@pytest.mark.parametrize(
    ("count", "told"),
    [(1, set()), (2, set()), (3, {50}), (10, {50}), (11, {50, 90}), (101, {50, 90, 95, 99})],
)
def test_a_percentile_has_a_value_above_it(count: int, told: set[int], judged: Write) -> None:
    found = metrics(judged([request(1.0 * number, latency_s=0.4 + number / 1e3) for number in range(count)]))
    assert {percent for percent in (50, 90, 95, 99) if f"latency_p{percent}" in found} == told
    for percent in told:
        assert found[f"latency_p{percent}"].value < found["latency_max"].value
        # LoadGen's percentile: that many of a hundred lie below it.
        assert found[f"latency_p{percent}"].value == pytest.approx(0.4 + count * percent // 100 / 1e3)


@pytest.mark.parametrize(
    ("changes", "load", "code", "validity"),
    [
        ({"error": "HTTP 500: x"}, {}, "request_failures", Validity.INVALID),
        ({"cached_tokens": 3}, {}, "prompt_cache", Validity.INVALID),
        ({}, {"users": 3}, "users_at_work", Validity.INVALID),
        ({}, {"cpu_s": 0.95}, "client_busy", Validity.INVALID),
    ],
)
def test_what_spoils_a_test(
    changes: dict[str, Any], load: dict[str, Any], code: str, validity: Validity, judged: Write
) -> None:
    output = judged([request(0), request(0.4), request(0.8, **changes)], **load)
    assert (output.validity, codes(output)) == (validity, {code})


def test_nothing_but_failures_is_no_result(judged: Write) -> None:
    output = judged([request(0, error="gone"), request(1, error="gone")])
    assert output.validity is Validity.FAILED
    assert not {"output_tokens_per_second", "ttft_mean"} & metrics(output).keys()


def test_users_that_never_met_have_no_throughput(judged: Write) -> None:
    output = judged([request(0), request(1, "b")], users=2)
    assert codes(output) == {"users_at_work"}
    assert "output_tokens_per_second" not in metrics(output)


def test_users_that_hardly_met_have_no_throughput_either(judged: Write) -> None:
    slow = {"latency_s": 10, "arrivals_s": [9, 9.5, 9.8, 10]}
    output = judged([request(0, **slow), request(8, "b", **slow)], users=2)
    assert output.validity is Validity.INVALID
    assert codes(output) == {"users_at_work"}
    assert "output_tokens_per_second" not in metrics(output)


def test_warnings_tell_what_to_know(judged: Write) -> None:
    output = judged([request(0, cached_tokens=None), request(0.1, "b")], users=2, slots=1)
    assert output.verdict is not None
    assert any("2 users share 1 slots" in warning for warning in output.verdict.warnings)
    assert any("cache use unknown" in warning for warning in output.verdict.warnings)
    assert output.validity is Validity.VALID


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.97])
def test_a_log_that_was_cut_is_not_valid(keep: float, tmp_path: Path) -> None:
    shutil.copytree(LOADS / "valid", tmp_path / "cut")
    (log,) = (tmp_path / "cut").glob("requests-*.jsonl")
    text = log.read_text()
    log.write_text(text[: int(len(text) * keep)])
    output = one(tmp_path / "cut")
    assert not output.complete
    assert output.validity is Validity.INVALID
    assert "cut_log" in codes(output)


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "null",
        '"event"',
        "[" * 100_000,
        '{"event": "client", "cpu_s": "much", "elapsed_s": 1}',
        '{"event": "client", "cpu_s": 1, "elapsed_s": NaN}',
        *(
            json.dumps(request(0.8) | change)
            for change in (
                {"timings": None},
                {"timings": {"prompt_ms": "7", "prompt_per_second": 1}},
                {"sent_s": math.nan},
                {"latency_s": -1},
                {"latency_s": True},
                {"arrivals_s": 7},
                {"arrivals_s": [math.inf]},
                {"output_tokens": "12"},
                {"output_tokens": 1.5},
                {"cached_tokens": [3]},
            )
        ),
    ],
)
def test_a_line_that_makes_no_sense_spoils_the_test(line: str, judged: Write, tmp_path: Path) -> None:
    judged([request(0), request(0.4)])
    (log,) = tmp_path.glob("requests-*.jsonl")
    log.write_text(f"{log.read_text()}{line}\n")
    output = one(tmp_path)
    assert not output.complete
    assert (output.validity, codes(output)) == (Validity.INVALID, {"cut_log"})
    assert metrics(output)["request_count"].value == 2


def test_bytes_that_are_no_text_spoil_it_too(judged: Write, tmp_path: Path) -> None:
    judged([request(0), request(0.4)])
    (log,) = tmp_path.glob("requests-*.jsonl")
    log.write_bytes(log.read_bytes()[:50] + b"\x00\xff\xfe" + log.read_bytes()[200:])
    assert codes(one(tmp_path)) >= {"cut_log"}


@pytest.mark.parametrize(
    "load",
    [
        "",
        "[]",
        '{"scenario": "s"}',
        '{"scenario": "s", "users": 0, "input_tokens": 8, "output_tokens": 4}',
        '{"scenario": "s", "users": 1e999, "input_tokens": 8, "output_tokens": 4}',
    ],
)
def test_a_test_that_nobody_knows_the_load_of_is_an_error(load: str, judged: Write, tmp_path: Path) -> None:
    judged([request(0)])
    (tmp_path / "load.json").write_text(load)
    with pytest.raises(ParseError, match=r"load\.json cannot be read"):
        LOAD_PARSER.parse(tmp_path)


def test_a_folder_without_requests_is_an_error(tmp_path: Path) -> None:
    shutil.copy(LOADS / "valid" / "load.json", tmp_path)
    with pytest.raises(ParseError, match="no user wrote a line"):
        LOAD_PARSER.parse(tmp_path)
    (tmp_path / "requests-1.jsonl").touch()
    with pytest.raises(ParseError, match="no request was sent"):
        LOAD_PARSER.parse(tmp_path)


def test_a_load_test_is_not_taken_for_any_table(tmp_path: Path) -> None:
    shutil.copytree(LOADS / "valid", tmp_path / "both")
    shutil.copy(LOADS.parent / "tables" / "2_20" / "locust_stats.csv", tmp_path / "both")
    assert not PARSER.recognise(tmp_path / "both")
    assert len(parse_path(tmp_path / "both")) == 1


def test_requests_that_were_sent_and_never_heard_of_make_the_result_invalid(
    judged: Write, tmp_path: Path
) -> None:
    whole = [request(0.5 * number) for number in range(18)]
    assert metrics(judged(whole))["requests_lost"].value == 0
    (tmp_path / "locust_stats.csv").write_text(
        "Type,Name,Request Count\nPOST,/c,20\nTTFT,/c,18\n,Aggregated,38\n"
    )
    output = judged(whole)
    assert (output.validity, codes(output)) == (Validity.INVALID, {"requests_lost"})
    assert metrics(output)["requests_lost"].value == 2
    assert output.verdict
    assert "2 of 20 requests were sent but have no recorded reply" in output.verdict.reasons[0].message


def test_what_the_users_processes_sent_counts(judged: Write, tmp_path: Path) -> None:
    judged([request(0), request(0.5)])
    (log,) = tmp_path.glob("requests-*.jsonl")
    log.write_text(log.read_text().replace('"event": "client"', '"event": "client", "sent": 3'))
    assert codes(one(tmp_path)) == {"requests_lost"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"arrivals_s": [0.1, 0.3, 0.2, 0.4]}, "its times run backwards"),
        ({"arrivals_s": [0.1, 0.2, 0.3, 0.6]}, "its times run backwards"),
        ({"sent_s": 0.2}, "it was sent before the same user's last one had ended"),
    ],
)
def test_times_that_run_backwards_are_set_aside(changes: dict[str, Any], told: str, judged: Write) -> None:
    output = judged([request(0), request(0.5) | changes, request(1), request(1.5)])
    assert (output.validity, codes(output)) == (Validity.INVALID, {"request_failures"})
    assert output.verdict
    assert told in output.verdict.reasons[0].message
    assert metrics(output)["latency_max"].value == 0.4


FIRST_WORDS = [0.001, 0.002, 0.003, *(0.3 + 0.005 * number for number in range(17))]
"""Arrivals of three words, a pause, and the rest."""
TEXT = {"text_bytes": 80, "output_tokens": 20, "arrivals_s": [0.02 * number for number in range(1, 21)]}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"is_blank": True}, "blank"),
        ({"oddities": ["other_model"]}, "other_model"),
        ({"oddities": ["choices"]}, "choices"),
        ({"oddities": ["unfinished"]}, "unfinished"),
        ({"arrivals_s": [0.4]}, "burst"),
        ({"arrivals_s": [0.1] + [0.4] * 19, "begins_blank": True}, "paused_blank"),
        ({"arrivals_s": [0.01 * number for number in range(1, 31)]}, "more_parts"),
        ({"text_bytes": 8}, "text_per_token"),
        ({"text_crc32": 7}, "shared_text"),
        ({"timings": {"predicted_n": 5}}, "timed_tokens"),
        ({"timings": {"predicted_ms": 900.0}}, "worked_longer"),
        ({"timings": {"prompt_n": 3}}, "prompt_cache"),
        ({"blank_parts": 12}, "blank_parts"),
        ({"oddities": ["doubled"]}, "doubled"),
        ({"arrivals_s": FIRST_WORDS, "begins_crc32": [1, 2, 3, 4]}, "paused_alike"),
        ({"timings": {"predicted_ms": 190.0, "predicted_per_second": 1000.0}}, "timed_rate"),
    ],
)
def test_a_server_that_cheats_makes_a_load_test_invalid(
    changes: dict[str, Any], code: str, judged: Write
) -> None:
    honest = [
        request(0.5 * number, prompt_crc32=number, text_crc32=number, **{**TEXT, "timings": {}})
        for number in range(8)
    ]
    assert judged(honest).validity is Validity.VALID
    output = judged([{**row, **changes} for row in honest])
    assert (output.validity, codes(output)) == (Validity.INVALID, {code})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arrivals_s": FIRST_WORDS}, "pause after their first words for most of their time"),
        ({"arrivals_s": [0.398 + 1e-4 * number for number in range(20)]}, "close together at their end"),
        ({"timings": {"predicted_ms": 19.0}}, "in less than half the time that they were streamed"),
        ({"oddities": ["hidden_tokens"]}, "count tokens that they do not show"),
        ({"oddities": ["retried"]}, "come from a gateway that tried before without success"),
        ({"blank_parts": 8}, "40% of the parts of the streams are blanks"),
    ],
)
def test_what_may_be_a_cheat_is_a_warning(changes: dict[str, Any], said: str, judged: Write) -> None:
    rows = [
        request(0.5 * number, prompt_crc32=number, text_crc32=number, **{**TEXT, "timings": {}, **changes})
        for number in range(8)
    ]
    output = judged(rows)
    assert (output.validity, codes(output)) == (Validity.VALID, set())
    assert output.verdict
    (warning,) = output.verdict.warnings
    assert said in warning


def test_a_few_replies_with_little_text_are_warned_of(judged: Write) -> None:
    rows = [
        request(0.5 * number, prompt_crc32=number, text_crc32=number, **{**TEXT, "timings": {}})
        for number in range(8)
    ]
    output = judged([rows[0] | {"text_bytes": 8}, *rows[1:]])
    assert output.validity is Validity.VALID
    assert output.verdict
    assert "1 of 8 replies have fewer bytes of text than tokens" in output.verdict.warnings[0]


def test_replies_of_two_builds_are_warned_of(judged: Write) -> None:
    builds = ["b1", "", "b1", "b2", "b1"]
    output = judged([request(0.5 * number, build=build) for number, build in enumerate(builds)])
    assert output.validity is Validity.VALID
    assert output.verdict
    assert "2 of 5 replies come from another build of the server" in "\n".join(output.verdict.warnings)
    output = judged([request(0.5 * number, build="b1") for number in range(5)])
    assert output.verdict
    assert output.verdict.warnings == ()


def test_a_request_with_a_negative_time_is_left_out_and_told(judged: Write) -> None:
    output = judged([request(0), request(0.4), request(0.8) | {"arrivals_s": [-0.1, 0.2, 0.3, 0.4]}])
    assert (output.validity, codes(output)) == (Validity.INVALID, {"cut_log"})
    assert metrics(output)["request_count"].value == 2
    assert metrics(output)["tpot_mean"].value == pytest.approx(0.1)


def test_requests_that_were_sent_and_are_in_no_log_are_lost(judged: Write, tmp_path: Path) -> None:
    sent = [request(0), request(0.4), request(0.8)]
    assert judged(sent, requests_sent=3).validity is Validity.VALID
    output = judged(sent, requests_sent=5)
    assert codes(output) == {"requests_lost"}
    assert output.verdict is not None
    assert "2 of 5 requests were sent but have no recorded reply" in output.verdict.reasons[0].message
    columns = "Type,Name,Request Count,Failure Count"
    rows = "POST,/c,4,0\nTTFT,/c,4,0\nTPOT,/c,4,0\n,Aggregated,12,0\n"
    (tmp_path / "locust_stats.csv").write_text(f"{columns}\n{rows}")
    assert codes(judged(sent)) == {"requests_lost"}
    (tmp_path / "locust_stats.csv").write_text(f"{columns}\n{rows.replace('4', '3')}")
    assert judged(sent).validity is Validity.VALID


def test_load_tests_are_found_below_a_folder_and_hide_no_other(judged: Write, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(LOADS / "valid", tmp_path / "tree" / name)
    (tmp_path / "tree" / "b" / "load.json").write_text("{")
    outputs = {output.scenario: output.validity for output in LOAD_PARSER.parse(tmp_path / "tree")}
    assert outputs == {"a/tiny/F16/load-2": Validity.VALID, "b": Validity.FAILED}
