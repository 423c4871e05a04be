"""Verify MLPerf's compliance test TEST06: what LoadGen counted is what the language model answered.

The checks are those of mlcommons/inference, compliance/TEST06/run_verification.py, with three differences: a
log without answers and an answer without a first token fail, and an answer may consist of end-of-text tokens
alone.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from parsers.json_text import read_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

_MOST_EOS = 1
_UNSENT = -1
"""Id of a token that the engine counted but did not send: llama.cpp streams none within a character."""
_LEAST_SENT = 0.9
_ITEMS = {"int32": "i", "int64": "q"}


@dataclass(frozen=True)
class Verification:
    """Outcome of TEST06.

    Args:
        samples: number of answers in the log.
        first_token: True if the first tokens that were reported are those of the answers; None in Offline,
            where LoadGen takes none.
        eos: True if no answer ends with more than one end-of-text token.
        sample_length: True if each answer has as many tokens as were counted.
    """

    samples: int
    first_token: bool | None
    eos: bool
    sample_length: bool

    @property
    def has_passed(self) -> bool:
        """True if all checks passed."""
        return bool(self.samples) and self.first_token is not False and self.eos and self.sample_length

    def text(self) -> str:
        """Return the content of ``verify_accuracy.txt``, which MLPerf's submission checker reads."""
        first = "Skipped" if self.first_token is None else self.first_token
        outcome = "complete" if self.has_passed else "failed"
        return (
            f"First token check pass: {first}\nEOS check pass: {self.eos}\n"
            f"Sample length check pass: {self.sample_length}\nTEST06 verification {outcome}\n"
        )


def verify_test06(
    path: Path, eos_token_ids: Collection[int], *, first_tokens: bool, dtype: str = "int32"
) -> Verification:
    """Verify a run's accuracy log.

    Args:
        path: ``mlperf_log_accuracy.json``.
        eos_token_ids: the model's end-of-text tokens.
        first_tokens: True if LoadGen took first tokens: in every scenario except Offline.
        dtype: type of the logged token ids: int32 or int64.

    Raises:
        ParseError: if the log is not one of a compliance run with token ids, or too many ids are unknown.
    """
    try:
        rows = read_json(path.read_text(encoding="utf-8"))
        answers = [_tokens(row["data"], dtype) for row in rows]
        counts = [int(row["token_count"]) for row in rows]
        firsts = [_tokens(row["token_data"], dtype) for row in rows] if first_tokens else []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ParseError(
            f"the log has no answers in token ids, with their counts: {type(error).__name__}: {error}",
            where=str(path),
            remedy="run TEST06 with token latencies on, and with an engine that sends token ids",
        ) from error
    tokens, unsent = sum(map(len, answers)), sum(answer.count(_UNSENT) for answer in answers)
    if unsent > (1 - _LEAST_SENT) * tokens:
        raise ParseError(
            f"the engine did not send the ids of {unsent} of {tokens} tokens",
            where=str(path),
            remedy="use prompts in another language, or an engine that sends every token's id",
        )
    same = all(first and answer[: len(first)] == first for answer, first in zip(answers, firsts))  # noqa: B905
    return Verification(
        samples=len(answers),
        first_token=same if first_tokens else None,
        eos=all(_ending(answer, eos_token_ids) <= _MOST_EOS for answer in answers),
        sample_length=all(len(answer) == count for answer, count in zip(answers, counts, strict=True)),
    )


def _tokens(data: str, dtype: str) -> array[Any]:
    return array(_ITEMS[dtype], bytes.fromhex(data))


def _ending(tokens: Iterable[int], eos_token_ids: Collection[int]) -> int:
    """Return the number of end-of-text tokens at an answer's end."""
    count = 0
    for token in reversed(list(tokens)):
        if token not in eos_token_ids:
            break
        count += 1
    return count
