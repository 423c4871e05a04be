"""Replies that contradict themselves, and the share of them that makes a result unusable."""

from __future__ import annotations

from typing import Any

import pytest

from parsers.replies import Replies, judge

SUMS = {"replies": 100, "tokens": 1000, "text_bytes": 4000, "streamed_tokens": 1000, "parts": 1000}


def judged(**parts: Any) -> tuple[list[str], int]:
    """Return the codes that make the result unusable, and the number of warnings."""
    found = judge(Replies(**{"sums": SUMS, **parts}))
    return [reason.code for reason in found.reasons], len(found.warnings)


def test_nothing_noted_is_nothing_said() -> None:
    assert judged() == ([], 0)
    assert judged(sums={}, counts={"blank": 3}) == ([], 0)


@pytest.mark.parametrize(
    ("name", "count", "spoils", "warns"),
    [
        ("text_after_end", 1, True, False),
        ("no_model", 100, False, True),
        ("blank", 50, True, False),
        ("blank", 2, False, True),
        ("burst", 25, True, False),
        ("burst", 6, False, True),
        ("burst", 4, False, False),
        ("shared_text", 30, True, False),
        ("shared_text", 2, False, True),
        ("paused", 30, False, False),
        ("paused", 60, False, True),
        ("halted", 60, False, True),
        ("same_id", 1, False, True),
        ("same_id", 3, True, False),
        ("same_created", 3, True, False),
        ("created_before", 100, False, True),
        ("retried", 1, False, True),
        ("doubled", 30, True, False),
        ("doubled", 2, False, True),
        ("gathered", 30, False, True),
        ("little_text", 5, False, True),
        ("hidden_tokens", 100, False, True),
        ("logprobs", 100, False, True),
        ("timed_rate", 1, True, False),
        ("worked_shorter", 100, False, True),
        ("prompts_cut", 3, False, True),
        ("more_parts", 1, True, False),
        ("echo", 40, False, False),
    ],
)
def test_how_many_replies_spoil_a_result(
    name: str,
    count: int,
    spoils: bool,  # noqa: FBT001
    warns: bool,  # noqa: FBT001
) -> None:
    assert judged(counts={name: count}) == ([name] * spoils, int(warns))


def test_the_message_says_how_many_and_gives_an_example() -> None:
    (reason,) = judge(
        Replies(counts={"other_model": 3}, sums=SUMS, examples={"other_model": "tiny-draft"})
    ).reasons
    assert reason.message == (
        "3 of 100 replies name a model other than the requested one (such as 'tiny-draft')"
    )


@pytest.mark.parametrize("name", ["paused_blank", "paused_alike"])
def test_two_pauses_of_a_busy_host_are_no_pattern(name: str) -> None:
    few = {**SUMS, "replies": 2}
    assert judged(counts={name: 2}, sums=few)[0] == []
    assert judged(counts={name: 2}, sums=few)[1] >= 1
    assert name in judged(counts={name: 3}, sums={**SUMS, "replies": 3})[0]


@pytest.mark.parametrize(("count", "expected"), [(60, (["paused_alike"], 0)), (40, ([], 1)), (20, ([], 0))])
def test_a_pause_is_told_once(count: int, expected: tuple[list[str], int]) -> None:
    assert judged(counts={"paused": count, "paused_alike": count}) == expected


@pytest.mark.parametrize(
    ("told", "counted", "expected"),
    [
        (1000, 950, ([], 0)),
        (1000, 700, ([], 1)),
        (1000, 500, (["recount"], 0)),
        (500, 1000, (["recount"], 0)),
        (10, 1, ([], 0)),
    ],
)
def test_tokens_that_are_counted_a_second_time(
    told: int, counted: int, expected: tuple[list[str], int]
) -> None:
    recount = {"source": "tokenizer", "texts": 16, "told": told, "counted": counted}
    assert judged(recount=recount) == expected


@pytest.mark.parametrize(
    ("told", "texts", "counted", "expected"),
    [
        (64, 16, 53, ([], 0)),
        (64, 16, 64, ([], 0)),
        (64, 4, 49, ([], 1)),
        (128, 16, 60, (["recount"], 0)),
        (64, 16, 80, ([], 1)),
    ],
)
def test_one_token_of_each_answer_proves_nothing(
    told: int, texts: int, counted: int, expected: tuple[list[str], int]
) -> None:
    assert judged(recount={"texts": texts, "told": told, "counted": counted}) == expected


@pytest.mark.parametrize(
    ("sums", "expected"),
    [
        ({"text_bytes": 900}, (["text_per_token"], 0)),
        ({"text_bytes": 1500}, ([], 1)),
        ({"text_bytes": 13000}, ([], 1)),
        ({"parts": 500}, ([], 1)),
        ({"counted_parts": 1000, "blank_parts": 600}, (["blank_parts"], 0)),
        ({"counted_parts": 1000, "blank_parts": 300}, ([], 1)),
        ({"blank_parts": 600}, (["blank_parts"], 0)),
        ({"blank_parts": 400}, ([], 1)),
        ({"blank_parts": 300}, ([], 0)),
        ({"prompt_tokens": 10, "prompt_chars": 1000}, ([], 1)),
    ],
)
def test_text_tokens_and_parts_must_fit(sums: dict[str, int], expected: tuple[list[str], int]) -> None:
    assert judged(sums={**SUMS, **sums}) == expected


def test_a_tokenizer_that_cannot_be_read_is_told() -> None:
    assert judged(recount={"problem": "no such file"}) == ([], 1)


@pytest.mark.parametrize(("first_s", "warned"), [(0.5, True), (0.15, False), (0.03, False)])
def test_prompts_that_come_again_and_are_answered_sooner(first_s: float, warned: bool) -> None:  # noqa: FBT001
    assert judged(repeats={"first_s": first_s, "again_s": 0.1 if first_s > 0.1 else 0.014}) == (
        [],
        int(warned),
    )


@pytest.mark.parametrize(("paused", "warnings"), [(1, 0), (2, 0), (3, 1)])
def test_a_pause_of_one_reply_among_few_is_no_pattern(paused: int, warnings: int) -> None:
    found = judge(Replies(counts={"paused": paused}, sums={"replies": 2 * paused}))
    assert (len(found.reasons), len(found.warnings)) == (0, warnings)
