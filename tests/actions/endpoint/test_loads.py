"""Due times and lengths of requests, and the reading of traces."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, pvariance
from typing import TYPE_CHECKING

import pytest

from actions.endpoint.loads import Lengths, Prompts, poisson_arrivals, traced_arrivals
from actions.endpoint.traces import read_trace
from agent.core.errors import HostError

if TYPE_CHECKING:
    from pathlib import Path

# Format: FAST25-release/traces/conversation_trace.jsonl of kvcache-ai/Mooncake.
MOONCAKE = """\
{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2, 3, 4, 5, 6]}
{"timestamp": 3000, "input_length": 7322, "output_length": 490, "hash_ids": [0, 14, 15, 16]}
"""
# Format: AzureLLMInferenceTrace_conv.csv of Azure/AzurePublicDataset.
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""


def test_poisson_arrivals_have_exactly_their_rate_and_exponential_gaps() -> None:
    moments = poisson_arrivals(20.0, 4000, "seed")
    gaps = [after - before for before, after in pairwise(moments)]
    assert moments == sorted(moments)
    assert len(moments) / 20.0 >= moments[-1]
    assert fmean(gaps) == pytest.approx(0.05, rel=0.01)
    assert pvariance(gaps) == pytest.approx(
        0.05**2, rel=0.2
    )  # for an exponential distribution: its mean squared
    assert moments == poisson_arrivals(20.0, 4000, "seed")
    assert moments != poisson_arrivals(20.0, 4000, "another")


def test_mooncakes_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(MOONCAKE)
    first, second = read_trace(path)
    assert (first.offset_s, first.input_tokens, first.output_tokens) == (0.0, 6758, 500)
    assert (second.offset_s, second.blocks) == (3.0, (0, 14, 15, 16))


def test_azures_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("\ufeff" + AZURE)
    first, second = read_trace(path)
    assert (first.input_tokens, first.output_tokens, first.blocks) == (374, 44, ())
    assert second.offset_s == pytest.approx(4.314579, abs=1e-5)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "holds no request"),
        ('{"timestamp": 0, "input_length": 5}', "trace:1 has none of output_length"),
        ('{"timestamp": 0, "input_length": 0, "output_length": 1}', "lengths of 0 and 1"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 1}\n{"time', "trace:2 is not JSON"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,5,1\n", "trace:2"),
    ],
)
def test_a_trace_that_makes_no_sense_is_refused_with_its_line(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(HostError, match=problem):
        read_trace(path)


def test_a_missing_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cannot be read"):
        read_trace(tmp_path / "none")


def test_a_trace_is_stretched_to_a_rate_and_repeated(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = (f'{{"timestamp": {ms}, "input_length": 5, "output_length": 5}}' for ms in (1000, 2000, 5000))
    path.write_text("\n".join(lines))
    trace = read_trace(path)
    assert traced_arrivals(trace, None, 3) == [0.0, 1.0, 4.0]
    assert traced_arrivals(trace, None, 5) == [0.0, 1.0, 4.0, 6.0, 7.0]  # three requests take 6 s
    assert traced_arrivals(trace, 1.0, 5) == [0.0, 0.5, 2.0, 3.0, 3.5]


def test_prompts_have_their_lengths_and_begin_differently() -> None:
    prompts = Prompts("seed")
    made = [prompts.token_ids(Lengths(length, 1)) for length in (1, 7, 64, 200_000) for _ in range(3)]
    assert [len(ids) for ids in made] == [length for length in (1, 7, 64, 200_000) for _ in range(3)]
    long = [tuple(ids[:8]) for ids in made if len(ids) >= 64]
    assert len(set(long)) == len(long)
    assert made[0] == Prompts("seed").token_ids(Lengths(1, 1))


def test_prompts_share_what_the_trace_says_that_they_share() -> None:
    prompts = Prompts("seed")
    one = prompts.token_ids(Lengths(1500, 1, (7, 8, 9)))
    other = prompts.token_ids(Lengths(1100, 1, (7, 8, 10)))
    assert (len(one), len(other)) == (1500, 1100)
    assert one[:1024] == other[:1024]
    assert one[1024:1100] != other[1024:1100]
    assert prompts.token_ids(Lengths(300, 1, (7,))) == one[:300]


def test_texts_have_a_word_for_each_token() -> None:
    text = Prompts("seed", ["bread", "train"]).text(Lengths(9, 1))
    assert len(text.split()) == 9
    assert set(text.split()) <= {"bread", "train"}
