"""Questions in every supported format, and the file that is written from them for llama-perplexity."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.llamacpp.multiple_choice_file import task_file
from actions.llamacpp.question import Question
from actions.llamacpp.questions import question_files, read_questions, sample, set_name
from agent.core.errors import ActionFailedError

if TYPE_CHECKING:
    from pathlib import Path

    from actions.llamacpp.multiple_choice_file import Style

SKY = Question("What colour is the sky?", ("red", "blue", "green", "black"), 1, "colours")


def no_parquet(path: Path) -> str:
    raise AssertionError(f"{path} is not a Parquet file")


def read_task_file(data: bytes) -> list[tuple[str, list[str], list[int]]]:
    """Return the tasks, read the way the program reads them: each from the position that the file gives."""
    (count,) = struct.unpack_from("<I", data)
    tasks = []
    ends = []
    for position in struct.unpack_from(f"<{count}I", data, 4):
        at = position

        def number(form: str = "<I") -> int:
            nonlocal at
            (value,) = struct.unpack_from(form, data, at)
            at += 4
            return int(value)

        def string() -> str:
            nonlocal at
            length = number()
            at += length
            return data[at - length : at].decode()

        question = string()
        answers = [string() for _ in range(number())]
        labels = [number("<i") for _ in answers]
        assert number() == 0, "the second group is empty"
        tasks.append((question, answers, labels))
        ends.append((position, at))
    assert [end for _, end in ends] == [*(start for start, _ in ends[1:]), len(data)]
    return tasks


@given(
    st.lists(
        st.builds(
            lambda text, choices, answer: Question(text, tuple(choices), answer % len(choices)),
            st.text(min_size=1),
            st.lists(st.text(min_size=1), min_size=1, max_size=6),
            st.integers(min_value=0),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_the_file_holds_what_was_put_in(questions: list[Question]) -> None:
    tasks = read_task_file(task_file(questions, "text"))
    assert [answers for _, answers, _ in tasks] == [list(question.choices) for question in questions]
    assert [labels.index(1) for _, _, labels in tasks] == [question.answer for question in questions]
    assert all(sum(labels) == 1 for _, _, labels in tasks)


@pytest.mark.parametrize(
    ("style", "prompt", "answers"),
    [
        ("text", "Question: What colour is the sky?\nAnswer:", ["red", "blue", "green", "black"]),
        (
            "letters",
            "What colour is the sky?\nA. red\nB. blue\nC. green\nD. black\nAnswer:",
            ["A", "B", "C", "D"],
        ),
    ],
)
def test_the_two_ways_to_ask(style: Style, prompt: str, answers: list[str]) -> None:
    assert read_task_file(task_file([SKY], style)) == [(prompt, answers, [0, 1, 0, 0])]


def test_examples_go_before_the_questions_of_their_subject() -> None:
    grass = Question("What colour is grass?", ("green", "pink"), 0, "colours")
    other = Question("One and one?", ("2", "3"), 0, "sums")
    (colours, *_), (sums, *_) = read_task_file(task_file([SKY, other], "letters", [grass]))
    assert colours.startswith(
        "What colour is grass?\nA. green\nB. pink\nAnswer: A\n\nWhat colour is the sky?"
    )
    assert sums.startswith("One and one?")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "sky.jsonl",
            json.dumps({"question": SKY.text, "choices": SKY.choices, "answer": 1, "subject": "colours"}),
        ),
        (
            "sky.json",
            json.dumps([{"question": SKY.text, "choices": SKY.choices, "answer": "B", "subject": "colours"}]),
        ),
        (
            "lines.jsonl",  # a byte order mark, an empty line, and a line separator within a text
            "\ufeff\n"
            + json.dumps(
                {
                    "question": SKY.text,
                    "choices": SKY.choices,
                    "answer": 1,
                    "subject": "colours",
                    "x": "\u2028",
                },
                ensure_ascii=False,
            )
            + "\n",
        ),
        ("colours_test.csv", f"\ufeffquestion,A,B,C,D,answer\n{SKY.text},red,blue,green,black,B\n"),
        ("colours_test.csv", f"{SKY.text},red,blue,green,black,B\n"),
        ("colours_test.csv", f"question,A,B,C,D,answer\n{SKY.text},red,blue,green,black,B\n"),
    ],
)
def test_forms_of_files(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert read_questions(tmp_path / name, no_parquet) == [SKY]


def test_parquet_is_read_by_another_interpreter(tmp_path: Path) -> None:
    row = json.dumps({"question": SKY.text, "choices": SKY.choices, "answer": 1, "subject": "colours"})
    assert read_questions(tmp_path / "test-00000-of-00001.parquet", lambda _: f"{row}\n{row}\n") == [SKY, SKY]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"question": "?", "choices": ["a", "b"]}', "row 1 is not a question: KeyError 'answer'"),
        (
            '{"question": "?", "choices": ["a", "b"], "answer": 2}',
            "row 1 has an empty text, or its choices lack",
        ),
        ('{"question": "", "choices": ["a", "b"], "answer": 1}', "row 1 has an empty text"),
        ('{"question": "?", "choices": ["a", ""], "answer": 1}', "row 1 has an empty text"),
        ('{"question": "?", "choices": ["a", "b"], "answer": "Z"}', "row 1 is not a question"),
        ('{"question": "?", "choices": ["a", "b"], "answer": ""}', "row 1 is not a question"),
        ('{"question": "?", "choices": ["a", "b"], "answer": "AB"}', "row 1 is not a question"),
        ("[1]", "row 1 is not a question"),
        ("version https://git-lfs.github.com/spec/v1", "cannot be read as questions"),
    ],
)
def test_what_is_no_question_is_told(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(content)
    with pytest.raises(ActionFailedError, match=message.replace("?", r"\?")):
        read_questions(path, no_parquet)


def test_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("test/astronomy_test.csv", "dev/astronomy_dev.csv", "test/virology_test.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("q,a,b,c,d,A\n")
    assert [file.name for file in question_files(str(tmp_path), "test")] == [
        "astronomy_test.csv",
        "virology_test.csv",
    ]
    assert [file.name for file in question_files(str(tmp_path), "dev")] == ["astronomy_dev.csv"]


def test_a_copy_of_cais_mmlu_has_every_question_twice(tmp_path: Path) -> None:
    copy = tmp_path / "snapshots" / "c30699e8"
    for name in (
        "all/test-00000-of-00001.parquet",
        "all/dev-00000-of-00001.parquet",
        "virology/test-00000-of-00001.parquet",
    ):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).touch()
    found = [copy / "all" / "test-00000-of-00001.parquet"]
    assert question_files(str(copy), "test") == found
    assert question_files(str(tmp_path), "test") == found
    (tmp_path / "snapshots" / "another" / "all").mkdir(parents=True)
    with pytest.raises(ActionFailedError, match="contains 2 copies of all questions"):
        question_files(str(tmp_path), "test")


def test_a_data_set_that_is_not_there() -> None:
    with pytest.raises(ActionFailedError) as refusal:
        question_files("/nowhere/mmlu", "test")
    assert "general-knowledge" in (refusal.value.remedy or "")


def test_the_set_that_comes_along() -> None:
    (file,) = question_files("general-knowledge", "test")
    questions = read_questions(file, no_parquet)
    assert len(questions) == len({(question.text, question.choices) for question in questions})
    assert all(len(set(question.choices)) == 4 for question in questions)
    # Choosing the same place each time is not much better than guessing.
    for place in range(4):
        assert 0.15 < sum(question.answer == place for question in questions) / len(questions) < 0.35


@given(st.integers(1, 40), st.integers(0, 5))
def test_a_sample_takes_the_same_share_of_each_subject(count: int, seed: int) -> None:
    questions = [Question(f"{subject}{n}", ("a", "b"), 0, subject) for subject in "xyz" for n in range(20)]
    taken = sample(questions, count, seed)
    assert taken == sample(questions, count, seed)
    assert len(taken) == len(set(taken)) == count
    shares = [sum(question.subject == subject for question in taken) for subject in "xyz"]
    assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize(
    "document",
    [
        [{"question": SKY.text, "choices": list(SKY.choices), "answer": 1, "subject": "colours"}],
        [{"question": SKY.text, "choices": list(SKY.choices), "answer": "blue", "category": "colours"}],
        {
            "questions": [
                {"question": SKY.text, "options": list(SKY.choices), "answer": "B", "subject": "colours"}
            ]
        },
        {
            "colours": [
                {"prompt": SKY.text, "choices": dict(zip("ABCD", SKY.choices, strict=True)), "answer": "B"}
            ]
        },
        {"colours": [{"input": SKY.text, **dict(zip("ABCD", SKY.choices, strict=True)), "target": "B"}]},
        {
            "rows": [
                {
                    "row": {
                        "question": SKY.text,
                        "choices": list(SKY.choices),
                        "answer": 1,
                        "subject": "colours",
                    }
                }
            ]
        },
        [
            {
                "question": {
                    "stem": SKY.text,
                    "choices": [{"text": text, "label": str(n)} for n, text in enumerate(SKY.choices, 1)],
                },
                "answerKey": "2",
                "subject": "colours",
            }
        ],
    ],
)
def test_json_of_guides_is_read(tmp_path: Path, document: object) -> None:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(document))
    assert read_questions(path, no_parquet) == [SKY]


def test_an_answer_that_is_neither_label_nor_choice_is_told(tmp_path: Path) -> None:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps([{"question": "?", "choices": ["x", "y"], "answer": "z"}]))
    with pytest.raises(ActionFailedError, match="'z' is neither a label nor the text of a choice"):
        read_questions(path, no_parquet)


@pytest.mark.parametrize("style", ["text", "letters"])
def test_tasks_of_llama_perplexity_are_asked_as_they_are(tmp_path: Path, style: Style) -> None:
    path = tmp_path / "mmlu.bin"
    path.write_bytes(task_file([SKY], "text"))
    (question,) = read_questions(path, no_parquet)
    assert (question.choices, question.answer) == (SKY.choices, SKY.answer)
    assert task_file([question], style) == path.read_bytes()


@given(st.integers(min_value=0, max_value=80), st.binary(max_size=12))
def test_a_cut_or_strange_file_of_tasks_is_told(
    tmp_path_factory: pytest.TempPathFactory, size: int, tail: bytes
) -> None:
    path = tmp_path_factory.mktemp("bin") / "mmlu.bin"
    whole = task_file([SKY], "text")
    path.write_bytes(whole[:size] + tail)
    if path.read_bytes() != whole:
        with pytest.raises(ActionFailedError, match="cannot be read as questions"):
            read_questions(path, no_parquet)


@pytest.mark.parametrize(
    ("dataset", "subjects", "choices", "name"),
    [
        ("/packages/some-copy", ("astronomy", "virology"), 4, "mmlu"),
        ("/packages/some-copy", ("high school physics",), 4, "mmlu"),
        ("/data/mmlu-validation.bin", ("",), 4, "mmlu"),
        ("/data/MMLU_test.json", ("",), 4, "mmlu"),
        ("/data/mmlu-pro.json", ("",), 4, "questions"),
        ("/data/mmlu", ("philosophy",), 10, "questions"),
        ("general-knowledge", ("capitals", "chemistry"), 4, "questions"),
        ("/data/questions.bin", ("",), 4, "questions"),
        ("/data/mmlu.json", ("astronomy", "my own"), 4, "questions"),
    ],
)
def test_only_mmlu_is_called_mmlu(dataset: str, subjects: tuple[str, ...], choices: int, name: str) -> None:
    questions = [Question("?", tuple("abcdefghij"[:choices]), 0, subject) for subject in subjects]
    assert set_name(dataset, questions) == name
