"""The locustfile's reader of replies, without locust: it is loaded with empty stand-ins for its imports."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

import actions.locust
from actions.loadgen.in_environment.harness import completion, endpoint, reply_log
from actions.loadgen.in_environment.harness.endpoint import retried

if TYPE_CHECKING:
    from collections.abc import Callable

LOCUSTFILE = Path(actions.locust.__file__).parent / "in_environment" / "locustfile.py"
PART: dict[str, Any] = {
    "id": "a",
    "model": "tiny",
    "created": 100,
    "choices": [{"index": 0, "text": " word"}],
}
FINISH: dict[str, Any] = {
    "id": "a",
    "model": "tiny",
    "created": 100,
    "choices": [{"text": "", "finish_reason": "length"}],
}
USAGE: dict[str, Any] = {"id": "a", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
STOP: dict[str, Any] = {"stop": True, "tokens_evaluated": 3, "tokens_predicted": 2}
HONEST: list[dict[str, Any] | None] = [PART, PART, FINISH, USAGE, None]


def saying(text: str, finish: str | None = None) -> dict[str, Any]:
    """Return a part of a stream."""
    return {**PART, "choices": [{"index": 0, "text": text, "finish_reason": finish}]}


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Return a function that loads the locustfile for one of its APIs."""

    def load_for(api: str) -> ModuleType:
        load = {"api": api, "model": "tiny", "input_tokens": 3, "output_tokens": 2}
        (tmp_path / "load.json").write_text(json.dumps(load))
        (tmp_path / "prompts.json").write_text("{}")
        monkeypatch.setenv("VCAGENT_LOAD", str(tmp_path))
        locust, runners = MagicMock(), ModuleType("locust.runners")
        locust.User = runners.WorkerRunner = object  # type: ignore[attr-defined]
        locust.task = lambda function: function
        for name, module in (("gevent", MagicMock()), ("locust", locust), ("locust.runners", runners)):
            monkeypatch.setitem(sys.modules, name, module)
        spec = importlib.util.spec_from_file_location("locustfile_of_test", LOCUSTFILE)
        assert spec is not None
        assert spec.loader is not None
        locustfile = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, locustfile)  # dataclasses look their module up
        spec.loader.exec_module(locustfile)
        return locustfile

    return load_for


@pytest.fixture
def oddities_of(loaded: Callable[[str], Any]) -> Callable[..., set[str]]:
    """Return a function that reads a stream's events and returns the contradictions."""

    def read(*events: dict[str, Any] | None, api: str = "openai") -> set[str]:
        reply = loaded(api).Reply()
        for event in events:
            reply.take(event)
        reply.check()
        found: set[str] = reply.oddities
        return found

    return read


