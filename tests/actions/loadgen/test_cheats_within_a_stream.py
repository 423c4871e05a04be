"""Streams that contradict themselves, from the mock engine's bytes to the judgement, without LoadGen."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from actions.loadgen.in_environment.harness.completion import CompletionReader
from actions.loadgen.in_environment.harness.dataset import Sample
from actions.loadgen.in_environment.harness.endpoint import stored
from actions.loadgen.in_environment.harness.errors import HarnessError
from actions.loadgen.in_environment.harness.reply_log import Reply, ReplyLog
from actions.loadgen.in_environment.mock_engine.server import MockOptions, MockServer
from parsers.replies import Judgement, Replies, judge

TOKENS = 16
REPLIES = 8
PACE_S = 0.01

WITHIN = {
    "created_falls": (True, "created_falls"),
    "early_finish": (False, "give a finish_reason from their first part on"),
    "finish_of_first_part": (True, "text_after_finish"),
    "hit_of_a_cache": (True, "stored"),
    "id_of_each_part": (False, "give each part another id"),
    "invisible_first": (True, "paused_blank"),
    "invisible_text": (True, "blank"),
    "other_build": (
        False,
        "come from another build of the server, or another provider, than the reply before",
    ),
    "prompt_differs": (True, "prompt_differs"),
    "spliced": (True, "ids"),
    "text_after_finish": (True, "text_after_finish"),
    "total_tokens": (False, "give a total that is not the sum of prompt and answer"),
    "two_builds": (False, "name two builds of the server, or two providers"),
    "two_finishes": (True, "finishes"),
    "two_models": (True, "models"),
    "usage_again_after_end": (False, "send further data after the end of their stream"),
    "usage_differs": (True, "usage_differs"),
}
"""Cheats within a stream: True and the code of the reason if INVALID; False and the words of the warning."""


class Wire:
    """Keeps what a server writes."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        """Return at once."""


def judged(fault: str) -> Judgement:
    """Return the judgement of some replies of the mock engine, each part one hundredth of a second apart."""
    server = MockServer(MockOptions(model="tiny", fault=fault, echo=False))
    samples = [Sample(str(number), f"the question number {number} of many") for number in range(REPLIES)]
    log = ReplyLog(samples, ["tiny"], TOKENS, distinct=True)
    for index, sample in enumerate(samples):
        wire: Any = Wire()
        request = {"prompt": sample.prompt, "max_tokens": TOKENS, "stream": True}
        asyncio.run(server._completion(request, wire))
        head, _, body = wire.data.partition(b"\r\n\r\n")
        if said := stored(line.split(": ", 1) for line in head.decode().split("\r\n")[1:]):
            log.count("stored", said)
        note(log, index, body, pause=fault == "invisible_first")
    told = log.as_json()
    return judge(Replies(told["counts"], told["sums"], told["examples"]))


def note(log: ReplyLog, index: int, body: bytes, *, pause: bool) -> None:
    """Read a stream as the harness does: what follows its end is counted afterwards."""
    reader = CompletionReader()
    moments: list[tuple[float, int]] = []
    noted: frozenset[str] | None = None
    for line in body.split(b"\n"):
        reader.feed(line + b"\n")
        if noted is None and len(reader.texts) > len(moments):
            parts = len(reader.texts)
            moments.append((parts * PACE_S + (1.0 if pause and parts > 1 else 0.0), parts))
        if reader.done and noted is None:
            tokens, source = reader.token_count()
            data, last = reader.text.encode(), moments[-1][0]
            log.note(Reply(index, reader, data, tokens, source, 0.0, tuple(moments), last))
            noted = frozenset(reader.oddities)
    assert noted is not None
    for name in reader.oddities - noted:
        log.count(name)


def test_honest_streams_are_not_blamed() -> None:
    assert judged("none") == Judgement()


@pytest.mark.parametrize(("fault", "spoils", "said"), [(name, *told) for name, told in WITHIN.items()])
def test_a_stream_that_contradicts_itself_is_noticed(fault: str, spoils: bool, said: str) -> None:  # noqa: FBT001
    found = judged(fault)
    if spoils:
        assert said in {reason.code for reason in found.reasons}
    else:
        assert found.reasons == ()
        assert said in "\n".join(found.warnings)


@pytest.mark.parametrize(
    ("events", "found"),
    [
        pytest.param([1, 2], set(), id="counts that grow with the text"),
        pytest.param([1, 2, 6], set(), id="four tokens without text: a character, and the end"),
        pytest.param([1, 2, 7], {"usage_differs"}, id="five tokens without text"),
        pytest.param([2, 1], {"usage_falls"}, id="counts that fall"),
    ],
)
def test_counts_grow_with_the_text(events: list[int], found: set[str]) -> None:
    reader = CompletionReader()
    for place, tokens in enumerate(events):
        choices = [{"text": " word"}] if place < 2 else []
        event = {"choices": choices, "usage": {"completion_tokens": tokens}}
        reader.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    assert reader.oddities == found


def test_what_comes_in_one_block_with_the_end_is_no_part_of_the_count() -> None:
    reader = CompletionReader()
    events = [{"choices": [{"text": " word"}]}, {"choices": [], "usage": {"completion_tokens": 1}}]
    block = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    late = b"data: " + json.dumps({"choices": [], "usage": {"completion_tokens": 9}}).encode() + b"\n\n"
    reader.feed(block + b"data: [DONE]\n\n" + late)
    assert reader.token_count() == (1, "usage")
    assert reader.oddities == {"usage_after_end"}


USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


def part(text: str, finish: str | None = None, usage: dict[str, int] | None = None, **fields: Any) -> Any:
    """Return a part of a completion."""
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish}], "usage": usage, **fields}


def last(usage: dict[str, int], **fields: Any) -> Any:
    """Return a part with the token counts alone."""
    return {"choices": [], "usage": usage, **fields}


SERVERS: dict[str, tuple[list[Any], set[str]]] = {
    "vLLM, continuous_usage_stats": (
        [*(part(" a", None, {"prompt_tokens": 5, "completion_tokens": n, "total_tokens": 5 + n}, id="a")
           for n in (1, 2)), part(" c", "length", USAGE, id="a"), last(USAGE, id="a")],
        set(),
    ),
    "SGLang, the time of each part": (
        [*(part(" a", id="a", created=n) for n in (1, 1, 2)), part("", "length", id="a", created=2),
         last(USAGE, id="a", created=3)],
        set(),
    ),
    "TGI, without an id": (
        [*(part(" a", "", id="", created=n, system_fingerprint="3.3.4-sha") for n in (1, 2)),
         part(" c", "length", USAGE, id="", created=3, system_fingerprint="3.3.4-sha")],
        set(),
    ),
    "TensorRT-LLM 0.20, an id of each part": (
        [*(part(" a", id=f"a{n}") for n in (1, 2)), part(" c", "length", id="a3"), last(USAGE, id="a4")],
        {"id_of_each_part"},
    ),
    "Ollama, an empty finish_reason": (
        [part(" a", "", id="a"), part(" b", "", id="a"), part(" c", "length", id="a"), last(USAGE, id="a")],
        set(),
    ),
    "KoboldCpp, the word null": (
        [*(part(" a", "null", id="a") for _ in range(3)), part("", "length", id="a"), last(USAGE, id="a")],
        set(),
    ),
    "gcli2api, a finish_reason in each part": (
        [*(part(" a", "stop", id="a") for _ in range(3)), part("", "length", id="a"), last(USAGE, id="a")],
        {"early_finish"},
    ),
    "Open WebUI, an empty first part with a finish_reason": (
        [part("", "stop", id="a"), *(part(" a", id="a") for _ in range(3)), part("", "length", id="a"),
         last(USAGE, id="a")],
        set(),
    ),
    "Open WebUI, a finish_reason in each part of the thoughts": (
        [part(" a", "stop", id="a"), part(" b", "stop", id="a"), part(" c", id="a"),
         part("", "length", id="a"), last(USAGE, id="a")],
        {"early_finish"},
    ),
    "Gemini, thoughts in the total": (
        [part(" a", usage={"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 46}, id="a"),
         part(" b c", "stop", {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 48}, id="a")],
        {"total_tokens"},
    ),
}  # fmt: skip
"""Streams in the forms of servers, and what is warned of."""


@pytest.mark.parametrize("server", SERVERS)
def test_streams_of_servers_are_not_blamed(server: str) -> None:
    events, warned = SERVERS[server]
    reader = CompletionReader()
    for event in events:
        reader.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    reader.feed(b"data: [DONE]\n\n")
    reader.check_counts()
    reader.check_end()
    assert reader.oddities == warned
    assert judge(Replies(dict.fromkeys(warned, 1), {"replies": 1})).reasons == ()
    assert reader.token_count() == (3, "usage")


@pytest.mark.parametrize(
    ("finishes", "found"),
    [
        pytest.param([None, None, "stop"], set(), id="an end"),
        pytest.param(["stop", "stop", "stop"], {"early_finish"}, id="no sign of an end"),
        pytest.param([None, "stop", "stop"], {"text_after_finish"}, id="text after an end"),
        pytest.param([None, "stop", None], {"text_after_finish"}, id="text after an end, without one"),
        pytest.param(["stop", None, "stop", None], {"early_finish", "text_after_finish"}, id="two ends"),
        pytest.param([None, "stop", "length"], {"text_after_finish", "finishes"}, id="two reasons"),
    ],
)
def test_a_finish_reason_shows_an_end_only_after_parts_without_one(
    finishes: list[str | None], found: set[str]
) -> None:
    reader = CompletionReader()
    for finish in finishes:
        reader.feed(b"data: " + json.dumps(part(" word", finish)).encode() + b"\n\n")
    assert reader.oddities == found


@pytest.mark.parametrize("finishes", [["stop", "stop"], ["stop", None], [None, None]])
def test_a_stream_without_an_end_is_cut_whatever_its_parts_say(finishes: list[str | None]) -> None:
    reader = CompletionReader()
    for finish in finishes:
        reader.feed(b"data: " + json.dumps(part(" word", finish)).encode() + b"\n\n")
    with pytest.raises(HarnessError, match="without finishing the answer"):
        reader.check_end()


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ("aaaa", set()),
        ("abcd", {"id_of_each_part"}),
        ("abcc", {"id_of_each_part"}),
        ("aabb", {"ids"}),
        ("aaab", {"ids"}),
    ],
)
def test_a_joined_answer_has_few_ids(ids: str, found: set[str]) -> None:
    reader = CompletionReader()
    for part in ids:
        reader.feed(b"data: " + json.dumps({"id": part, "choices": [{"text": " word"}]}).encode() + b"\n\n")
    reader.check_counts()
    assert reader.oddities == found


def test_parts_about_content_filters_have_no_id_and_no_time() -> None:
    """Azure sends such parts before, between and after those with text."""
    about = {"id": "", "created": 0, "model": "", "object": "", "choices": []}
    part = {"id": "a", "created": 100, "model": "m", "choices": [{"index": 0, "delta": {"content": " word"}}]}
    checked = {**about, "choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}}]}
    reader = CompletionReader(chat=True)
    for event in (about, part, checked, part, checked):
        reader.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    reader.check_counts()
    assert reader.oddities == set()
    assert (reader.reply_id, reader.model) == ("a", "m")


def test_a_placeholder_for_the_prompt_is_not_a_count() -> None:
    reader = CompletionReader()
    for prompt, tokens in ((0, 0), (7, 1)):
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens}
        reader.feed(b"data: " + json.dumps({"choices": [{"text": "a"}], "usage": usage}).encode() + b"\n\n")
    assert reader.oddities == set()


@pytest.mark.parametrize(
    ("header", "is_stored"),
    [
        ("Age: 0", True),
        ("X-Cache: Hit from cloudfront", True),
        ("x-cache: TCP_HIT", True),
        ("Cache-Status: proxy; hit; ttl=3", True),
        ("x-litellm-cache-hit: True", True),
        ("X-Cache: MISS", False),
        ("X-Cache-Hits: 0", False),
        ("Cache-Status: proxy; fwd=miss; stored", False),
        ("Cache-Control: no-cache", False),
        ("x-litellm-cache-hit: False", False),
        ("X-Answer: hit", False),
    ],
)
def test_headers_of_caches(header: str, is_stored: bool) -> None:  # noqa: FBT001
    name, _, value = header.partition(": ")
    assert stored([("Server", "mock"), (name, value)]) == (header if is_stored else "")
