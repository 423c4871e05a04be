"""The harness's inputs: its configuration, the data set, an engine's replies."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.loadgen.in_environment.harness.completion import CompletionReader
from actions.loadgen.in_environment.harness.config import HarnessConfig
from actions.loadgen.in_environment.harness.dataset import pack_tokens, read_dataset, unpack_tokens
from actions.loadgen.in_environment.harness.endpoint import is_like
from actions.loadgen.in_environment.harness.errors import HarnessError

if TYPE_CHECKING:
    from pathlib import Path

GOOD = {
    "scenario": "Offline",
    "mode": "performance",
    "model": "llama3_1-8b",
    "output_dir": "out",
    "dataset": "data.jsonl",
    "backend": {"type": "null"},
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scenario": "offline"}, "scenario 'offline' is none of"),
        ({"mode": "fast"}, "mode 'fast' is none of"),
        ({"model": "llama3.1-8b"}, "write 'llama3_1-8b'"),
        ({"backend": {}}, "it needs a type"),
        ({"load_share": 2.5}, "load_share is 2.5; it is a share of the measured rate, 0 to 2"),
        (
            {"scenario": "Server", "load_share": 1.2},
            "load_share is 1.2; it is a share of the measured rate, 0 to 1",
        ),
        ({"max_output_tokens": 0}, "max_output_tokens is 0; the least is 1"),
        ({"sample_timeout": 3}, "did you mean 'sample_timeout_s'?"),
    ],
)
def test_a_wrong_configuration_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOD | changes))

    with pytest.raises(ValueError, match=r"config\.json") as caught:
        HarnessConfig.read(path)

    assert words in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"scenario": "Offline"}'])
def test_a_broken_configuration_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)

    with pytest.raises(ValueError, match=r"config\.json"):
        HarnessConfig.read(path)


def test_a_configuration_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOD))

    assert HarnessConfig.read(path).max_output_tokens == 128


def test_offline_may_expect_more_than_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOD | {"load_share": 1.2}))

    assert HarnessConfig.read(path).load_share == 1.2


def test_a_data_set_is_read(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    packed = pack_tokens([3, 128009])
    path.write_text(
        '{"prompt": "héllo", "id": 7}\n\n{"token_ids": [1, 2]}\n'
        f'{{"prompt": "a", "token_ids": "{packed}"}}\n'
    )

    text, ids, both = read_dataset(path)

    assert (text.id, text.prompt, list(text.tokens)) == ("7", "héllo", [])
    assert (ids.id, ids.prompt, list(ids.tokens)) == ("2", "", [1, 2])
    assert (both.id, both.prompt, list(both.tokens)) == ("3", "a", [3, 128009])


@given(st.lists(st.integers(0, 2**31 - 1)))
def test_packed_tokens_are_the_same_again(tokens: list[int]) -> None:
    assert list(unpack_tokens(pack_tokens(tokens))) == tokens


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no sample"),
        (b"\n \n", "holds no sample"),
        (b'{"prompt": "a"}\n{"prompt"', "data.jsonl:2 is not JSON"),
        (b"[1]", "data.jsonl:1 is not a JSON object"),
        (b'{"text": "a"}', "data.jsonl:1 has neither"),
        (b'{"prompt": ""}', "data.jsonl:1 has neither"),
        (b'{"token_ids": [1, "2"]}', "data.jsonl:1 has neither"),
        (b'{"token_ids": [true]}', "data.jsonl:1 has neither"),
        (b'{"token_ids": [-1]}', "data.jsonl:1 has neither"),
        (b'{"token_ids": [4294967296]}', "data.jsonl:1 has neither"),
        (b'{"token_ids": "AAAA"}', "data.jsonl:1 has neither"),
        (b'{"token_ids": "AQID\xc3\xa9"}', "data.jsonl:1 has neither"),
        (b'{"prompt": 7, "token_ids": [1]}', "data.jsonl:1 has neither"),
        (b'{"prompt": "a", "max_output_tokens": 0}', "data.jsonl:1 has max_output_tokens"),
        (b'{"prompt": "a", "max_output_tokens": true}', "data.jsonl:1 has max_output_tokens"),
        (b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_a_wrong_data_set_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(content)

    with pytest.raises(HarnessError) as caught:
        read_dataset(path)

    assert caught.value.kind == "dataset"
    assert words in caught.value.message


STREAM = (
    'data: {"choices":[{"text":"Grüß","finish_reason":null}]}\n\n'
    'data: {"choices":[{"text":"","finish_reason":null}]}\r\n\r\n'
    ": a comment\n\n"
    'data: {"choices":[{"text":" dich","finish_reason":"length"}],"usage":null}\n\n'
    'data: {"choices":[],"usage":{"completion_tokens":4,"prompt_tokens":9,'
    '"prompt_tokens_details":{"cached_tokens":2}}}\n\n'
    "data: [DONE]\n\n"
).encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_a_stream_may_be_cut_anywhere_on_its_way(cuts: list[int]) -> None:
    reader = CompletionReader()
    edges = [0, *sorted(cuts), len(STREAM)]

    for start, end in pairwise(edges):
        reader.feed(STREAM[start:end])

    reader.check_end()
    assert reader.text == "Grüß dich"
    assert reader.token_count() == (4, "usage")
    assert (reader.input_tokens, reader.cached_tokens) == (9, 2)
    assert reader.done


def test_llama_cpps_own_count_of_cached_tokens_is_read() -> None:
    reader = CompletionReader()

    reader.feed(b'data: {"choices":[],"usage":{"completion_tokens":1},"timings":{"cache_n":5}}\n')

    assert reader.cached_tokens == 5


@pytest.mark.parametrize(
    "usage", [{"completion_tokens": 1}, {"completion_tokens": 1, "prompt_tokens_details": None}]
)
def test_what_the_engine_does_not_tell_is_not_zero(usage: dict[str, Any]) -> None:
    reader = CompletionReader()

    reader.feed(f"data: {json.dumps({'choices': [], 'usage': usage})}\n".encode())

    assert (reader.input_tokens, reader.cached_tokens) == (None, None)


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (b"data: nonsense\n", "malformed_reply"),
        (b"data: 5\n", "malformed_reply"),
        (b'data: {"choices":[3]}\n', "malformed_reply"),
        (b'data: {"usage":{"prompt_tokens":3}}\n', "malformed_reply"),
        (b'data: {"error":{"message":"no memory"}}\n', "engine_error"),
        (b'error: {"message":"no memory"}\n', "engine_error"),
        (b'data: {"choices":[{"text":"a","finish_reason":"abort"}]}\n', "engine_error"),
        (b'data: {"choices":[{"text":"","finish_reason":"error"}]}\n', "engine_error"),
    ],
)
def test_a_wrong_event_is_refused(event: bytes, kind: str) -> None:
    with pytest.raises(HarnessError) as caught:
        CompletionReader().feed(event)

    assert caught.value.kind == kind


def test_a_stream_without_its_end_is_cut() -> None:
    reader = CompletionReader()
    reader.feed(b'data: {"choices":[{"text":"a","finish_reason":null}]}\n')

    with pytest.raises(HarnessError, match="after 1 parts"):
        reader.check_end()


@pytest.mark.parametrize(
    ("served", "wanted", "like"),
    [
        ("llama3.1-8b", "llama3.1-8b", True),
        ("meta-llama/Llama-3.1-8B", "llama3.1-8b", True),
        ("meta-llama/Llama-3.1-8B", "llama3_1-8b", True),
        ("meta-llama/Llama-3.1-8B", "meta-llama/llama-3.1-8b", True),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3.1-8b", False),
        ("Llama-3.1-70B", "llama3.1-8b", False),
        ("qwen-15b", "qwen-1.5b", False),
        ("", "llama3.1-8b", False),
    ],
)
def test_a_served_name_is_compared_word_by_word(served: str, wanted: str, like: bool) -> None:  # noqa: FBT001
    assert is_like(served, wanted) is like
