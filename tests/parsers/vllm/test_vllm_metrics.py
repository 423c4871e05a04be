"""vLLM's /metrics, of two versions: the names of vllm/v1/metrics/loggers.py, and those before 2025."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.component.parsing import parse_path
from agent.core.errors import ParseError
from parsers.vllm_metrics import PARSER

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "v0_11.prom",
            {
                "prompt_tokens": 12000,
                "generation_tokens": 35000,
                "requests_running": 3,
                "kv_cache_usage": 0.125,
                "ttft_mean": 0.25,
                "inter_token_latency_mean": 0.025,
            },
        ),
        (
            "v0_6.prom",
            {
                "kv_cache_usage": 0.5,
                "generation_tokens_per_second": 88.5,
                "inter_token_latency_mean": pytest.approx(1.5 / 9),
            },
        ),
    ],
)
def test_both_generations_are_read(name: str, expected: dict[str, float]) -> None:
    (output,) = parse_path(HERE / name)
    assert {metric.name: metric.value for metric in output.metrics} == expected


def test_a_histogram_without_its_count_has_no_mean(tmp_path: Path) -> None:
    path = tmp_path / "x.prom"
    text = (HERE / "v0_11.prom").read_text()
    path.write_text(text.replace("first_token_seconds_count{engine", "first_token_seconds_other{engine"))
    assert "ttft_mean" not in {metric.name for metric in PARSER.parse(path)[0].metrics}


def test_engines_and_models_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "x.prom"
    lines = (
        f'vllm:num_requests_running{{engine="{engine}",model_name="m"}} {engine + 1}\n' for engine in (0, 1)
    )
    path.write_text("".join(lines))
    (output,) = PARSER.parse(path)
    assert {metric.scenario: metric.value for metric in output.metrics} == {
        "model_name=m/engine=0": 1,
        "model_name=m/engine=1": 2,
    }


@pytest.mark.parametrize(
    "line", ["vllm:num_requests_running 1,5\n", "vllm:num_requests_running -1\n", "vllm:x 1\n"]
)
def test_what_is_no_such_number_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "x.prom"
    path.write_text(line)
    with pytest.raises(ParseError):
        PARSER.parse(path)
