"""ROUGE: the arithmetic compared with rouge_score itself, and the verdicts on the scores."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actions.loadgen.in_environment import harness
from actions.loadgen.rouge import judge_rouge, rouge_of
from agent.core.errors import ActionFailedError
from agent.core.records import Validity
from parsers.mlperf_accuracy.targets import targets_of

if TYPE_CHECKING:
    from agent.component.component import StepContext

NEWS = (
    ("The mayor opened the new bridge on Monday.", "A bridge was opened by the mayor. Traffic will flow."),
    ("Dr. Smith of St. Mary's said it ended.  It cost $5.5m.", "Dr. Smith's ended.\nIt cost 5m."),
    ("Storms hit the coast; warnings followed. Boats stayed.", "Boats stayed. Mr. Jones warned of storms."),
    ("", "Nothing was answered here."),
    ("Ärzte ohne Grenzen hilft. 日本 won.", "Japan won the match."),
)  # fmt: skip
PAIRS = [(f"{answer} No. {number}.", reference) for number in range(40) for answer, reference in NEWS]


def accuracy_log(folder: Path, answers: list[bytes]) -> None:
    """Write LoadGen's log: the answers in order of arrival, one of them twice."""
    rows = [
        {"seq_id": place, "qsl_idx": index, "data": answers[index].hex().upper(), "token_count": 8}
        for place, index in enumerate(reversed(range(len(answers))))
    ]
    rows.append({**rows[0], "data": b"a later answer to the same sample".hex()})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mlperf_log_accuracy.json").write_text(json.dumps(rows))


def sample_set(path: Path, references: list[str]) -> Path:
    rows = ({"id": str(place), "prompt": "?", "reference": text} for place, text in enumerate(references))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def environment_of(python: Path) -> Path:
    return python.parent.parent


def carried_by(python: Path) -> Path:
    """Return the folder of NLTK's data that an environment has with llama-index-core."""
    folder = "lib/python3*/site-packages/llama_index/core/_static/nltk_cache"
    (carried,) = environment_of(python).glob(folder)
    return carried


@pytest.fixture
def scored(accuracy_python: Path, context: StepContext, tmp_path: Path) -> Any:
    def score(answers: list[bytes], references: list[str], **options: Any) -> dict[str, Any]:
        accuracy_log(tmp_path / "case", answers)
        dataset = sample_set(tmp_path / "set.jsonl", references)
        given = {"encoding": "utf-8", "tokenizer": None, **options}
        environment = environment_of(accuracy_python)
        return rouge_of(tmp_path / "case", dataset, environment=environment, context=context, **given)

    return score


def official(python: Path, *folders: Path) -> dict[str, Any]:
    """Return the result of the evaluation's own arithmetic for the pairs."""
    ended = subprocess.run(
        [python, Path(__file__).with_name("official_rouge.py"), *folders],
        input=json.dumps(PAIRS), capture_output=True, text=True, check=True,
    )  # fmt: skip
    scores: dict[str, Any] = json.loads(ended.stdout)
    return scores


@pytest.mark.engine
def test_scores_are_those_of_mlperfs_evaluation(scored: Any, accuracy_python: Path, tmp_path: Path) -> None:
    expected = official(accuracy_python, carried_by(accuracy_python))

    result = scored([answer.encode() for answer, _ in PAIRS], [reference for _, reference in PAIRS])

    assert {name: result[name] for name in expected} == expected
    assert 5 < expected["rouge2"] < expected["rougeL"] < expected["rouge1"] < 90
    assert result["sentence_tokenizer"] == "punkt_tab"
    line = (tmp_path / "case" / "accuracy.txt").read_text()
    assert f"'rouge1': '{expected['rouge1']}'" in line
    assert f"'gen_len': {expected['gen_len']}," in line


@pytest.mark.engine
@pytest.mark.parametrize("linked", [False, True], ids=["none", "one that NLTK refuses"])
def test_without_punkt_tab_an_untrained_one_splits_sentences_and_says_so(
    accuracy_python: Path, tmp_path: Path, *, linked: bool
) -> None:
    if linked:  # uv links the files of an environment to its cache
        shutil.copytree(carried_by(accuracy_python), tmp_path / "cache")
        shutil.copytree(tmp_path / "cache", tmp_path / "nltk_data", copy_function=os.link)
    run = (
        "import json, sys; sys.modules['llama_index'] = None\n"
        "from harness.rouge import rouge_scores; result = rouge_scores(json.load(sys.stdin), workers=1)\n"
        "print(json.dumps(result))"
    )
    ended = subprocess.run(
        [accuracy_python, "-c", run],
        env={"PYTHONPATH": str(Path(harness.__file__).parents[1]), "HOME": str(tmp_path)},
        input=json.dumps(PAIRS), capture_output=True, text=True, check=True,
    )  # fmt: skip
    result = json.loads(ended.stdout.splitlines()[-1])
    expected = official(accuracy_python)

    assert result == {**expected, "sentence_tokenizer": "untrained Punkt"}


