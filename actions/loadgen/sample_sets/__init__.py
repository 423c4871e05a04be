"""Read sets of samples, shipped or in the same format: JSON lines.

A line has ``id``, ``prompt`` (text) or ``token_ids``, and, if the correct completion is known, ``answers``
(with ``"symbol": true`` if they are symbols, such as Fe, which must match in case) or, for a text to compare
with, ``reference``. The folder is not called datasets: it is on the harness's import path, where that name is
Hugging Face's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from actions.loadgen.in_environment.harness.dataset import unpack_tokens
from agent.core.errors import HostError
from agent.core.file_hash import sha256_of
from agent.core.names import did_you_mean
from agent.core.safe_files import replace_text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SYNTHETIC", "SampleSet", "open_sample_set", "shipped"]

SYNTHETIC = "synthetic"
"""Name of generated samples (``sample_sets.synthetic``)."""

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class SampleSet:
    """A set of samples, read and validated.

    Args:
        name: the shipped set's name, or the file's.
        path: JSON lines.
        ids: the samples' ids, in order.
        answers: the correct completions by sample; empty if unknown.
        symbols: the samples whose answers are symbols (see exact_match).
        has_references: True if every sample has a reference text.
        has_texts: True if any sample is a text without token ids.
        source_sha256: the SHA-256 of the original file, of which this set may be the start; empty for none.
    """

    name: str
    path: Path
    ids: tuple[str, ...]
    answers: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    symbols: frozenset[str] = frozenset()
    source_sha256: str = ""
    has_references: bool = False
    has_texts: bool = False

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the file, in hexadecimal."""
        return sha256_of(self.path)

    def first(self, count: int | None, path: Path, *, longest: int | None = None) -> SampleSet:
        """Return the first ``count`` samples with at most ``longest`` tokens, written to ``path``.

        None means no limit.

        Raises:
            HostError: if lengths are limited but a sample is text, or no sample is short enough.
        """
        lines = [line for line in self.path.read_text(encoding="utf-8").split("\n") if line.strip()]
        kept = (
            (name, line)
            for name, line in zip(self.ids, lines, strict=True)
            if longest is None or _token_count(self.path, line) <= longest
        )
        part = list(islice(kept, count))
        if not part:
            raise HostError(
                f"no sample of {self.name} has at most {longest} tokens", remedy="raise input_tokens_max"
            )
        replace_text(path, "\n".join(line for _, line in part) + "\n")
        ids = tuple(name for name, _ in part)
        answers = {name: self.answers[name] for name in ids if name in self.answers}
        return replace(self, path=path, ids=ids, answers=answers, symbols=self.symbols & answers.keys())


def shipped() -> dict[str, Path]:
    """Return the sets in this folder, by name."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.jsonl"))}


def open_sample_set(name: str) -> SampleSet:
    """Read a set.

    Args:
        name: a shipped set's name, or the path of a file.

    Raises:
        HostError: if the set does not exist, or a line is not a sample.
    """
    own = shipped()
    path = own.get(name) or Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise HostError(
            f"the data set {name} cannot be read: {cause}",
            remedy=f"name a file of JSON lines or a shipped set; {did_you_mean(name, [*own, SYNTHETIC])}",
        ) from error
    # Not splitlines: JSON's strings may contain U+2028 and other line ends of Unicode.
    lines = enumerate(text.split("\n"), start=1)
    rows = [_row(path, number, line) for number, line in lines if line.strip()]
    if not rows:
        raise HostError(f"the data set {path} contains no sample", remedy="use another one")
    # The harness names a sample without an id by its index.
    ids = tuple(str(row.get("id", place)) for place, row in enumerate(rows))
    if len(set(ids)) != len(ids):
        raise HostError(f"two samples of the data set {path} have the same id", remedy="make ids unique")
    answers = {
        name: tuple(str(answer) for answer in row["answers"])
        for name, row in zip(ids, rows, strict=True)
        if row.get("answers")
    }
    symbols = frozenset(name for name, row in zip(ids, rows, strict=True) if row.get("symbol"))
    compared = all(row.get("reference") for row in rows)
    texts = not all(row.get("token_ids") for row in rows)
    return SampleSet(
        path.stem, path, ids, MappingProxyType(answers), symbols, sha256_of(path), compared, has_texts=texts
    )


def _token_count(path: Path, line: str) -> int:
    tokens = json.loads(line).get("token_ids")
    if not tokens:
        raise HostError(
            f"input_tokens_max bounds tokens, but a sample of {path} is text",
            remedy="give samples as token_ids (CnnDailyMailDataSet with a tokenizer), or remove the limit",
        )
    return len(unpack_tokens(tokens) if isinstance(tokens, str) else tokens)


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or not (row.get("prompt") or row.get("token_ids")):
        raise HostError(
            "not a sample: a JSON object with prompt (text) or token_ids (whole numbers)",
            where=f"{path}:{number}",
            remedy='write lines such as {"id": "7", "prompt": "The sun rises in the", "answers": ["east"]}',
        )
    if not isinstance(row.get("reference", ""), str):
        raise HostError("reference is not a text", where=f"{path}:{number}", remedy="use a text")
    answers = row.get("answers", [])
    if not isinstance(answers, list):
        raise HostError("answers is not a list of texts", where=f"{path}:{number}", remedy="use a list")
    for answer in answers:
        if not isinstance(answer, str | int | float) or not any(map(str.isalnum, str(answer))):
            raise HostError(
                f"the answer {answer!r} has neither a word nor a number: any completion would match it",
                where=f"{path}:{number}",
                remedy="give the words or the number that the completion must begin with",
            )
    if not isinstance(row.get("symbol", False), bool):
        raise HostError("symbol is neither true nor false", where=f"{path}:{number}", remedy="use true")
    return row
