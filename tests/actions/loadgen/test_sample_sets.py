"""The shipped samples, files in the same format, and synthetic samples."""

from __future__ import annotations

import json
from statistics import mean, median
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.loadgen.exact_match import find_reference, is_right, score
from actions.loadgen.in_environment.harness.dataset import pack_tokens, read_dataset
from actions.loadgen.sample_sets import open_sample_set, shipped
from actions.loadgen.sample_sets.synthetic import SyntheticSamples
from agent.core.errors import HostError, ParseError

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
        ("", "contains no sample"),
        ('{"prompt": ""}\n', ":1: not a sample"),
        ('{"prompt": "a"}\n{"prompt"', ":2: not a sample"),
        ("[1]\n", "not a sample"),
        ('{"id": "1", "prompt": "a"}\n{"id": 1, "prompt": "b"}\n', "same id"),
        ('{"prompt": "a", "answers": "b"}\n', "answers is not a list"),
        ('{"prompt": "a", "answers": [""]}\n', "neither a word nor a number"),
        ('{"prompt": "a", "answers": ["b", "…!"]}\n', "neither a word nor a number"),
        ('{"prompt": "a", "answers": [null]}\n', "neither a word nor a number"),
        ('{"prompt": "a", "answers": ["b"], "symbol": "yes"}\n', "neither true nor false"),
    ],
)
def test_a_broken_set_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(HostError, match=message):
        open_sample_set(str(path))


def test_a_line_separator_within_a_text_ends_no_line(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    rows = [{"id": str(number), "prompt": f"two\u2028lines\u0085{number}"} for number in range(3)]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    samples = open_sample_set(str(path))
    assert samples.ids == ("0", "1", "2")
    assert open_sample_set(str(samples.first(2, tmp_path / "part").path)).ids == ("0", "1")


def test_a_part_without_the_long_samples(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    rows = [{"id": "long", "token_ids": [1] * 9}, {"id": "list", "token_ids": [1] * 8}]
    rows += [{"id": "packed", "token_ids": pack_tokens([1] * 8)}, {"id": "last", "token_ids": [1]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    samples = open_sample_set(str(path))
    assert samples.first(2, tmp_path / "part", longest=8).ids == ("list", "packed")
    assert samples.first(None, tmp_path / "part", longest=8).ids == ("list", "packed", "last")
    assert open_sample_set(str(tmp_path / "part")).ids == ("list", "packed", "last")
    with pytest.raises(HostError, match="no sample of set has at most 0 tokens"):
        samples.first(None, tmp_path / "part", longest=0)
    with pytest.raises(HostError, match="is text"):
        open_sample_set("short-prompts").first(2, tmp_path / "part", longest=8)


def test_a_part_keeps_ids_and_answers(tmp_path: Path) -> None:
    part = open_sample_set("simple-facts").first(3, tmp_path / "part.jsonl")
    again = open_sample_set(str(part.path))
    assert part.ids == again.ids
    assert dict(part.answers) == dict(again.answers)
    assert len(part.ids) == 3
    symbols = open_sample_set("simple-facts").first(24, tmp_path / "more.jsonl").symbols
    assert symbols == {"fact-022", "fact-023"}


def test_synthetic_samples_depend_on_the_seed_alone(tmp_path: Path) -> None:
    SyntheticSamples(20, 50, 200, seed=7).write(tmp_path / "a")
    SyntheticSamples(20, 50, 200, seed=7).write(tmp_path / "b")
    SyntheticSamples(20, 50, 200, seed=8).write(tmp_path / "c")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()
    assert len(read_dataset(tmp_path / "a")) == 20


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


def test_synthetic_samples_have_the_statistics_of_news_articles() -> None:
    lengths = [len(sample) for sample in SyntheticSamples(5000, 870, 2540, seed=1).token_ids()]
    assert mean(lengths) == pytest.approx(870, rel=0.02)
    assert 2400 < max(lengths) <= 2540
    assert median(lengths) < mean(lengths)


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
        (" \u201cParis\u201d", ("Paris",), True),
        ("**Paris**", ("Paris.",), True),
        (" New\n York", ("New York",), True),
        ("anything", ("",), False),
        ("anything", ("\u2026!",), False),
        (" 5", ("-5",), False),
        (" -5", ("5",), False),
        (" \u22125.", ("-5",), True),
        (" - 5", ("5",), True),
        (" 5.5 is", ("5",), False),
        (" 5. Then", ("5",), True),
        (" .5", ("5",), False),
        (" 3 14", ("3.14",), False),
        (" 3.14.", ("3.14",), True),
        (" 50,000 people", ("50",), False),
        (" 50,000 people", ("50,000",), True),
        (" 5th", ("5",), False),
        (" C is a letter", ("C++",), False),
        (" C++ is a language", ("C",), False),
        (" c++, of course", ("C++",), True),
        (" Caf\u0065\u0301", ("caf\u00e9",), True),
        (" \u5df4\u9ece\u662f", ("\u5df4\u9ece",), True),  # Paris, and a verb
        (" \ud30c\ub9ac\ub294", ("\ud30c\ub9ac",), True),  # Paris, and a particle
        (" \u0926\u093f\u0932\u094d\u0932\u0940", ("\u0926\u093f\u0932\u094d\u0932\u0940",), True),  # Delhi
        (" \u0926\u093f\u0932\u094d\u0932\u0940", ("\u0926\u093f\u0932",), False),  # not heart
        (" \u041f\u0430\u0440\u0438\u0436.", ("\u043f\u0430\u0440\u0438\u0436",), True),
    ],
)
def test_is_right(text: str, answers: tuple[str, ...], right: bool) -> None:  # noqa: FBT001
    assert is_right(text, answers) is right


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (" He.\n\nThe chemical formula", True),
        (" He\nHydrogen is H", True),
        (" He (a noble gas)", True),
        (" He is a man", False),
        (" he", False),
        (" Hello", False),
    ],
)
def test_a_symbol_stands_alone_and_as_it_is_spelt(text: str, right: bool) -> None:  # noqa: FBT001
    assert is_right(text, ("He",), symbol=True) is right


