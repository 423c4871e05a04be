"""A multiple-choice question."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A question with one correct answer.

    Args:
        text: the question.
        choices: the answers to choose from.
        answer: the index of the correct answer.
        subject: the question's subject; empty for none.
        prompt: the model's input, if the file contains it; by default made from the text.
    """

    text: str
    choices: tuple[str, ...]
    answer: int
    subject: str = ""
    prompt: str = ""