def test_an_honest_stream_has_no_contradiction(oddities_of: Callable[..., set[str]]) -> None:
    assert oddities_of(*HONEST) == set()
    counted = {**PART, "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    assert oddities_of(counted, *HONEST[1:]) == set()
    # Azure's parts about its content filters.
    filters = {"id": "", "model": "", "created": 0, "choices": []}
    checked = {**filters, "choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}}]}
    assert oddities_of(filters, PART, PART, checked, *HONEST[2:]) == set()


@pytest.mark.parametrize(
    ("events", "found"),
    [
        pytest.param([PART, {**PART, "id": "b"}, *HONEST[2:]], "ids", id="two ids"),
        pytest.param(
            [{**event, "id": str(number)} for number, event in enumerate(HONEST[:4]) if event],
            "id_of_each_part",
            id="an id for each part",
        ),
        pytest.param(
            [{**event, "id": str(min(number, 2))} for number, event in enumerate(HONEST[:4]) if event],
            "id_of_each_part",
            id="an id for each part but the last two",
        ),
        pytest.param([PART, {**PART, "model": "other"}, *HONEST[2:]], "models", id="two models"),
        pytest.param([PART, {**PART, "created": 90}, *HONEST[2:4]], "created_falls", id="created before"),
        pytest.param([PART, FINISH, PART, USAGE, None], "text_after_finish", id="text after the finish"),
        pytest.param(
            [*HONEST[:3], {**PART, "choices": [{"text": "", "finish_reason": "stop"}]}, USAGE, None],
            "finishes",
            id="two reasons to finish",
        ),
        pytest.param([*HONEST, None], "data_after_end", id="two ends"),
        pytest.param([*HONEST, USAGE], "data_after_end", id="the same usage after the end"),
        pytest.param([PART, PART, FINISH, None, USAGE], "usage_after_end", id="usage after the end only"),
        pytest.param([*HONEST, PART], "text_after_end", id="text after the end"),
        pytest.param(
            [{**PART, "usage": {"prompt_tokens": 9, "completion_tokens": 1}}, *HONEST[1:]],
            "prompt_differs",
            id="another prompt",
        ),
        pytest.param(
            [{**PART, "usage": {"prompt_tokens": 3, "completion_tokens": 9}}, *HONEST[1:]],
            "usage_falls",
            id="usage falls",
        ),
        pytest.param(
            [
                {**PART, "usage": {"prompt_tokens": 3, "completion_tokens": 1}},
                FINISH,
                {**USAGE, "usage": {"prompt_tokens": 3, "completion_tokens": 6}},
                {**USAGE, "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
                None,
            ],
            {"usage_differs", "usage_falls"},
            id="tokens without text",
        ),
        pytest.param(
            [*HONEST[:3], {**USAGE, "usage": {**USAGE["usage"], "total_tokens": 45}}, None],
            "total_tokens",
            id="a total with hidden tokens",
        ),
        pytest.param(
            [{**PART, "system_fingerprint": "b1"}, {**PART, "system_fingerprint": "b2"}, *HONEST[2:]],
            "builds",
            id="two builds",
        ),
        pytest.param(
            [{**PART, "provider": "Alpha"}, {**PART, "provider": "Beta"}, *HONEST[2:]],
            "builds",
            id="two providers",
        ),
        pytest.param(
            [
                *HONEST[:3],
                {
                    **USAGE,
                    "usage": {
                        **USAGE["usage"],
                        "completion_tokens_details": {"rejected_prediction_tokens": 1},
                    },
                },
                None,
            ],
            "hidden_tokens",
            id="tokens of a rejected draft",
        ),
        pytest.param(
            [*(saying(word) for word in (" a", " a", " b", " b", " c", " c")), *HONEST[2:]],
            "doubled",
            id="each part twice",
        ),
        pytest.param([{**event, "model": ""} for event in HONEST if event], "no_model", id="no model"),
        pytest.param(
            [saying(" a"), saying(" b"), saying("", "content_filter"), USAGE, None], "withheld", id="withheld"
        ),
        pytest.param(
            [saying("Error"), saying(": the GPU was lost"), *HONEST[2:]], "error_text", id="an error"
        ),
        pytest.param(
            [saying(" a", "stop"), saying(" b", "stop"), *HONEST[2:]], "early_finish", id="always a finish"
        ),
        pytest.param(
            [saying(" a", "stop"), saying(" b", "stop"), saying(" c"), USAGE, None],
            {"early_finish", "unfinished"},
            id="a finish at the beginning only",
        ),
        pytest.param(
            [saying(" a"), saying(" b", "stop"), saying(" c", "stop"), USAGE, None],
            "text_after_finish",
            id="two joined answers",
        ),
    ],
)
def test_a_stream_that_contradicts_itself_is_noted(
    oddities_of: Callable[..., set[str]], events: list[dict[str, Any] | None], found: str | set[str]
) -> None:
    assert oddities_of(*events) == ({found} if isinstance(found, str) else found)


@pytest.mark.parametrize("finish", ["", "null", None], ids=["Ollama, SGLang", "KoboldCpp", "OpenAI"])
def test_a_finish_of_nothing_is_none(oddities_of: Callable[..., set[str]], finish: str | None) -> None:
    assert oddities_of(saying(" a", finish), saying(" b", finish), *HONEST[2:]) == set()
    assert oddities_of(saying("", "stop"), PART, PART, *HONEST[2:]) == set()  # Open WebUI 0.6
    assert oddities_of(saying(" a", finish), saying(" b", finish), USAGE, None) == {"unfinished"}


def test_an_answer_with_an_incomplete_end_fails(oddities_of: Callable[..., set[str]]) -> None:
    with pytest.raises(Exception, match="ended the answer with finish_reason abort"):
        oddities_of(PART, PART, saying("", "abort"), USAGE, None)
    with pytest.raises(Exception, match="the server says: out of slots"):
        oddities_of(PART, {"object": "error", "message": "out of slots"})


def test_errors_are_recognised_as_in_the_harness(loaded: Callable[[str], Any]) -> None:
    assert loaded("openai").ERROR.pattern == reply_log._ERROR.pattern
    assert set(loaded("openai").WITHHELD) == reply_log._WITHHELD


@pytest.mark.parametrize("name", ["prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens"])
def test_a_cached_prompt_is_found_under_any_name(loaded: Callable[[str], Any], name: str) -> None:
    reply = loaded("openai").Reply()
    reply.take({**USAGE, "usage": {**USAGE["usage"], name: 2}})
    assert reply.cached_tokens == 2
    assert set(completion._CACHED_NAMES) == set(loaded("openai").CACHED_NAMES)


def test_two_halves_of_a_character_are_logged_as_one(loaded: Callable[[str], Any]) -> None:
    locustfile = loaded("openai")
    reply = locustfile.Reply()
    for event in (saying("\ud83d"), saying("\ude00"), *HONEST[2:]):
        reply.take(event)
    user, written = locustfile.LoadUser(), MagicMock()
    user.name, user._prompt_crc32, user.environment = "a", 1, MagicMock()
    locustfile.LOG.write = written
    user._tell("/v1/completions", 0.0, 1.0, reply, "")
    told = written.call_args.kwargs
    assert (told["text_bytes"], told["is_blank"], told["blank_parts"]) == (4, False, 2)
    assert len(told["begins_crc32"]) == 2


@pytest.mark.parametrize(
    ("header", "is_retried"),
    [
        ("x-litellm-attempted-fallbacks: 1", True),
        ("x-litellm-attempted-retries: 0", False),
        ("x-envoy-attempt-count: 1", False),
        ("x-envoy-attempt-count: 2", True),
        ("retry-after: 3", False),
    ],
)
def test_headers_of_gateways_that_tried_again(
    loaded: Callable[[str], Any],
    header: str,
    is_retried: bool,  # noqa: FBT001
) -> None:
    name, _, value = header.partition(": ")
    assert loaded("openai")._is_retried(name, value) is is_retried
    assert retried([(name, value)]) == (header if is_retried else "")
    assert loaded("openai").USUAL_TRIES == endpoint._USUAL_TRIES


def test_a_cached_prompt_is_not_forgotten(loaded: Callable[[str], Any]) -> None:
    reply = loaded("openai").Reply()
    for cached in (2, 0):
        details = {"prompt_tokens_details": {"cached_tokens": cached}}
        reply.take({**USAGE, "usage": {**USAGE["usage"], **details}})
    assert reply.cached_tokens == 2


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([STOP, None], set()),
        ([STOP, STOP], {"data_after_end"}),
        ([STOP, {"content": " more"}], {"text_after_end"}),
        ([{**STOP, "tokens_predicted": 1}, STOP], {"usage_after_end"}),
    ],
)
def test_streams_of_llama_cpp_s_own_api(
    oddities_of: Callable[..., set[str]], events: list[dict[str, Any] | None], found: set[str]
) -> None:
    # llama.cpp names slot -1 in the parts, and the slot itself at the end.
    parts = [{"content": " word", "id_slot": -1}, {"content": " word", "id_slot": -1}]
    assert oddities_of(*parts, *events, api="llamacpp") == found


@pytest.mark.parametrize(
    ("header", "is_stored"),
    [
        ("Age: 0", True),
        ("X-Cache: TCP_HIT", True),
        ("x-litellm-cache-hit: True", True),
        ("X-Cache-Policy: whitelist", False),
        ("X-Cache: MISS", False),
        ("X-Answer: hit", False),
    ],
)
def test_headers_of_caches(loaded: Callable[[str], Any], header: str, is_stored: bool) -> None:  # noqa: FBT001
    name, _, value = header.lower().partition(": ")
    assert loaded("openai")._is_of_cache(name, value) is is_stored


@pytest.mark.parametrize("event", [[], "text", {"choices": ["text"]}, {"choices": {"0": {}}}])
def test_a_stream_of_something_else_fails_its_request(loaded: Callable[[str], Any], event: Any) -> None:
    locustfile = loaded("openai")
    locustfile._stream = lambda *_: iter([event])
    user, told = locustfile.LoadUser(), MagicMock()
    user._body, user._tell = bytes, told
    user.ask()
    assert told.call_args.args[-1]