@pytest.mark.engine
def test_token_ids_are_turned_into_text_without_special_tokens(
    scored: Any, accuracy_python: Path, tmp_path: Path
) -> None:
    words = ["the", "cat", "sat", "."]
    make = (
        "from tokenizers import Tokenizer, models, pre_tokenizers; import sys\n"
        f"vocabulary = {{word: number for number, word in enumerate({words!r})}}\n"
        "tokenizer = Tokenizer(models.WordLevel({**vocabulary, '<end>': 9}, unk_token='the'))\n"
        "tokenizer.add_special_tokens(['<end>']); tokenizer.save(sys.argv[1])"
    )
    subprocess.run([accuracy_python, "-c", make, tmp_path / "tokenizer.json"], check=True)
    (tmp_path / "tokenizer_config.json").write_text('{"clean_up_tokenization_spaces": true}')
    ids = array("i", [0, 1, 2, 3, 9, 9]).tobytes()

    result = scored([ids], ["The cat sat."], encoding="int32", tokenizer=tmp_path)

    assert (result["rouge1"], result["rougeLsum"]) == (100, 100)
    assert result["gen_len"] == len("the cat sat.")
    assert (result["gen_tok_len"], result["tokens_per_sample"]) == (6, 6.0)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("answers", "options", "words"),
    [
        ([b"a", b"b"], {}, "sample 1, but the data set has 1"),
        ([b"abc"], {"encoding": "int32"}, "3 bytes is not a list of int32"),
        ([b"abcd"], {"encoding": "int32"}, "tokenizer.json does not exist"),
    ],
)
def test_what_cannot_be_scored_is_told(
    scored: Any, answers: list[bytes], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ActionFailedError, match=words) as caught:
        scored(answers, ["one reference"], **options)
    assert caught.value.remedy


@pytest.mark.engine
def test_a_log_that_was_cut_is_not_scored(
    accuracy_python: Path, context: StepContext, tmp_path: Path
) -> None:
    (tmp_path / "mlperf_log_accuracy.json").write_text('[{"seq_id": 0, "qsl_idx": 0, "data": "41')
    dataset = sample_set(tmp_path / "set.jsonl", ["a"])
    with pytest.raises(ActionFailedError, match="cannot be read"):
        rouge_of(
            tmp_path, dataset, environment=environment_of(accuracy_python), encoding="utf-8",
            tokenizer=None, context=context,
        )  # fmt: skip


def test_an_environment_without_rouge_score_is_told(context: StepContext, tmp_path: Path) -> None:
    accuracy_log(tmp_path, [b"a"])
    dataset = sample_set(tmp_path / "set.jsonl", ["a"])
    bare = tmp_path / "bare"
    subprocess.run(["python3", "-m", "venv", "--without-pip", bare], check=True)
    with pytest.raises(ActionFailedError, match="lacks rouge_score") as caught:
        rouge_of(tmp_path, dataset, environment=bare, encoding="utf-8", tokenizer=None, context=context)
    assert "add rouge_score to the environment's requirements" in str(caught.value.remedy)


FULL = {
    "rouge1": 38.8, "rouge2": 15.95, "rougeL": 24.5, "rougeLsum": 35.8, "gen_len": 8167000, "gen_num": 13368,
    "sentence_tokenizer": "punkt_tab",
}  # fmt: skip


def judged(model: str = "llama3.1-8b", mlperf_round: str = "", **result: Any) -> tuple[Validity, str]:
    accuracy = judge_rouge({**FULL, **result}, model=model, official=targets_of(model, mlperf_round))
    said = [reason.message for reason in accuracy.verdict.reasons] + list(accuracy.verdict.warnings)
    return accuracy.verdict.validity, " | ".join(said)


@pytest.mark.parametrize(
    ("result", "validity", "words"),
    [
        ({}, Validity.VALID, ""),
        ({"rouge1": 38.3915}, Validity.VALID, ""),
        ({"rouge1": 38.3914}, Validity.INVALID, "rouge1 is 38.3914; at least 38.391408 is needed"),
        (
            {"rougeLsum": 30.0},
            Validity.INVALID,
            "rougeLsum is 30; at least 35.43507 is needed",
        ),
        ({"gen_len": 7350879}, Validity.INVALID, "gen_len is"),
        ({"gen_len": 8984409}, Validity.INVALID, "at most"),
        ({"gen_num": 1000}, Validity.NOT_APPLICABLE, "1000 samples were scored"),
        ({"sentence_tokenizer": "untrained Punkt"}, Validity.VALID, "without NLTK's punkt_tab"),
        ({"model": "llama3_1-8b"}, Validity.VALID, ""),
        ({"model": "some-model"}, Validity.NOT_APPLICABLE, "no accuracy target for some-model"),
        ({"mlperf_round": "v3.1"}, Validity.NOT_APPLICABLE, "no accuracy target"),
        ({"model": "llama2-70b-99.9", "gen_num": 24576}, Validity.INVALID, "tokens_per_sample is unknown"),
    ],
)
def test_official_targets_judge_the_whole_set_alone(
    result: dict[str, Any], validity: Validity, words: str
) -> None:
    found, said = judged(**result)
    assert (found, words in said) == (validity, True), said


def test_a_part_of_the_set_is_judged_by_what_the_profile_expects() -> None:
    part = {**FULL, "gen_num": 10}
    asked: dict[str, Any] = {"model": "m", "official": targets_of("llama3.1-8b")}
    assert judge_rouge(part, expected={"rouge1": 39.0}, **asked).verdict.validity is Validity.VALID
    assert judge_rouge(part, expected={"rouge1": 40.0}, **asked).verdict.validity is Validity.INVALID
    low = judge_rouge(part, expected={"rouge1": 40.0}, threshold=0.9, **asked)
    assert low.verdict.validity is Validity.VALID
    assert {metric.name: metric.value for metric in low.metrics}["rouge1_threshold"] == pytest.approx(0.36)


def test_records_are_shares_and_keep_mlperfs_number() -> None:
    accuracy = judge_rouge(
        {**FULL, "gen_tok_len": 1336800}, model="llama3.1-8b", official=targets_of("llama3.1-8b")
    )
    found = {metric.name: metric for metric in accuracy.metrics}
    assert found["rouge1"].value == pytest.approx(0.388)
    assert found["rouge1"].unit == "ratio"
    assert found["rouge1"].metadata["mlperf_value"] == 38.8
    assert found["tokens_per_sample"].value == 100
    assert found["rougeL_threshold"].value == pytest.approx(0.24250743)