@given(st.text(), st.text())
def test_any_text_is_right_or_wrong_and_an_answer_is_right_itself(text: str, answer: str) -> None:
    is_right(text, (answer,))
    if any(map(str.isalnum, answer)):
        assert is_right(answer, (answer,))


def write_outputs(path: Path, texts: dict[str, str]) -> Path:
    rows = [{"sample_index": 0, "id": name, "text": text} for name, text in texts.items()]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_line_separator_within_an_answer_ends_no_line(tmp_path: Path) -> None:
    samples = open_sample_set("simple-facts").first(2, tmp_path / "part")
    texts = {"fact-000": " Paris.\u2028Next\u0085", "fact-001": " Bonn"}
    found = score(write_outputs(tmp_path / "outputs.jsonl", texts), samples)
    assert (found.right, found.wrong) == (("fact-000",), {"fact-001": " Bonn"})


def test_a_sample_without_an_answer_is_an_error_unless_fewer_were_asked(tmp_path: Path) -> None:
    samples = open_sample_set("simple-facts")
    outputs = write_outputs(tmp_path / "outputs.jsonl", {"fact-000": " Paris", "fact-003": " Barcelona"})
    for asked in (None, 0, 3, 200):
        with pytest.raises(ParseError, match=r"2 of \d+ samples of simple-facts were answered"):
            score(outputs, samples, asked)
    found = score(outputs, samples, asked=2)
    assert (found.right, found.total) == (("fact-000",), 2)
    reference = find_reference("smollm2-135m", "", samples, found)
    assert reference is not None
    assert reference.exact_match == 0.5  # the model is known to say Barcelona


def test_answers_of_another_set_are_an_error(tmp_path: Path) -> None:
    samples = open_sample_set("simple-facts").first(1, tmp_path / "part")
    outputs = write_outputs(tmp_path / "outputs.jsonl", {"fact-000": " Paris", "other": ""})
    with pytest.raises(ParseError, match="1 more not in the set"):
        score(outputs, samples)


def test_a_score_of_nothing_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text('{"id": "a", "prompt": "b", "answers": ["c"]}\n{"id": "d", "prompt": "e"}\n')
    outputs = write_outputs(tmp_path / "outputs.jsonl", {"d": ""})
    with pytest.raises(ParseError, match="has a known answer"):
        score(outputs, open_sample_set(str(path)), asked=1)


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


def test_a_set_of_the_same_name_has_no_reference_but_a_copy_has(tmp_path: Path) -> None:
    shipped_set = open_sample_set("simple-facts")
    own = tmp_path / "simple-facts.jsonl"
    own.write_text('{"id": "fact-000", "prompt": "2 + 2 =", "answers": ["4"]}\n', encoding="utf-8")
    assert find_reference("smollm2-135m", "", open_sample_set(str(own))) is None
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(shipped_set.path.read_bytes())
    assert find_reference("smollm2-135m", "", open_sample_set(str(copy))) is not None


def test_a_reference_of_0_is_none(tmp_path: Path) -> None:
    samples = open_sample_set("simple-facts")
    scored = score(write_outputs(tmp_path / "outputs.jsonl", {"fact-003": " garbage"}), samples, asked=1)
    assert find_reference("smollm2-135m", "", samples, scored) is None


def test_the_references_are_of_the_sets_that_ship() -> None:
    entries = json.loads((shipped()["simple-facts"].parent / "references.json").read_text())
    for entry in entries:
        samples = open_sample_set(entry["set"])
        assert entry["set_sha256"] == samples.source_sha256
        assert set(entry["right"]) <= set(samples.answers)
