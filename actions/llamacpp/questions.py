"""Read multiple-choice questions: a shipped set, a file, or a copy of MMLU."""

from __future__ import annotations

import csv
import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actions.llamacpp.multiple_choice_file import read_task_file
from actions.llamacpp.question import Question
from agent.core.errors import ActionFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from actions.llamacpp.multiple_choice_file import Task

_SETS = Path(__file__).with_name("question_sets")
_LETTERS = "ABCDEFGHIJ"
SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".bin")
_TEXTS = ("question", "input", "prompt", "stem")
_ANSWERS = ("answer", "target", "answerKey", "answer_key", "correct_answer", "answer_index", "label")
_SUBJECTS = ("subject", "category", "topic")
_ROWS = ("rows", "questions", "data", "examples", "test")
"""Names for rows, text, choices and answers in cais/mmlu, lukaemon/mmlu, MMLU-Pro, ARC, and JSON of
scripts."""
_HEADER = ["question", "a", "b", "c", "d", "answer"]


MMLU = "mmlu"
OTHER_QUESTIONS = "questions"
"""Name of a set in the records, unless it is MMLU."""

_MMLU_FILE = re.compile(r"mmlu([_.-]?(test|val|validation|dev|all))*", re.IGNORECASE)
# fmt: off
_MMLU_SUBJECTS = frozenset((
    "abstract_algebra", "anatomy", "astronomy", "business_ethics", "clinical_knowledge",
    "college_biology", "college_chemistry", "college_computer_science", "college_mathematics",
    "college_medicine", "college_physics", "computer_security", "conceptual_physics", "econometrics",
    "electrical_engineering", "elementary_mathematics", "formal_logic", "global_facts",
    "high_school_biology", "high_school_chemistry", "high_school_computer_science",
    "high_school_european_history", "high_school_geography", "high_school_government_and_politics",
    "high_school_macroeconomics", "high_school_mathematics", "high_school_microeconomics",
    "high_school_physics", "high_school_psychology", "high_school_statistics", "high_school_us_history",
    "high_school_world_history", "human_aging", "human_sexuality", "international_law", "jurisprudence",
    "logical_fallacies", "machine_learning", "management", "marketing", "medical_genetics",
    "miscellaneous", "moral_disputes", "moral_scenarios", "nutrition", "philosophy", "prehistory",
    "professional_accounting", "professional_law", "professional_medicine", "professional_psychology",
    "public_relations", "security_studies", "sociology", "us_foreign_policy", "virology",
    "world_religions"
))
# fmt: on
"""The 57 subjects of MMLU (hendrycks/test)."""


def set_name(dataset: str, questions: Sequence[Question]) -> str:
    """Return the name of a set in the records: ``mmlu`` for MMLU or a part of it, else ``questions``.

    MMLU is recognised by its subjects and its four choices. A file without subjects is recognised by its
    name.

    Args:
        dataset: the file or folder of the questions.
        questions: the questions to ask.
    """
    if any(len(question.choices) != len("ABCD") for question in questions):
        return OTHER_QUESTIONS
    subjects = {question.subject.replace(" ", "_").lower() for question in questions}
    named = subjects == {""} and _MMLU_FILE.fullmatch(Path(dataset).stem)
    return MMLU if named or subjects <= _MMLU_SUBJECTS else OTHER_QUESTIONS


def question_files(dataset: str, split: str) -> list[Path]:
    """Return the files of a data set, in a fixed order.

    Args:
        dataset: the name of a shipped set, a file, or a folder: of JSON lines or CSV files with the
            split in their names, or a copy of cais/mmlu (``all/test-00000-of-00001.parquet``).
        split: ``test``, ``dev`` or ``validation``; for folders.

    Raises:
        ActionFailedError: if there are no files.
    """
    own = _SETS / f"{dataset}.jsonl"
    path = own if own.is_file() else Path(dataset)
    if path.is_file():
        return [path]
    # cais/mmlu has a folder for each subject and one with all of them, this one; the hub's cache has a copy.
    whole = sorted(one for one in path.rglob("all") if one.is_dir())
    if len(whole) > 1:
        raise ActionFailedError(
            f"{dataset} contains {len(whole)} copies of all questions",
            remedy=f"name one of them: {', '.join(map(str, whole[:3]))}",
        )
    folder = whole[0] if whole else path
    wanted = re.compile(rf"(^|[_-]){split}([._-]|$)")
    files = sorted(file for suffix in SUFFIXES for file in folder.rglob(f"*{suffix}"))
    found = [file for file in files if wanted.search(file.name) or file.parent.name == split]
    if not found:
        sets = ", ".join(sorted(one.stem for one in _SETS.glob("*.jsonl")))
        raise ActionFailedError(
            f"{dataset} is neither a file nor a folder with files of the split {split!r}",
            remedy=f"name a file, a copy of cais/mmlu, or one of the shipped sets: {sets}",
        )
    return found


def read_questions(file: Path, parquet_rows: Callable[[Path], str]) -> list[Question]:
    """Read all questions of a file.

    Args:
        file: JSON lines, JSON, CSV like Hendrycks' data, Parquet, or llama-perplexity's tasks.
        parquet_rows: returns the rows of a Parquet file as JSON lines.

    Raises:
        ActionFailedError: if a row is not a question; names the row.
    """
    try:
        if file.suffix == ".bin":
            return [_of_task(task) for task in read_task_file(file.read_bytes())]
        if file.suffix == ".csv":
            rows: Iterable[Any] = _csv_rows(file)
        elif file.suffix == ".parquet":
            rows = _json_rows(parquet_rows(file))
        else:
            text = file.read_text(encoding="utf-8-sig")
            rows = _rows_of(_whole_json(text)) or _json_rows(text)
        return list(_questions(rows, file))
    except (OSError, ValueError, csv.Error) as error:
        raise ActionFailedError(
            f"{file} cannot be read as questions: {error}",
            remedy="see docs/llamacpp.md for the supported formats; a Git LFS pointer is a file that "
            "was never downloaded",
        ) from error


