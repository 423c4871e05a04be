"""The shipped samples, files of the same form, and synthetic ones."""

from __future__ import annotations

import json
from statistics import mean
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions.mlperf.exact_match import find_reference, is_right, score
from actions.mlperf.harness.dataset import read_dataset
from actions.mlperf.sample_sets import open_sample_set, shipped
from actions.mlperf.sample_sets.synthetic import SyntheticSamples
from agent.errors import HostError, ParseError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", shipped())
def test_shipped_sets_are_whole_and_the_harness_reads_them(name: str) -> None:
    samples = open_sample_set(name)
    assert [sample.id for sample in read_dataset(samples.path)] == list(samples.ids)
    assert len({sample.prompt for sample in read_dataset(samples.path)} if samples.ids else ()) == len(
        samples.ids
    )


def test_every_fact_has_an_answer_and_none_is_in_its_own_question() -> None:
    samples = open_sample_set("simple-facts")
    assert set(samples.answers) == set(samples.ids)
    rows = [json.loads(line) for line in samples.path.read_text(encoding="utf-8").splitlines()]
    assert [
        row["id"] for row in rows for answer in row["answers"] if is_right(row["prompt"], (answer,))
    ] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no sample"),
        ('{"prompt": ""}\n', ":1: not a sample"),
        ('{"prompt": "a"}\n{"prompt"', ":2: not a sample"),
        ("[1]\n", "not a sample"),
        ('{"id": "1", "prompt": "a"}\n{"id": 1, "prompt": "b"}\n', "same id"),
        ('{"prompt": "a", "answers": "b"}\n', "answers is not a list"),
    ],
)
def test_a_broken_set_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(HostError, match=message):
        open_sample_set(str(path))


def test_a_part_keeps_ids_and_answers(tmp_path: Path) -> None:
    part = open_sample_set("simple-facts").first(3, tmp_path / "part.jsonl")
    again = open_sample_set(str(part.path))
    assert part.ids == again.ids
    assert dict(part.answers) == dict(again.answers)
    assert len(part.ids) == 3


def test_synthetic_samples_depend_on_the_seed_alone(tmp_path: Path) -> None:
    SyntheticSamples(20, 50, 200, seed=7).write(tmp_path / "a")
    SyntheticSamples(20, 50, 200, seed=7).write(tmp_path / "b")
    SyntheticSamples(20, 50, 200, seed=8).write(tmp_path / "c")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()
    assert len(read_dataset(tmp_path / "a")) == 20


@settings(deadline=None)  # a busy host is no failure
@given(st.integers(1, 300), st.integers(0, 300), st.integers())
def test_synthetic_lengths_stay_within_bounds(mean_tokens: int, more: int, seed: int) -> None:
    ids = SyntheticSamples(20, mean_tokens, mean_tokens + more, seed).token_ids()
    assert all(1 <= len(sample) <= mean_tokens + more for sample in ids)
    assert all(1000 <= token < 30000 for sample in ids for token in sample)
    if not more:
        assert {len(sample) for sample in ids} == {mean_tokens}


def test_synthetic_lengths_have_the_mean_asked_for() -> None:
    ids = SyntheticSamples(4000, 100, 400, seed=1).token_ids()
    assert mean(map(len, ids)) == pytest.approx(100, rel=0.05)
    assert max(map(len, ids)) > 250


@pytest.mark.parametrize(
    ("text", "answers", "right"),
    [
        (" Paris.\n\nThe capital", ("Paris",), True),
        (" paris", ("Paris",), True),
        (" Parisian", ("Paris",), False),
        (" the city of Paris", ("Paris",), False),
        (" US dollar", ("dollar", "US dollar"), True),
        (" U.S. dollar", ("U.S. dollar",), True),
        (" 50, 60", ("50",), True),
        (" 5", ("50",), False),
        ("", ("50",), False),
    ],
)
def test_is_right(text: str, answers: tuple[str, ...], right: bool) -> None:  # noqa: FBT001
    assert is_right(text, answers) is right


def test_unanswered_samples_are_wrong(tmp_path: Path) -> None:
    samples = open_sample_set("simple-facts")
    outputs = tmp_path / "outputs.jsonl"
    outputs.write_text('{"sample_index": 0, "id": "fact-000", "text": " Paris"}\n', encoding="utf-8")
    found = score(outputs, samples)
    assert found.right == ("fact-000",)
    assert found.total == 96


@pytest.mark.parametrize("text", [None, '{"id": "fact-000", "te'])
def test_answers_that_cannot_be_read_are_an_error(text: str | None, tmp_path: Path) -> None:
    outputs = tmp_path / "outputs.jsonl"
    if text is not None:
        outputs.write_text(text, encoding="utf-8")
    with pytest.raises(ParseError, match="answers cannot be read"):
        score(outputs, open_sample_set("simple-facts"))


def test_the_reference_of_a_part_is_that_of_the_same_samples(tmp_path: Path) -> None:
    samples = open_sample_set("simple-facts")
    whole = find_reference("smollm2-135m", "another file", samples)
    part = find_reference("smollm2-135m", "another file", samples.first(10, tmp_path / "part"))
    assert whole is not None
    assert part is not None
    assert whole.exact_match == pytest.approx(73 / 96)
    assert part.exact_match * 10 == pytest.approx(round(part.exact_match * 10))
    assert not whole.is_same_file
    assert find_reference("another-model", "", samples) is None
