"""Frames on the socket between a test and the process that keeps its engine loaded.

A frame is one byte for its kind, the length of its content, and the content: a JSON object (``MESSAGE``), or
numbers in the host's byte order. Both ends are on one host.
"""

from __future__ import annotations

import asyncio
import json
import struct
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from .dataset import Sample, pack_tokens, unpack_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

MESSAGE, SAMPLES, FIRST_TOKEN, ANSWER = b"{", b"S", b"F", b"A"
_HEAD = struct.Struct("=cI")
_ID = struct.Struct("=q")
_ANSWER = struct.Struct("=qIII")


class Answer(NamedTuple):
    """One sample's answer.

    Args:
        sample_id: the sample's id.
        data: its output tokens.
        text: the answer as text; empty unless the test asked for texts.
        input_tokens: prompt tokens.
        cached_tokens: prompt tokens that the engine took from a cache.
    """

    sample_id: int
    data: bytes
    text: str
    input_tokens: int
    cached_tokens: int


def message(**values: Any) -> bytes:
    """Return a frame with a JSON object."""
    return _frame(MESSAGE, json.dumps(values).encode())


def issued(ids: Iterable[int], indices: Iterable[int]) -> bytes:
    """Return a frame with samples to answer: their ids and their indices in the data set."""
    return _frame(SAMPLES, array("q", [*ids, *indices]).tobytes())


def read_issued(content: bytes) -> tuple[list[int], list[int]]:
    """Return ids and indices from the content of a frame."""
    numbers = array("q", content).tolist()
    half = len(numbers) // 2
    return numbers[:half], numbers[half:]


def first_token(sample_id: int, token: bytes) -> bytes:
    """Return a frame with a sample's first token."""
    return _frame(FIRST_TOKEN, _ID.pack(sample_id) + token)


def read_first_token(content: bytes) -> tuple[int, bytes]:
    """Return a sample's id and its first token from the content of a frame."""
    return _ID.unpack_from(content)[0], content[_ID.size :]


def answered(answer: Answer) -> bytes:
    """Return a frame with an answer."""
    head = _ANSWER.pack(answer.sample_id, len(answer.data), answer.input_tokens, answer.cached_tokens)
    return _frame(ANSWER, head + answer.data + answer.text.encode())


def read_answer(content: bytes) -> Answer:
    """Return an answer from the content of a frame."""
    sample_id, size, input_tokens, cached_tokens = _ANSWER.unpack_from(content)
    end = _ANSWER.size + size
    return Answer(sample_id, content[_ANSWER.size : end], content[end:].decode(), input_tokens, cached_tokens)


def packed(samples: Iterable[Sample]) -> list[list[str]]:
    """Return samples in a form for JSON."""
    return [
        [sample.id, sample.prompt, pack_tokens(sample.tokens) if sample.tokens else ""] for sample in samples
    ]


def unpacked(rows: Iterable[list[str]]) -> list[Sample]:
    """Return the samples from their form for JSON."""
    return [Sample(id_, prompt, unpack_tokens(tokens)) for id_, prompt, tokens in rows]


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield the kind and content of each frame until the other end closes the connection."""
    try:
        while True:
            kind, size = _HEAD.unpack(await reader.readexactly(_HEAD.size))
            yield kind, await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return


def _frame(kind: bytes, content: bytes) -> bytes:
    return _HEAD.pack(kind, len(content)) + content
