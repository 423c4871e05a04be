"""Replies and counters of llama.cpp's server: of a real one of 2026, and in the form of 2024."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.errors import ParseError
from agent.parsing import parse_path
from parsers.llamacpp_server import COUNTERS_PARSER, REPLIES_PARSER

if TYPE_CHECKING:
    from agent.records import Metric, ParsedOutput

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
        ("completion_2024.json", (12, 128)),
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
    assert ("cached_tokens" in found) is ("2024" not in name)


@pytest.mark.parametrize("name", ["completion_b11549.json", "completion_2024.json"])
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


def test_what_was_not_measured_is_absent() -> None:
    _, found = one(COUNTERS / "2024.prom")
    assert found["prompt_tokens_per_second"].value == 174.922
    assert "generation_tokens_per_second" not in found  # 0 tokens so far
    assert "kv_cache_usage" not in found  # nan
    assert found["requests_deferred"].value == 1


def test_other_counters_are_not_llama_cpp_s(tmp_path: Path) -> None:
    path = tmp_path / "vllm.prom"
    path.write_text("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n")
    assert not COUNTERS_PARSER.recognise(path)
    with pytest.raises(ParseError, match=r"none of llama\.cpp's counters"):
        COUNTERS_PARSER.parse(path)
