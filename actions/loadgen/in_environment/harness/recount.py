"""Counts the tokens of some answers a second time, by a tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

_REPLACED = "�"
"""What an engine writes where tokens make no whole character: their text does not tell their number."""


class Answer(NamedTuple):
    """An answer whose tokens are counted a second time."""

    text: str
    tokens: int
    """As they were counted before."""
    ended: bool
    """Whether the model ended it: the token that ends an answer has no text, and most engines count it."""


def recount(answers: Sequence[Answer], tokenizer: str) -> dict[str, Any]:
    """Count by a tokenizer of this host.

    Args:
        answers: some of the test's.
        tokenizer: the folder of ``tokenizer.json``, or that file.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return {"problem": "the environment has no tokenizers: python -m pip install tokenizers"}
    path = tokenizer if tokenizer.endswith(".json") else f"{tokenizer}/tokenizer.json"
    try:
        loaded = Tokenizer.from_file(path)
    except Exception as error:  # noqa: BLE001 - the library raises nothing more exact
        return {"problem": f"{path} is no tokenizer: {error}"}
    usable = _usable(answers)
    counted = sum(len(loaded.encode(text, add_special_tokens=False).ids) for text, *_ in usable)
    return _result("tokenizer", usable, counted)


async def recount_at_server(
    answers: Sequence[Answer], ask: Callable[[str], Awaitable[int | None]]
) -> dict[str, Any] | None:
    """Count by the engine's own tokenizer.

    Args:
        answers: some of the test's.
        ask: gives the tokens of a text; None where the engine does not tell.
    """
    usable = _usable(answers)
    counted = 0
    for text, *_ in usable:
        tokens = await ask(text)
        if tokens is None:
            return None
        counted += tokens
    return _result("server", usable, counted)


def _usable(answers: Sequence[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer.text and answer.tokens and _REPLACED not in answer.text]


def _result(source: str, answers: Sequence[Answer], counted: int) -> dict[str, Any]:
    told, ended = sum(answer.tokens for answer in answers), sum(answer.ended for answer in answers)
    return {"source": source, "texts": len(answers), "told": told, "ended": ended, "counted": counted}
