"""A multiple-choice question."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A question with one right answer.

    Args:
        text: the question.
        choices: the answers to choose from.
        answer: the index of the right one.
        subject: what it belongs to; empty for none.
        prompt: what the model is given, where the file has it whole; by default made of the text.
    """

    text: str
    choices: tuple[str, ...]
    answer: int
    subject: str = ""
    prompt: str = ""
