"""Accuracy on a set with known answers: which completions begin with the right one.

A model of some size answers some of the questions, and nearly always the same ones when it is decoded
greedily. So the score is judged by what the same model is known to reach, not by an absolute bar: a broken
engine, wrong weights or a wrong prompt format fall far below.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actions.mlperf.sample_sets import SampleSet

__all__ = ["Reference", "Score", "find_reference", "is_right", "score"]

_REFERENCES = Path(__file__).with_name("sample_sets") / "references.json"
_NOT_WORDS = re.compile(r"[^\w]+")


@dataclass(frozen=True)
class Score:
    """How a run's answers compare with the known ones.

    Args:
        right: the samples answered right.
        wrong: the others, with what was answered; empty text where there was no answer.
    """

    right: tuple[str, ...]
    wrong: Mapping[str, str]

    @property
    def total(self) -> int:
        """How many samples have a known answer."""
        return len(self.right) + len(self.wrong)

    @property
    def exact_match(self) -> float:
        """The share answered right, 0 to 1."""
        return len(self.right) / self.total


@dataclass(frozen=True)
class Reference:
    """What a model is known to reach on a set.

    Args:
        exact_match: the share it answers right, 0 to 1.
        source: where that was measured, for people.
        is_same_file: whether it was measured on the very same model file.
    """

    exact_match: float
    source: str
    is_same_file: bool = True


def is_right(text: str, answers: tuple[str, ...]) -> bool:
    """Whether a completion begins with one of the answers, as words, without case and punctuation."""
    words = _words(text)
    return any(words[: len(answer)] == answer for answer in map(_words, answers))


def _words(text: str) -> list[str]:
    return _NOT_WORDS.sub(" ", text.casefold()).split()


def score(outputs: Path, samples: SampleSet) -> Score:
    """Score ``outputs.jsonl``.

    Args:
        outputs: the harness's file: an object with ``id`` and ``text`` a line.
        samples: the set, with known answers.

    Raises:
        ParseError: if the file is missing, or a line is not whole.
    """
    texts: dict[str, str] = {}
    try:
        for line in outputs.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            texts[str(row["id"])] = str(row["text"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ParseError(
            f"the answers cannot be read: {error}",
            where=str(outputs),
            remedy="the accuracy run wrote no whole answers: see the step's log and run it again",
        ) from error
    right = tuple(name for name, answers in samples.answers.items() if is_right(texts.get(name, ""), answers))
    wrong = {name: texts.get(name, "") for name in samples.answers if name not in right}
    return Score(right, wrong)


def find_reference(model: str, model_sha256: str, samples: SampleSet) -> Reference | None:
    """What ships for a model and a set; for the same samples where the set is only a part of it.

    Args:
        model: the model's name in the records.
        model_sha256: of its file; empty where it is not known, as behind an endpoint.
        samples: the set.
    """
    entries = [
        entry
        for entry in json.loads(_REFERENCES.read_text(encoding="utf-8"))
        if entry["model"] == model and entry["set"] == samples.name
    ]
    if not entries or not samples.answers:
        return None
    entry = next((entry for entry in entries if entry["file_sha256"] == model_sha256), entries[0])
    known_right = set(entry["right"])
    return Reference(
        exact_match=sum(name in known_right for name in samples.answers) / len(samples.answers),
        source=f"{entry['file']}, {entry['engine']}",
        is_same_file=entry["file_sha256"] == model_sha256,
    )