def _json_rows(text: str) -> Iterator[Any]:
    """Yield the rows of JSON lines; strings may contain what ``splitlines`` takes for line ends."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number} is not JSON: {error}") from error


def _whole_json(text: str) -> Any:
    """Return the value of a text that is one JSON document; None if it is not, such as JSON lines."""
    try:
        return json.loads(text)
    except ValueError:
        if text.lstrip().startswith("["):
            raise
        return None


def _rows_of(document: Any) -> list[Any]:
    """Return the rows of a JSON document: a list, or an object with one list or one list per subject.

    The hub's viewer wraps each row: ``{"rows": [{"row": {…}}]}``.
    """
    if isinstance(document, list):
        return [row.get("row", row) if isinstance(row, dict) else row for row in document]
    if not isinstance(document, dict) or not document.keys().isdisjoint(_TEXTS):
        return []
    lists = {name: rows for name, rows in document.items() if isinstance(rows, list)}
    named = next((name for name in _ROWS if name in lists), "")
    if named:
        return _rows_of(lists[named])
    return [
        {"subject": subject, **row} if isinstance(row, dict) else row
        for subject, rows in lists.items()
        for row in rows
    ]


def _first(row: Any, names: Sequence[str]) -> Any:
    """Return the value of the first name that a row has; None if it has none of them."""
    return next((row[name] for name in names if row.get(name) not in (None, "")), None)


def _questions(rows: Iterable[Any], file: Path) -> Iterator[Question]:
    for number, row in enumerate(rows, 1):
        try:
            text = _first(row, _TEXTS)
            if isinstance(text, dict):  # ARC: the object includes the choices
                row = {**text, **row}  # noqa: PLW2901 - the same row, flattened
                text = text["stem"]
            labels, choices = _choices(row)
            answer = _place_of(_first(row, _ANSWERS), labels, choices)
            subject = _first(row, _SUBJECTS) or _subject(file)
            question = Question(str(text or "").strip(), choices, answer, str(subject))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"row {number} is not a question: {type(error).__name__} {error}") from error
        if not question.text or not all(choices) or not 0 <= answer < len(choices):
            raise ValueError(f"row {number} has an empty text, or its choices lack the correct answer")
        yield question


def _choices(row: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels and the texts of a row's choices."""
    given = _first(row, ("choices", "options"))
    if given is None:
        for prefix in ("", "option_", "choice_"):
            names = [f"{prefix}{letter}" for letter in _LETTERS]
            found = {name.lower(): str(value).strip() for name, value in row.items()}
            texts = [found[name.lower()] for name in names if name.lower() in found]
            if texts:
                return tuple(_LETTERS[: len(texts)]), tuple(texts)
        raise KeyError("choices")
    if isinstance(given, dict) and {"text", "label"} <= given.keys():
        labels, texts = given["label"], given["text"]
    elif isinstance(given, dict):
        labels, texts = list(given), list(given.values())
    elif given and isinstance(given[0], dict):
        labels, texts = [one["label"] for one in given], [one["text"] for one in given]
    else:
        labels, texts = _LETTERS[: len(given)], given
    return tuple(str(label).strip().upper() for label in labels), tuple(str(text).strip() for text in texts)


def _place_of(given: Any, labels: Sequence[str], choices: Sequence[str]) -> int:
    """Return the index of the correct answer, which is given as index, label or text."""
    if given is None:
        raise KeyError("answer")
    if not isinstance(given, str):
        return int(given)
    wanted = given.strip()
    if wanted.upper() in labels:
        return list(labels).index(wanted.upper())
    if wanted in choices:
        return list(choices).index(wanted)
    raise ValueError(f"the answer {wanted!r} is neither a label nor the text of a choice")


def _of_task(task: Task) -> Question:
    """Return the question of a task of llama-perplexity; its prompt is kept unchanged."""
    if sum(task.labels) != 1:
        raise ValueError(
            f"a task has {sum(task.labels)} correct answers instead of one: {task.prompt[:60]!r}"
        )
    return Question(task.prompt.strip(), task.answers, task.labels.index(1), prompt=task.prompt)


def _subject(file: Path) -> str:
    """Return the subject in a name such as ``astronomy_test.csv``."""
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
    """Return a sample of the questions, in their order, with the same share of each subject.

    Args:
        questions: all questions.
        count: the size of the sample; 0 for all.
        seed: the same seed chooses the same questions.
    """
    if not count or count >= len(questions):
        return list(questions)
    chance = random.Random(seed)  # noqa: S311 - a sample, not a secret
    subjects: dict[str, list[int]] = {}
    for index, question in enumerate(questions):
        subjects.setdefault(question.subject, []).append(index)
    # Take questions from the subjects in turn, so that each subject gets one before another gets two.
    shuffled = [chance.sample(indices, len(indices)) for indices in subjects.values()]
    longest = max(map(len, shuffled))
    turns = [indices[turn] for turn in range(longest) for indices in shuffled if turn < len(indices)]
    return [questions[index] for index in sorted(turns[:count])]
