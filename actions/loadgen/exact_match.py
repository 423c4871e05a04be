"""Measure accuracy on a set with known answers: completions that begin with a correct answer.

A model of moderate size answers some of the questions, and nearly always the same ones with greedy decoding.
So the score is compared with the known score of the same model, not with an absolute bar: a broken engine,
wrong weights or a wrong prompt format score far lower.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from actions.loadgen.accuracy import Accuracy, not_judged
from agent.core.errors import ParseError
from agent.core.records import Metric, Reason, Relativity, Validity, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actions.loadgen.sample_sets import SampleSet

_REFERENCES = Path(__file__).with_name("sample_sets") / "references.json"

# Blanks, quotes, brackets and other marks; not the sign or the decimal point of a number.
_LEAD = r"(?:[^\w\-.,]|_|[\-.,](?!\d))*"
_AFTER_ANSWER = " \t\r\n.,;:!?"
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"""Unicode name prefixes of letters written without blanks between words, or before a particle."""


@dataclass(frozen=True)
class Score:
    """Comparison of a run's answers with the known ones.

    Args:
        right: the samples answered correctly.
        wrong: the other samples, with their answers; empty text if there was no answer.
    """

    right: tuple[str, ...]
    wrong: Mapping[str, str]

    @property
    def total(self) -> int:
        """Number of asked samples with a known answer."""
        return len(self.right) + len(self.wrong)

    @property
    def exact_match(self) -> float:
        """Share of correct answers, 0 to 1."""
        return len(self.right) / self.total


@dataclass(frozen=True)
class Reference:
    """Known score of a model on a set.

    Args:
        exact_match: the share of correct answers, 0 to 1.
        source: origin of the score, for people.
        is_same_file: True if it was measured with exactly this model file.
    """

    exact_match: float
    source: str
    is_same_file: bool = True


def is_right(text: str, answers: tuple[str, ...], *, symbol: bool = False) -> bool:
    """Return True if a completion begins with one of the answers, as whole words and numbers.

    Case, blanks and marks before the answer do not matter; a sign, a decimal or a symbol within it (C++)
    does.

    Args:
        text: the completion.
        answers: the correct ones.
        symbol: True if they are symbols: case matters, and no other word may follow on the line, so that
            "He" is not found in "he" or "He is a man".
    """
    return any(_begins_with(text, answer, symbol=symbol) for answer in answers)


def _begins_with(text: str, answer: str, *, symbol: bool) -> bool:
    text, answer = (_normal(part, keep_case=symbol) for part in (text, answer))
    words = answer.rstrip(_AFTER_ANSWER).split()
    found = re.match(_LEAD + r"\s+".join(map(re.escape, words)), text) if words else None
    if found is None:
        return False
    rest = text[found.end() :]
    if symbol and rest.lstrip(" \t")[:1].isalnum():
        return False
    return _is_whole(words[-1][-1], rest)


def _normal(text: str, *, keep_case: bool) -> str:
    text = text.replace("\u2212", "-")  # the minus sign
    return unicodedata.normalize("NFC", text if keep_case else text.casefold())


def _is_whole(last: str, rest: str) -> bool:
    """Return True if a word or number that ends in ``last`` is complete, given the following ``rest``."""
    following = rest[:1]
    kind = unicodedata.category(following)[0] if following else ""
    if last.isdigit() and re.match(r"[.,]\d", rest):
        return False
    if last.isalpha() and following and following in "+#":
        return False
    if kind == "M":
        return False
    return kind not in {"L", "N"} or unicodedata.name(last, "").startswith(_UNSPACED)


def score(outputs: Path, samples: SampleSet, asked: int | None = None) -> Score:
    """Score ``outputs.jsonl``.

    Args:
        outputs: the harness's file: an object with ``id`` and ``text`` per line.
        samples: the set, with known answers.
        asked: number of samples asked on purpose (``accuracy_sample_count_override``); the samples in the
            file are scored then. None for all.

    Raises:
        ParseError: if the file is missing, a line is incomplete, or an asked sample has no answer.
    """
    texts = _read(outputs)
    needed = len(samples.ids) if not asked else min(asked, len(samples.ids))
    known = sum(name in texts for name in samples.ids)
    if known < needed or len(texts) > known:
        foreign = f", {len(texts) - known} more not in the set" if len(texts) > known else ""
        raise ParseError(
            f"{known} of {needed} samples of {samples.name} were answered{foreign}",
            where=str(outputs),
            remedy="the accuracy run skipped samples: see the step's log and run it again",
        )
    right, wrong = [], {}
    for name, answers in samples.answers.items():
        if name not in texts:
            continue
        if is_right(texts[name], answers, symbol=name in samples.symbols):
            right.append(name)
        else:
            wrong[name] = texts[name]
    if not right and not wrong:
        raise ParseError(
            f"none of the {known} samples that were answered has a known answer",
            where=str(outputs),
            remedy="use more samples, or a set in which each sample has answers",
        )
    return Score(tuple(right), wrong)


def _read(outputs: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    try:
        # Not splitlines: an answer may contain U+2028, which JSON does not escape.
        for line in outputs.read_text(encoding="utf-8").split("\n"):
            if line.strip():
                row = json.loads(line)
                texts[str(row["id"])] = str(row["text"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ParseError(
            f"the answers cannot be read: {error}",
            where=str(outputs),
            remedy="the accuracy run wrote incomplete answers: see the step's log and run it again",
        ) from error
    return texts


def find_reference(
    model: str, model_sha256: str, samples: SampleSet, scored: Score | None = None
) -> Reference | None:
    """Return the shipped score for a model and a set, matched by content; for a part, by its samples.

    Return None if no score is shipped, or if the model is known to answer nothing correctly: any engine would
    pass.

    Args:
        model: the model's name in the records.
        model_sha256: the SHA-256 of its file; empty if unknown, as for an endpoint.
        samples: the set.
        scored: the score to judge; determines the samples. None for all samples.
    """
    entries = [
        entry
        for entry in json.loads(_REFERENCES.read_text(encoding="utf-8"))
        if entry["model"] == model and entry["set_sha256"] == samples.source_sha256
    ]
    names = samples.answers.keys() if scored is None else {*scored.right, *scored.wrong}
    if not entries or not names:
        return None
    entry = next((entry for entry in entries if entry["file_sha256"] == model_sha256), entries[0])
    known_right = len(names & set(entry["right"]))
    if not known_right:
        return None
    return Reference(
        exact_match=known_right / len(names),
        source=f"{entry['file']}, {entry['engine']}",
        is_same_file=entry["file_sha256"] == model_sha256,
    )


def judge_answers(
    scored: Score, reference: Reference | None, threshold: float, *, model: str, set_name: str
) -> Accuracy:
    """Judge a score by the known score of the model.

    Args:
        scored: the score.
        reference: the known score; None if unknown.
        threshold: the minimum share of the known score.
        model: the model's name.
        set_name: the set's name.
    """
    metrics = tuple(_metrics(scored, reference, threshold))
    if reference is None:
        why = (
            f"no reference accuracy is known for {model} on {set_name}: the score is recorded only; "
            "give accuracy_reference"
        )
        return not_judged(why, *metrics)
    warnings: tuple[str, ...] = ()
    if not reference.is_same_file:
        warnings = (f"the reference accuracy was measured on another model file ({reference.source})",)
    least = threshold * reference.exact_match
    if scored.exact_match >= least:
        return Accuracy(Verdict(Validity.VALID, warnings=warnings), metrics)
    missed = ", ".join(f"{name}: {text.strip()[:30]!r}" for name, text in list(scored.wrong.items())[:3])
    reason = Reason(
        f"exact_match is {scored.exact_match:.3f} ({len(scored.right)} of {scored.total}); at least "
        f"{least:.3f} is needed ({threshold:g} of {reference.exact_match:.3f}, {reference.source})",
        f"check the weights, the quantisation and the prompt format; among the wrong answers: {missed}",
        code="accuracy",
    )
    return Accuracy(Verdict(Validity.INVALID, (reason,), warnings), metrics)


def _metrics(scored: Score, reference: Reference | None, threshold: float) -> Iterator[Metric]:
    text = "samples whose completion begins with the known answer"
    metadata = {"samples": scored.total}
    yield Metric("exact_match", scored.exact_match, "ratio", Relativity.HIGHER, text, metadata=metadata)
    if reference is not None:
        text = f"exact_match expected of this model: {reference.source}"
        yield Metric("exact_match_reference", reference.exact_match, "ratio", description=text, verbosity=2)
        least = threshold * reference.exact_match
        text = f"the minimum: {threshold:g} of the reference"
        yield Metric("exact_match_threshold", least, "ratio", description=text, verbosity=2)
