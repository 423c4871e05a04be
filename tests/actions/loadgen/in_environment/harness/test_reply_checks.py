"""The parts of the harness that check replies, without an engine."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from actions.loadgen.in_environment.harness.completion import CompletionReader
from actions.loadgen.in_environment.harness.dataset import Sample
from actions.loadgen.in_environment.harness.errors import HarnessError
from actions.loadgen.in_environment.harness.recount import recount, recount_at_server
from actions.loadgen.in_environment.harness.reply_log import Reply, ReplyLog
from actions.loadgen.in_environment.harness.samples import SampleRecorder
from actions.loadgen.in_environment.harness.wall_clock import WallClock
from tests.actions.loadgen.in_environment.harness.conftest import start_process

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [("one two three", 3), ("four five", 2), ("broken �", 9), ("", 1)]


@pytest.mark.parametrize("text", [["a"], {"a": 1}, 7])
def test_text_that_is_no_text_is_no_completion(text: Any) -> None:
    reader = CompletionReader()
    with pytest.raises(HarnessError, match="its text is not a string"):
        reader.whole(json.dumps({"choices": [{"text": text}], "usage": {"completion_tokens": 1}}).encode())


@pytest.mark.parametrize(
    "body",
    [
        pytest.param('{"choices": [], "usage": {"completion_tokens": -5}}', id="tokens below 0"),
        pytest.param('{"choices": [], "usage": {"completion_tokens": 1e999}}', id="endless tokens"),
        pytest.param('{"choices": [], "usage": {"completion_tokens": NaN}}', id="tokens without a number"),
        pytest.param('{"choices": [], "usage": {"completion_tokens": 9, "prompt_tokens": -1}}', id="prompt"),
        pytest.param('{"choices": [], "timings": {"cache_n": 1e999}}', id="endless cache"),
        pytest.param('{"choices": [], "model": ["tiny"]}', id="a list for a model"),
        pytest.param('{"choices": [{"text": "a", "finish_reason": ["stop"]}]}', id="a list for a reason"),
        pytest.param("[" * 100_000, id="lists without an end"),
        pytest.param('{"usage": {"completion_tokens": ' + "9" * 5000 + "}}", id="thousands of digits"),
        pytest.param('{"choices": {"text": "a"}}', id="choices without a list"),
        pytest.param("7", id="a number"),
        pytest.param("", id="nothing"),
    ],
)
def test_what_is_no_completion_is_an_error_that_shows_it(body: str) -> None:
    with pytest.raises(HarnessError, match="sent something other than a completion: ") as caught:
        CompletionReader().whole(body.encode())
    assert caught.value.kind == "malformed_reply"
    assert len(caught.value.message) < 600


def test_an_id_may_be_a_number_and_a_time_endless() -> None:
    reader = CompletionReader()
    reader.whole(b'{"id": 7, "choices": [], "timings": {"prompt_n": 1e999, "predicted_ms": 5}}')
    assert (reader.reply_id, reader.timings) == ("7", {"predicted_ms": 5})
    reader.check_counts()


def test_a_chat_is_read_streamed_and_whole_with_what_is_thought_before_it() -> None:
    streamed, whole = CompletionReader(chat=True), CompletionReader(chat=True)
    deltas = [{"role": "assistant", "content": ""}, {"reasoning_content": "so"}, {"reasoning": " then"}]
    for delta in [*deltas, {"content": " yes"}]:
        streamed.feed(b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n")
    whole.whole(json.dumps({"choices": [{"message": {"content": "so then yes"}}]}).encode())
    assert streamed.texts == ["so", " then", " yes"]
    assert whole.text == streamed.text


def test_token_ids_of_vllm_and_llama_cpp() -> None:
    vllm, llama_cpp = CompletionReader(), CompletionReader()
    for ids in ([7], [8, 2]):
        choice = {"text": "x", "token_ids": ids}
        vllm.feed(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        chunk = {"choices": [{"text": "x"}], "__verbose": {"tokens": ids}}
        llama_cpp.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    assert vllm.token_ids == llama_cpp.token_ids == [7, 8, 2]


def test_tokens_within_a_character_are_counted() -> None:
    reader = CompletionReader()
    for verbose in (
        {"tokens": [7], "tokens_predicted": 1},
        {"tokens": [9], "tokens_predicted": 4},
        {"tokens": [], "tokens_predicted": 5, "stop": True},
    ):
        chunk = {"choices": [{"text": "x"}], "__verbose": verbose}
        reader.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    assert reader.token_ids == [7, -1, -1, 9, -1]


def test_each_sample_may_ask_for_a_length_of_its_own() -> None:
    log = ReplyLog([Sample("a", "a", (), 2), Sample("b", "b")], ["m"], 4, distinct=True)
    for index in (0, 1):
        reader = CompletionReader()
        usage = {"completion_tokens": 3, "prompt_tokens": 1}
        choice = {"text": "x y z", "finish_reason": "length"}
        reader.whole(json.dumps({"model": "m", "choices": [choice], "usage": usage}).encode())
        log.note(Reply(index, reader, b"x y z", 3, "usage", 0.0, (), 1.0))
    assert (log.counts["too_long"], log.counts["short_of_length"]) == (1, 1)


def test_timings_that_are_no_numbers_are_left_out() -> None:
    reader = CompletionReader()
    timings = {"prompt_ms": "fast", "predicted_n": 1, "prompt_n": True}
    reader.whole(json.dumps({"choices": [], "timings": timings}).encode())
    assert reader.timings == {"predicted_n": 1}


def test_a_prompt_that_was_not_computed_came_from_a_cache() -> None:
    reader = CompletionReader()
    usage = {"prompt_tokens": 30, "completion_tokens": 1}
    reader.whole(json.dumps({"choices": [], "usage": usage, "timings": {"prompt_n": 4}}).encode())
    reader.check_counts()
    assert reader.cached_tokens == 26


def test_tokens_of_a_prompt_are_those_that_were_sent() -> None:
    log = ReplyLog([Sample("a", "", [1, 2, 3])], ["m"], 8, distinct=True)
    reader = CompletionReader()
    usage = {"prompt_tokens": 2, "completion_tokens": 1}
    choice = {"text": "x", "finish_reason": "stop"}
    reader.whole(json.dumps({"model": "M", "choices": [choice], "usage": usage}).encode())
    log.note(Reply(0, reader, b"x", 1, "usage", 0, (), 1))
    assert log.as_json()["counts"] == {"prompt_tokens": 1}


def test_an_engine_that_numbers_no_reply_is_not_blamed() -> None:
    def ids(*told: str) -> dict[str, int]:
        log = ReplyLog([Sample("a", "p"), Sample("b", "q")], ["m"], 8, distinct=True)
        for place, reply_id in enumerate(told):
            reader = CompletionReader()
            choice = {"text": "x", "finish_reason": "stop"}
            reader.whole(json.dumps({"id": reply_id, "model": "m", "choices": [choice]}).encode())
            log.note(Reply(place % 2, reader, b"x", 1, "usage", 0, (), 1))
        counts: dict[str, int] = log.as_json()["counts"]
        return counts

    assert ids("same", "same", "same", "same") == {}
    assert ids("a", "b", "c", "d") == {}
    assert ids("a", "b", "a", "b") == {"same_id": 2}


def logged(*replies: Reply, prompts: tuple[str, ...] = ("p", "q")) -> dict[str, int]:
    """Return the counts of a log of some replies."""
    samples = [Sample(str(number), prompt) for number, prompt in enumerate(prompts)]
    log = ReplyLog(samples, ["m"], 64, distinct=True)
    for reply in replies:
        log.note(reply)
    counts: dict[str, int] = log.as_json()["counts"]
    return counts


def answered(
    index: int, *, sent: float = 0.0, ended: float = 1.0, moments: tuple[Any, ...] = (), **told: Any
) -> Reply:
    """Return a reply of 20 words, each of them a token."""
    reader = CompletionReader()
    reader.date = told.pop("date", "")
    prompt = told.pop("prompt_tokens", 5)
    text = told.pop("text", " ".join(f"word{index}{number}" for number in range(20)))
    usage = {"prompt_tokens": prompt, "completion_tokens": 20}
    choice = {"text": text, "finish_reason": "stop"}
    reader.whole(json.dumps({"model": "m", "choices": [choice], "usage": usage, **told}).encode())
    if moments:
        reader.texts = [f"{word} " for word in text.split()]
    return Reply(index, reader, text.encode(), 20, "usage", sent, moments, ended)


def test_a_reply_created_with_an_earlier_one_was_stored() -> None:
    def at(*seconds: tuple[int, float, int]) -> dict[str, int]:
        return logged(
            *(answered(index, sent=sent, ended=sent + 1, created=made) for index, sent, made in seconds),
            prompts=tuple("abcdefg"),
        )

    others = [(1, 1.0, 101), (2, 2.0, 102), (3, 3.0, 103)]
    assert at((0, 0.0, 100), *others, (0, 9.0, 100)) == {"same_created": 1}
    assert at((0, 0.0, 100), *others, (0, 2.0, 100)) == {}, "requested at the same time"
    assert at((0, 0.0, 100), *others, (0, 9.0, 109)) == {}
    assert at(*((index, 9.0 * place, 100) for place, index in enumerate((0, 1, 0, 1)))) == {}, (
        "always the same"
    )


def test_a_reply_may_be_made_as_long_before_its_date_as_it_took() -> None:
    date = "Wed, 15 Nov 2023 00:00:00 GMT"
    made = 1_700_006_400
    assert logged(answered(0, date=date, created=made)) == {}
    assert logged(answered(0, date=date, created=made - 50)) == {}
    assert logged(answered(0, date=date, created=made - 100, ended=90.0)) == {}
    assert logged(answered(0, date=date, created=made - 100)) == {"created_before": 1}
    assert logged(answered(0, date="yesterday", created=made - 100)) == {}
    assert logged(answered(0, created=made - 100)) == {}


def test_prompts_of_different_lengths_with_the_same_largest_count_were_cut() -> None:
    prompts = tuple("word " * words for words in (100, 200, 300, 20, 30))

    def counted(*tokens: int) -> dict[str, int]:
        return logged(
            *(answered(index, prompt_tokens=told) for index, told in enumerate(tokens)), prompts=prompts
        )

    assert counted(64, 64, 64, 20, 30) == {"prompts_cut": 3}
    assert counted(100, 200, 300, 20, 30) == {}
    assert counted(64, 64, 63, 20, 30) == {}, "only two"
    assert (
        logged(*(answered(index, prompt_tokens=9) for index in range(3)), prompts=("abc", "abd", "abe")) == {}
    )


def test_tokens_that_come_close_together_at_the_end_were_gathered() -> None:
    def paced(first: float, each: float) -> dict[str, int]:
        moments = tuple((first + each * place, place + 1) for place in range(20))
        return logged(answered(0, moments=moments, ended=moments[-1][0]))

    assert paced(1.0, 1e-4) == {"gathered": 1}
    assert paced(1.0, 1e-5) == {"burst": 1}
    assert paced(1.0, 1e-3) == {}
    assert paced(0.02, 1e-4) == {}, "an engine that is that fast"


@pytest.mark.parametrize(
    ("words", "pause_at", "found"),
    [
        ("Well then so", 3, {"halted", "paused_alike"}),
        ("Well", 1, {"paused", "paused_alike"}),
        ("", 3, {"halted"}),
        ("", 1, {"paused"}),
        ("", 8, set()),
    ],
    ids=["same words", "same word", "own words", "own word", "in the middle"],
)
def test_a_pause_after_the_first_words_is_noted(words: str, pause_at: int, found: set[str]) -> None:
    moments = tuple((0.01 * place + (place >= pause_at), place + 1) for place in range(20))
    replies = []
    for index in range(2):
        begin = words.split()
        own = [f"word{index}{number}" for number in range(20 - len(begin))]
        replies.append(answered(index, moments=moments, ended=2.0, text=" ".join([*begin, *own])))
    assert {name for name, count in logged(*replies).items() if count} == found


def test_no_prompt_has_0_tokens() -> None:
    reader = CompletionReader()
    usage = {"prompt_tokens": 0, "completion_tokens": 1}
    reader.whole(json.dumps({"choices": [], "usage": usage}).encode())
    assert reader.input_tokens is None


def test_two_halves_of_a_character_are_one() -> None:
    reader = CompletionReader()
    for half in ("\\ud83d", "\\ude00"):
        reader.feed(b'data: {"choices": [{"text": "' + half.encode() + b'"}]}\n')
    assert reader.text == "\U0001f600"
    reader.feed(b'data: {"choices": [{"text": "\\ud83d"}]}\n')
    assert reader.text == "\U0001f600\ufffd"


def test_reasoning_that_is_shown_is_not_hidden() -> None:
    usage = {"completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 1}}
    for shown, found in ({"reasoning_content": "so"}, set()), ({}, {"hidden_tokens"}):
        reader = CompletionReader(chat=True)
        for delta in (shown, {"content": "yes"}):
            reader.feed(b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n")
        reader.feed(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n")
        reader.check_counts()
        assert reader.oddities == found


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_probabilities_of_other_tokens_are_noted(api: str) -> None:
    for count, found in (2, set()), (20, set()), (9, {"logprobs"}):
        reader = CompletionReader(chat=api == "chat")
        name, text = (
            ("content", {"message": {"content": "x"}}) if api == "chat" else ("tokens", {"text": "x"})
        )
        choice = {**text, "logprobs": {name: [{}] * count}}
        usage = {"completion_tokens": 20 if count > 2 else 2}
        reader.whole(json.dumps({"choices": [choice], "usage": usage}).encode())
        reader.check_counts()
        assert reader.oddities == found


COUNT = """
import json, sys, tokenizers
from harness.recount import recount
made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
made.save(f"{sys.argv[1]}/tokenizer.json")
print(json.dumps(recount(json.loads(sys.argv[2]), sys.argv[1])))
"""


@pytest.mark.engine
def test_some_answers_are_counted_anew_by_a_tokenizer(accuracy_python: Path, tmp_path: Path) -> None:
    process = start_process(accuracy_python, "-c", COUNT, str(tmp_path), json.dumps(TEXTS), cwd=tmp_path)
    told, problem = process.communicate(timeout=60)
    assert process.returncode == 0, problem
    assert json.loads(told) == {"source": "tokenizer", "texts": 2, "told": 5, "counted": 5}


def test_a_tokenizer_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    assert "problem" in recount(TEXTS, str(tmp_path))


def test_some_answers_are_counted_anew_by_the_server() -> None:
    async def words(text: str) -> int | None:
        return len(text.split())

    async def silent(_: str) -> int | None:
        return None

    told = asyncio.run(recount_at_server(TEXTS, words))
    assert told == {"source": "server", "texts": 2, "told": 5, "counted": 5}
    assert asyncio.run(recount_at_server(TEXTS, silent)) is None


def test_a_clock_that_is_set_is_noticed() -> None:
    now = [100.0]
    ahead = [1e9]
    clock = WallClock(lambda: now[0], lambda: now[0] + ahead[0])
    for _ in range(10):
        now[0] += 0.5
        ahead[0] += 0.0005  # a slew by NTP does not count as a step
        clock.look()
    assert clock.set_by_s == []
    ahead[0] -= 3.2
    clock.look()
    clock.look()
    assert clock.set_by_s == [-3.2]


def test_new_prompts_and_those_that_come_again_are_told_apart() -> None:
    recorder = SampleRecorder()
    for slot in range(60):
        index, start = slot % 30, float(slot)
        recorder.issued(start, [index])
        recorder.first_token[slot] = start + (0.5 if 5 <= slot < 30 else 0.1)
        recorder.completed(start + 1, [slot], [8])
    found = recorder.repeats(seen=5)
    assert found is not None
    assert (found["first"], found["again"]) == (25, 35)
    assert math.isclose(found["first_s"], 0.5)
    assert math.isclose(found["again_s"], 0.1)
    assert recorder.repeats(seen=20) is None
