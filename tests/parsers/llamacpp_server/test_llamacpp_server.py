"""Replies and counters of real llama.cpp servers: b11549 (xllamacpp, 2026), b3642 (August 2024).

The latter is built from llama-cpp-python 0.2.90's sdist on PyPI: ``llama-server -m smol-Q4_K_M.gguf
--alias smol -np 2 -c 512 --metrics``. The requests: ``{"prompt": "The capital of France is", "n_predict": 8,
"temperature": 0, "ignore_eos": true}``, one token, a stream, and its counters before the first request and
afterwards.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.component.parsing import parse_path
from agent.core.errors import ParseError
from parsers.llamacpp_server import COUNTERS_PARSER, REPLIES_PARSER

if TYPE_CHECKING:
    from agent.core.records import Metric, ParsedOutput

HERE = Path(__file__).parent
REPLIES, COUNTERS = HERE / "replies", HERE / "counters"


def one(path: Path) -> tuple[ParsedOutput, dict[str, Metric]]:
    (output,) = parse_path(path)
    return output, {metric.name: metric for metric in output.metrics}


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("completion_b11549.json", (4, 4)),
        ("completion_stream_b11549.txt", (4, 4)),
        ("openai_stream_b11549.txt", (4, 3)),
        ("completion_b3642.json", (5, 8)),
        ("completion_stream_b3642.txt", (5, 8)),
    ],
)
def test_a_reply_tells_its_tokens_and_their_time(name: str, tokens: tuple[int, int]) -> None:
    output, found = one(REPLIES / name)
    assert (output.details["input_tokens"], output.details["output_tokens"]) == tokens
    assert (found["prompt_tokens"].value, found["generation_tokens"].value) == tokens
    text = (REPLIES / name).read_text()
    timings = json.loads(text[text.rindex('"timings":') + 10 :].partition("}")[0] + "}")
    assert found["generation_tokens_per_second"].value == pytest.approx(timings["predicted_per_second"])
    assert found["prompt_tokens_per_second"].value == pytest.approx(timings["prompt_per_second"])
    assert found["prompt_time"].value == pytest.approx(timings["prompt_ms"] / 1e3)
    assert ("cached_tokens" in found) is ("b3642" not in name)


@pytest.mark.parametrize("name", ["completion_b11549.json", "completion_b3642.json"])
def test_both_forms_say_why_the_reply_ended(name: str) -> None:
    assert one(REPLIES / name)[0].details["stopped_by"] == "limit"


@pytest.mark.parametrize("name", ["completion_b11549.json", "completion_stream_b11549.txt"])
def test_a_reply_that_was_cut_gives_no_numbers(name: str, tmp_path: Path) -> None:
    text = (REPLIES / name).read_text().rstrip()
    for share in (0.1, 0.5, 0.9, 0.999):
        path = tmp_path / "cut.json"
        path.write_text(text[: int(len(text) * share)])
        with pytest.raises(ParseError):
            REPLIES_PARSER.parse(path)
        with pytest.raises(ParseError):
            parse_path(path)


def test_an_error_is_no_reply(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    path.write_text('{"error": {"code": 400, "message": "exceeds the available context size"}}')
    with pytest.raises(ParseError, match="no timings"):
        REPLIES_PARSER.parse(path)


def test_counters_of_a_real_server() -> None:
    output, found = one(COUNTERS / "b11549.prom")
    assert output.format == "llamacpp_counters"
    lines = (line.split() for line in (COUNTERS / "b11549.prom").read_text().splitlines() if line[0] != "#")
    told = {name.removeprefix("llamacpp:"): float(value) for name, value in lines}
    assert found["generation_tokens"].value == told["tokens_predicted_total"] > 0
    assert found["prompt_time"].value == told["prompt_seconds_total"]
    assert found["generation_tokens_per_second"].value == told["predicted_tokens_seconds"]
    assert found["cached_tokens"].value == 0
    assert found["requests_deferred"].unit == "count"


def test_a_reply_of_one_token_measures_no_generation() -> None:
    output, found = one(REPLIES / "completion_one_token_b3642.json")
    assert output.details["output_tokens"] == 1
    assert found["prompt_tokens_per_second"].value == pytest.approx(66.616, abs=1e-3)
    assert "generation_tokens_per_second" not in found  # the server reported 111111.1


def test_counters_of_2024() -> None:
    _, found = one(COUNTERS / "b3642.prom")
    assert found["prompt_tokens_per_second"].value == 55.9284
    assert found["generation_tokens"].value == 33
    assert (found["kv_cache_usage"].value, found["kv_cache_usage"].unit) == (0.046875, "ratio")
    assert "cached_tokens" not in found


def test_rates_of_nothing_are_absent() -> None:
    _, found = one(COUNTERS / "b3642_idle.prom")
    assert found["prompt_tokens"].value == 0
    assert not {"prompt_tokens_per_second", "generation_tokens_per_second"} & found.keys()


def test_a_counter_that_is_no_number_is_absent(tmp_path: Path) -> None:
    path = tmp_path / "nan.prom"
    path.write_text("llamacpp:requests_deferred 1\nllamacpp:kv_cache_usage_ratio nan\n")
    _, found = one(path)
    assert found["requests_deferred"].value == 1
    assert "kv_cache_usage" not in found


def test_other_counters_are_not_llama_cpp_s(tmp_path: Path) -> None:
    path = tmp_path / "vllm.prom"
    path.write_text("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n")
    assert not COUNTERS_PARSER.recognise(path)
    with pytest.raises(ParseError, match=r"none of llama\.cpp's counters"):
        COUNTERS_PARSER.parse(path)


def event(predicted: int, **changes: object) -> str:
    choice = {"delta": {"content": "h"}, "index": 0, "finish_reason": None}
    timings = {"prompt_n": 12, "prompt_ms": 100.5, "predicted_n": predicted, "predicted_ms": 20.0 * predicted}
    return "data: " + json.dumps({"choices": [choice | changes], "timings": timings}) + "\n\n"


def test_a_stream_with_timings_per_token_has_ended_only_where_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / "stream.txt"
    path.write_text(event(3) + event(4) + 'data: {"choices":[{"del')
    output, found = one(path)
    assert not output.complete
    assert found["generation_tokens"].value == 4
    for end in (event(5, finish_reason="stop"), "data: [DONE]\n\n"):
        path.write_text(event(3) + event(4) + end)
        assert one(path)[0].complete


def test_several_replies_in_one_file_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    for text in (
        event(3) + "data: [DONE]\n\n" + event(7) + "data: [DONE]\n\n",
        "\n".join((REPLIES / f"completion_{build}.json").read_text() for build in ("b3642", "b11549")),
    ):
        path.write_text(text)
        outputs = REPLIES_PARSER.parse(path)
        assert len(outputs) == 2
        assert len({output.scenario for output in outputs}) == 2
        assert all(output.complete for output in outputs)


def test_a_negative_time_is_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "reply.json"
    path.write_text('{"stop": true, "timings": {"prompt_n": 3, "prompt_ms": -5.0, "predicted_n": 2}}')
    output, found = one(path)
    assert "prompt_time" not in found
    assert output.verdict is not None
    assert [reason.code for reason in output.verdict.reasons] == ["below_0"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("llamacpp:n_decode_total 1\nllamacpp:n_decode_total 2\n", "twice"),
        ('llamacpp:n_decode_total{m="a"} 1\nllamacpp:n_decode_total{m="b"} 2\n', "several models"),
        ("llamacpp:n_decode_total 0,5\n", "decimal comma"),
        ("llamacpp:n_decode_total -1\n", "below 0"),
        ("llamacpp:n_decode_total\n", "not a sample"),
    ],
)
def test_counters_that_make_no_sense_are_refused(text: str, match: str, tmp_path: Path) -> None:
    path = tmp_path / "counters.prom"
    path.write_text(text)
    with pytest.raises(ParseError, match=match):
        COUNTERS_PARSER.parse(path)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (
            '"tokens_predicted":4,"tokens_evaluated":4',
            '"tokens_predicted":9,"tokens_evaluated":4',
            "timed_tokens",
        ),
        (
            '"tokens_predicted":4,"tokens_evaluated":4',
            '"tokens_predicted":4,"tokens_evaluated":3',
            "timed_tokens",
        ),
        ('"predicted_per_second":367', '"predicted_per_second":734', "rate"),
        ('"prompt_ms":3.745', '"prompt_ms":1.745', "rate"),
        ('"predicted_ms":8.168', '"predicted_ms":-8.168', "below_0"),
    ],
)
def test_a_reply_that_contradicts_itself_is_invalid(tmp_path: Path, old: str, new: str, code: str) -> None:
    text = (REPLIES / "completion_b11549.json").read_text()
    assert text.count(old) == 1
    path = tmp_path / "reply.json"
    path.write_text(text.replace(old, new))
    verdict = one(path)[0].verdict
    assert verdict is not None
    assert [reason.code for reason in verdict.reasons] == [code]


def test_a_prompt_from_a_cache_was_not_computed(tmp_path: Path) -> None:
    text = (REPLIES / "completion_b11549.json").read_text()
    path = tmp_path / "reply.json"
    path.write_text(text.replace('"tokens_evaluated":4', '"tokens_evaluated":40'))
    assert one(path)[0].verdict is None
