"""Multiple-choice questions: those that come along, a file of one's own, or a copy of MMLU."""

from __future__ import annotations

import csv
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.core.errors import ActionFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_SETS = Path(__file__).with_name("question_sets")
_LETTERS = "ABCDEFGHIJ"
SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
_HEADER = ["question", "a", "b", "c", "d", "answer"]


@dataclass(frozen=True)
class Question:
    """A question with one right answer.

    Args:
        text: the question.
        choices: the answers to choose from.
        answer: the index of the right one.
        subject: what it belongs to; empty for none.
    """

    text: str
    choices: tuple[str, ...]
    answer: int
    subject: str = ""


def question_files(dataset: str, split: str) -> list[Path]:
    """The files of a data set, in a fixed order.

    Args:
        dataset: the name of a set that comes along, a file, or a folder: of JSON lines or CSV files with the
            split in their names, or a copy of cais/mmlu (``all/test-00000-of-00001.parquet``).
        split: ``test``, ``dev`` or ``validation``; for folders.

    Raises:
        ActionFailedError: if there is none.
    """
    own = _SETS / f"{dataset}.jsonl"
    path = own if own.is_file() else Path(dataset)
    if path.is_file():
        return [path]
    # cais/mmlu has each subject in a folder and all of them once more in this one; the hub's cache a copy.
    whole = sorted(one for one in path.rglob("all") if one.is_dir())
    if len(whole) > 1:
        raise ActionFailedError(
            f"{dataset} holds {len(whole)} copies of all questions",
            remedy=f"name one of them: {', '.join(map(str, whole[:3]))}",
        )
    folder = whole[0] if whole else path
    wanted = re.compile(rf"(^|[_-]){split}([._-]|$)")
    files = sorted(file for suffix in SUFFIXES for file in folder.rglob(f"*{suffix}"))
    found = [file for file in files if wanted.search(file.name) or file.parent.name == split]
    if not found:
        sets = ", ".join(sorted(one.stem for one in _SETS.glob("*.jsonl")))
        raise ActionFailedError(
            f"{dataset} is no file, and no folder with files of the split {split!r}",
            remedy=f"name a file, a copy of cais/mmlu, or one of the sets that come along: {sets}",
        )
    return found


def read_questions(file: Path, parquet_rows: Callable[[Path], str]) -> list[Question]:
    """All questions of a file.

    Args:
        file: JSON lines, a JSON array, a CSV file as Hendrycks' data has it, or Parquet.
        parquet_rows: the rows of a Parquet file as JSON lines.

    Raises:
        ActionFailedError: if a row is no question, with its number.
    """
    try:
        if file.suffix == ".csv":
            rows: Iterable[Any] = _csv_rows(file)
        elif file.suffix == ".parquet":
            rows = _json_rows(parquet_rows(file))
        else:
            text = file.read_text(encoding="utf-8-sig")
            rows = json.loads(text) if text.lstrip().startswith("[") else _json_rows(text)
        return list(_questions(rows, file))
    except (OSError, ValueError, csv.Error) as error:
        raise ActionFailedError(
            f"{file} cannot be read as questions: {error}",
            remedy="see docs/llamacpp.md for the forms that are read; a Git LFS pointer is a file that "
            "was never downloaded",
        ) from error


def _json_rows(text: str) -> Iterator[Any]:
    """The rows of JSON lines; a string in one may hold what ``splitlines`` takes for a line's end."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number} is no JSON: {error}") from error


def _questions(rows: Iterable[Any], file: Path) -> Iterator[Question]:
    for number, row in enumerate(rows, 1):
        try:
            choices = tuple(str(choice).strip() for choice in row["choices"])
            given = row["answer"]
            answer = _place_of(given) if isinstance(given, str) else int(given)
            question = Question(
                str(row["question"]).strip(), choices, answer, str(row.get("subject") or _subject(file))
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"row {number} is no question: {type(error).__name__} {error}") from error
        if not question.text or not all(choices) or not 0 <= answer < len(choices):
            raise ValueError(f"row {number} has an empty text, or no right answer among its choices")
        yield question


def _place_of(letter: str) -> int:
    """The index of an answer that is named by its letter."""
    letter = letter.strip().upper()
    if len(letter) != 1:  # of a string, index() finds an empty one and several letters too
        raise ValueError(f"{letter!r} is no letter")
    return _LETTERS.index(letter)


def _subject(file: Path) -> str:
    """The subject in a name such as ``astronomy_test.csv``."""
    match = re.fullmatch(r"(.+?)[_-](?:test|dev|val|validation)", file.stem)
    return match[1] if match else ""


def _csv_rows(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8-sig", newline="") as stream:
        for number, cells in enumerate(csv.reader(stream)):
            if number == 0 and [cell.strip().lower() for cell in cells] == _HEADER:
                continue
            if cells:
                yield {"question": cells[0], "choices": cells[1:-1], "answer": cells[-1]}


def sample(questions: Sequence[Question], count: int, seed: int) -> list[Question]:
    """Some of the questions, in their order: of each subject the same share; 0 for all.

    Args:
        questions: all of them.
        count: how many.
        seed: the same seed chooses the same.
    """
    if not count or count >= len(questions):
        return list(questions)
    chance = random.Random(seed)  # noqa: S311 - a sample, no secret
    subjects: dict[str, list[int]] = {}
    for index, question in enumerate(questions):
        subjects.setdefault(question.subject, []).append(index)
    # Taken in turn from the subjects, so that none is left out before another has two.
    shuffled = [chance.sample(indices, len(indices)) for indices in subjects.values()]
    longest = max(map(len, shuffled))
    turns = [indices[turn] for turn in range(longest) for indices in shuffled if turn < len(indices)]
    return [questions[index] for index in sorted(turns[:count])]
