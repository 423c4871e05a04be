"""Count the tokens of some answers a second time with a tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

_REPLACED = "�"
"""Replacement character for tokens that do not form a whole character: such text does not reveal its token
count."""


def recount(texts: Sequence[tuple[str, int]], tokenizer: str) -> dict[str, Any]:
    """Count the tokens with a tokenizer on this host.

    Args:
        texts: answers with their first token counts.
        tokenizer: the folder of ``tokenizer.json``, or the file.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return {"problem": "the environment lacks tokenizers: python -m pip install tokenizers"}
    path = tokenizer if tokenizer.endswith(".json") else f"{tokenizer}/tokenizer.json"
    try:
        loaded = Tokenizer.from_file(path)
    except Exception as error:  # noqa: BLE001 - the library raises nothing more specific
        return {"problem": f"{path} is not a tokenizer: {error}"}
    usable = _usable(texts)
    counted = sum(len(loaded.encode(text, add_special_tokens=False).ids) for text, _ in usable)
    return _result("tokenizer", usable, counted)


async def recount_at_server(
    texts: Sequence[tuple[str, int]], ask: Callable[[str], Awaitable[int | None]]
) -> dict[str, Any] | None:
    """Count the tokens with the engine's own tokenizer.

    Args:
        texts: answers with their first token counts.
        ask: returns the number of tokens of a text; None if the engine cannot count.
    """
    usable = _usable(texts)
    counted = 0
    for text, _ in usable:
        tokens = await ask(text)
        if tokens is None:
            return None
        counted += tokens
    return _result("server", usable, counted)


def _usable(texts: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    return [(text, tokens) for text, tokens in texts if text and tokens and _REPLACED not in text]


def _result(source: str, texts: Sequence[tuple[str, int]], counted: int) -> dict[str, Any]:
    told = sum(tokens for _, tokens in texts)
    return {"source": source, "texts": len(texts), "told": told, "counted": counted}
