"""Write and read the file for ``llama-perplexity --multiple-choice``.

Little-endian: the number of tasks, the position of each, the tasks. A task is its question, the answers with
one correct one, and a second group for several correct ones, which the program reads and ignores. A string is
its length in bytes and its bytes. Source: tools/perplexity/perplexity.cpp, multiple_choice_task.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actions.llamacpp.question import Question

Style = Literal["text", "letters"]
"""Scored text: the words of an answer, or its letter, with the answers in the question."""

_LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True)
class Task:
    """A task of such a file.

    Args:
        prompt: the model's input; a blank and an answer follow.
        answers: the answers to choose from.
        labels: 1 for each correct answer, else 0.
    """

    prompt: str
    answers: tuple[str, ...]
    labels: tuple[int, ...]


def read_task_file(data: bytes) -> list[Task]:
    """Return the tasks of a file.

    Raises:
        ValueError: if the data is truncated or in another format.
    """
    try:
        (count,) = struct.unpack_from("<I", data)
        return [_read_task(data, at) for at in struct.unpack_from(f"<{count}I", data, 4)]
    except struct.error as error:
        raise ValueError(f"it is truncated, or is not a file of llama-perplexity's tasks: {error}") from error


def _read_task(data: bytes, at: int) -> Task:
    prompt, at = _read_string(data, at)
    (count,) = struct.unpack_from("<I", data, at)
    at += 4
    answers = []
    for _ in range(count):
        answer, at = _read_string(data, at)
        answers.append(answer)
    return Task(prompt, tuple(answers), struct.unpack_from(f"<{count}i", data, at))


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<I", data, at)
    end = at + 4 + length
    if end > len(data):
        raise ValueError("it is truncated, or is not a file of llama-perplexity's tasks")
    return data[at + 4 : end].decode(), end


def task_file(questions: Sequence[Question], style: Style, examples: Sequence[Question] = ()) -> bytes:
    """Return the content of the file.

    Args:
        questions: the questions; each is a task.
        style: how to score the answers.
        examples: questions with their answers, placed before questions of the same subject.
    """
    before: dict[str, str] = defaultdict(str)
    for example in examples:
        before[example.subject] += (
            f"{prompt_of(example, style)} {_answers(example, style)[example.answer]}\n\n"
        )
    tasks = [_task(question, style, before.get(question.subject, "")) for question in questions]
    position = 4 + 4 * len(tasks)
    positions = []
    for task in tasks:
        positions.append(position)
        position += len(task)
    return struct.pack(f"<{1 + len(tasks)}I", len(tasks), *positions) + b"".join(tasks)


def prompt_of(question: Question, style: Style) -> str:
    """Return the question as the model sees it; a blank and the answer follow."""
    if question.prompt:
        return question.prompt
    if style == "text":
        return f"Question: {question.text}\nAnswer:"
    listed = "".join(f"{letter}. {text}\n" for letter, text in zip(_LETTERS, question.choices, strict=False))
    return f"{question.text}\n{listed}Answer:"


def _answers(question: Question, style: Style) -> Sequence[str]:
    return question.choices if style == "text" or question.prompt else _LETTERS[: len(question.choices)]


def _task(question: Question, style: Style, before: str) -> bytes:
    answers = _answers(question, style)
    labels = [int(index == question.answer) for index in range(len(answers))]
    return b"".join(
        (
            _string(before + prompt_of(question, style)),
            struct.pack("<I", len(answers)),
            *map(_string, answers),
            struct.pack(f"<{len(labels)}i", *labels),
            struct.pack("<I", 0),
        )
    )


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<I", len(data)) + data
