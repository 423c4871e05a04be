"""Finds contradictions in a server's replies, and judges which of them make a result INVALID.

A client counts oddities while it measures (``counts``), and adds up tokens, parts and bytes (``sums``). A
server's own statements are never trusted alone: the stream, the usage, the model's name, the times and the
answers to other prompts must fit together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.core.records import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# For a single reply; the harness has the same in reply_log.py, because it cannot import this module.
ENOUGH_TOKENS = 8
ENOUGH_FOR_PACE = 16
LEAST_S_PER_TOKEN = 20e-6
LONG_PAUSE_S = 0.02
MOSTLY = 0.5
FIRST_PARTS = 4
GATHERED_SHARE, GATHERED_S_PER_TOKEN = 0.95, 150e-6
SLACK_S, SLACK_SHARE = 0.01, 1.1


_PER_CENT = 0.01
_LEAST_BYTES_PER_TOKEN = (1.0, 2.0)
_MOST_BYTES_PER_TOKEN = 12.0
_MOST_TOKENS_PER_PART = 1.5
_BLANK_PARTS = (0.5, 0.2)
_BLANK_STREAM = (0.5, 0.35)
_MOST_CHARS_PER_PROMPT_TOKEN = 15.0
_RECOUNT = (1.8, 1.2)
_RECOUNT_TOKENS = 64
_ENOUGH = 64
_CACHED = 2.0
_CACHED_S = 0.02


@dataclass(frozen=True)
class _Oddity:
    """One kind of contradiction.

    Args:
        text: the predicate of a sentence about the affected replies.
        remedy: the remedy.
        invalid_from: the share of replies that makes the result INVALID; 0 for any; above 1 for never.
        warned_from: the share of replies that gives a warning; 0 for any; above 1 for never.
        fewest: the number of replies that shows a pattern; fewer give a warning at most, or nothing if the
            oddity never makes a result INVALID.
    """

    text: str
    remedy: str
    invalid_from: float = 0.0
    warned_from: float = 0.0
    fewest: int = 1


_NEVER = 2.0
_PATTERN = 3
"""Number of replies with a pause that a busy host does not make by chance."""
_ODDITIES: Mapping[str, _Oddity] = {
    "other_model": _Oddity(
        "name a model other than the requested one",
        "see which model answers, and whether a router stands between"
    ),
    "models": _Oddity("name two models", "see whether a router stands between client and engine"),
    "no_model": _Oddity("name no model", "use a server that names the model in each reply", _NEVER),
    "choices": _Oddity(
        "contain a choice that was not requested: tokens of both are counted",
        "remove n and best_of from the request"
    ),
    "text_after_end": _Oddity(
        "continue after the end of their stream: only a part of the answer was timed",
        "see why the server sends [DONE] before the last token",
    ),
    "text_after_finish": _Oddity(
        "continue after their finish_reason: two answers may have been joined",
        "see whether a router stands between client and engine",
    ),
    "early_finish": _Oddity(
        "give a finish_reason from their first part on, so that nothing shows where the answer ends",
        "use a server that gives a finish_reason only at the end", _NEVER,
    ),
    "finishes": _Oddity(
        "give two different finish_reasons: two answers may have been joined",
        "see whether a router stands between client and engine",
    ),
    "usage_after_end": _Oddity(
        "count other tokens after the end of their stream than before", "see how the server counts tokens"
    ),
    "data_after_end": _Oddity(
        "send further data after the end of their stream",
        "see whether a proxy joins streams or ends them twice", _NEVER,
    ),
    "ids": _Oddity(
        "change their id within the stream: the parts belong to different answers",
        "see whether a router stands between client and engine",
    ),
    "id_of_each_part": _Oddity(
        "give each part another id, so that nothing shows which parts belong together",
        "use a server that gives all parts of an answer one id", _NEVER,
    ),
    "builds": _Oddity(
        "name two builds of the server, or two providers",
        "see whether a router stands between client and engine", _NEVER,
    ),
    "other_build": _Oddity(
        "come from another build of the server, or another provider, than the reply before",
        "see whether a router stands between client and engine", _NEVER,
    ),
    "created_falls": _Oddity(
        "name times of creation that run backwards: parts of different answers may have been joined",
        "see whether the server's clock was set, or a router stands between", _PER_CENT,
    ),
    "usage_differs": _Oddity(
        "count more tokens from one statement to the next, without any text between",
        "see how the server counts tokens",
    ),
    "prompt_differs": _Oddity(
        "count their prompt differently from one part to the next", "see whether the server cuts prompts"
    ),
    "total_tokens": _Oddity(
        "give a total that is not the sum of prompt and answer: some tokens may be hidden",
        "see how the server counts tokens", _NEVER,
    ),
    "hidden_tokens": _Oddity(
        "count tokens that they do not show: of hidden reasoning, or of a rejected draft",
        "switch reasoning and predictions off, or let the server send all text that it counts", _NEVER,
    ),
    "logprobs": _Oddity(
        "contain the probabilities of more or fewer tokens than they count",
        "see how the server counts tokens", _NEVER,
    ),
    "usage_falls": _Oddity("count fewer tokens at their end than before", "see how the server counts tokens"),
    "token_ids": _Oddity("contain more or fewer token ids than they count", "see how the server counts"),
    "timed_tokens": _Oddity(
        "count tokens differently in their timings and in their usage", "see how the server counts tokens"
    ),
    "unfinished": _Oddity(
        "give no finish_reason: nothing shows that the answer is complete",
        "see the server's log for requests it ended"
    ),
    "withheld": _Oddity(
        "contain text other than the answer", "switch filters and tools off: only the answer must be measured"
    ),
    "short_of_length": _Oddity(
        "report that the length is reached, with fewer tokens than requested",
        "raise the server's context and its own limit of tokens",
    ),
    "too_long": _Oddity("count more tokens than were requested", "see how the server counts tokens"),
    "prompt_tokens": _Oddity(
        "count more or fewer prompt tokens than were sent: the prompt was truncated or changed",
        "raise the server's context, and switch chat templates off",
    ),
    "prompt_varies": _Oddity(
        "count the same prompt differently from one time to the next", "see whether the server cuts prompts"
    ),
    "prompts_cut": _Oddity(
        "have the same, largest number of prompt tokens, though their prompts' lengths differ: the prompts "
        "may have been cut",
        "raise the server's context", _NEVER,
    ),
    "more_parts": _Oddity(
        "have more parts of text than tokens", "see how the server counts tokens", _PER_CENT
    ),
    "blank": _Oddity(
        "count tokens but contain only blanks", "read some answers: is it the intended model?",
        0.5, _PER_CENT,
    ),
    "error_text": _Oddity(
        "contain an error in place of an answer", "see the server's log", _PER_CENT
    ),
    "shared_text": _Oddity(
        "repeat the answer to another prompt, word for word", "look for a cache, or a stand-in for the model",
        0.25, _PER_CENT,
    ),
    "echo": _Oddity("repeat their prompt", "read some answers: is there a model at all?", _NEVER, 0.5),
    "one_word": _Oddity("repeat one word", "read some answers: are they the model's?", _NEVER, 0.5),
    "doubled": _Oddity(
        "contain each part of the answer twice: half of the tokens are copies",
        "see whether a proxy repeats what the server sends", 0.25, _PER_CENT,
    ),
    "little_text": _Oddity(
        "have fewer bytes of text than tokens: some tokens may not have been computed",
        "read these answers, and see how the server counts tokens", _NEVER, 0.05,
    ),
    "worked_longer": _Oddity(
        "claim to have been computed for longer than they took",
        "see whether the answer was stored", _PER_CENT,
    ),
    "too_fast": _Oddity(
        "came faster than any machine computes",
        "look for a cache or a stand-in for the model",
        _PER_CENT,
    ),
    "burst": _Oddity(
        "came with all tokens at once: the time per token is unknown",
        "let the server stream each token, and see that no proxy gathers them", 0.25, 0.05,
    ),
    "timed_rate": _Oddity(
        "name a rate of tokens that does not fit the time that they name",
        "see whether a proxy changed the reply", _PER_CENT,
    ),
    "worked_shorter": _Oddity(
        "claim to have been computed in less than half the time that they were streamed",
        "do not use the server's own timings: see whether its clock is right", _NEVER, 0.25,
    ),
    "gathered": _Oddity(
        "came with all tokens close together at their end: a proxy may have waited for the whole answer",
        "let the proxy pass each token on", _NEVER, 0.25,
    ),
    "paused_blank": _Oddity(
        "begin with a blank and a pause before the first word: the first token is not the answer's",
        "see what the server sends first", 0.05, _PER_CENT, _PATTERN,
    ),
    "paused_alike": _Oddity(
        "begin with the same words and a pause before the next: the first token is not the answer's",
        "see what the server sends first", 0.5, 0.25, _PATTERN,
    ),
    "paused": _Oddity(
        "pause after their first token for most of their time",
        "see what the server does there", _NEVER, 0.5, _PATTERN,
    ),
    "halted": _Oddity(
        "pause after their first words for most of their time",
        "see what the server does there", _NEVER, 0.5, _PATTERN,
    ),
    "same_id": _Oddity(  # Ollama draws ids from 999 numbers
        "have the id of an earlier reply to the same prompt: they were stored",
        "switch off the cache that stores replies", _PER_CENT, _PER_CENT, _PATTERN,
    ),
    "same_created": _Oddity(
        "were created at the same second as an earlier reply to the same prompt, though they were requested "
        "later: they were stored",
        "switch off the cache that stores replies", _PER_CENT, 0.0, _PATTERN,
    ),
    "created_before": _Oddity(
        "name a time of creation before their request: they may have been stored",
        "switch off the cache that stores replies, or set the server's clock", _NEVER,
    ),
    "retried": _Oddity(
        "come from a gateway that tried before without success: failures are hidden, and another model may "
        "have answered",
        "ask the server itself, not a gateway", _NEVER,
    ),
    "stored": _Oddity("come from a cache between client and server", "ask the server itself, not a proxy"),
}  # fmt: skip


@dataclass(frozen=True)
class Replies:
    """Counts and sums that a client recorded.

    Args:
        counts: replies with an oddity, by its name.
        sums: ``replies``, ``tokens``, ``text_bytes``; ``streamed_tokens`` and ``parts`` of streamed replies;
            ``blank_parts`` among them; ``counted_parts`` of those whose parts had to be counted;
            ``prompt_tokens`` and ``prompt_chars``.
        examples: an example of an oddity, by its name.
        recount: ``told`` and ``counted`` tokens of some answers, and the ``source`` of the count; or the
            ``problem`` that prevented it.
        repeats: ``first_s`` and ``again_s``: the median wait for new and for repeated prompts.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    sums: Mapping[str, float] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    recount: Mapping[str, Any] = field(default_factory=dict)
    repeats: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Judgement:
    """Result of judging the replies.

    Args:
        reasons: reasons why the result is INVALID.
        warnings: doubts about the result.
    """

    reasons: tuple[Reason, ...] = ()
    warnings: tuple[str, ...] = ()


def judge(replies: Replies) -> Judgement:
    """Judge whether the replies make a result INVALID or doubtful."""
    found = [*_odd(replies), *_ratios(replies)]
    return Judgement(
        tuple(Reason(text, remedy, code=code) for code, text, remedy, spoils in found if spoils),
        tuple(f"{text}; {remedy}" for _, text, remedy, spoils in found if not spoils),
    )


_Found = tuple[str, str, str, bool]
"""The code, the text, the remedy, and True if it makes the result INVALID."""


def _odd(replies: Replies) -> Iterator[_Found]:
    total = replies.sums.get("replies", 0)
    known = (name for name in _ODDITIES if replies.counts.get(name))
    for name in known if total else ():
        oddity, count = _ODDITIES[name], replies.counts[name]
        share = count / total
        alike = replies.counts.get("paused_alike", 0) / total
        if name in {"paused", "halted"} and alike >= _ODDITIES["paused_alike"].invalid_from:
            continue
        if oddity.invalid_from == _NEVER and count < oddity.fewest:
            continue
        if share >= min(oddity.invalid_from, oddity.warned_from):
            example = replies.examples.get(name)
            said = f" (such as {example!r})" if example else ""
            yield (
                name,
                f"{count:.0f} of {total:.0f} replies {oddity.text}{said}",
                oddity.remedy,
                share >= oddity.invalid_from and count >= oddity.fewest,
            )


def _ratios(replies: Replies) -> Iterator[_Found]:
    sums = replies.sums
    tokens, size = sums.get("tokens", 0), sums.get("text_bytes", 0)
    few, little = _LEAST_BYTES_PER_TOKEN
    if tokens >= _ENOUGH and replies.counts.get("blank", 0) < sums.get("replies", 0) / 2:
        each = size / tokens
        text = f"a token that the server counts has {each:.2g} bytes of text on average"
        if each < little:
            yield (
                "text_per_token",
                f"{text}: it counts too many",
                "see how the server counts tokens",
                each < few,
            )
        elif each > _MOST_BYTES_PER_TOKEN:
            yield "text_per_token", f"{text}: it may count too few", "see how the server counts tokens", False
    streamed, parts = sums.get("streamed_tokens", 0), sums.get("parts", 0)
    if parts and streamed / parts > _MOST_TOKENS_PER_PART:
        text = f"a part of the stream has {streamed / parts:.2g} tokens on average"
        yield (
            "tokens_per_part",
            f"{text}: it is a bundle, or the server counts too many",
            "let the server stream each token (vLLM: --stream-interval 1)",
            False,
        )
    if parts and replies.counts.get("blank", 0) < sums.get("replies", 0) / 2:
        blank, is_counted = sums.get("blank_parts", 0) / parts, sums.get("counted_parts", 0) > 0
        most, many = _BLANK_PARTS if is_counted else _BLANK_STREAM
        if blank > many:
            yield (
                "blank_parts",
                f"{blank:.0%} of the parts of the streams are blanks",
                "let the server report its usage" if is_counted else "see what the server sends as tokens",
                blank > most,
            )
    prompt = sums.get("prompt_tokens", 0)
    if prompt and sums.get("prompt_chars", 0) / prompt > _MOST_CHARS_PER_PROMPT_TOKEN:
        text = f"a prompt token has {sums['prompt_chars'] / prompt:.2g} characters on average"
        yield (
            "prompt_chars",
            f"{text}: the prompts may have been cut",
            "raise the server's context",
            False,
        )
    yield from _recounted(replies.recount)
    first_s, again_s = replies.repeats.get("first_s", 0.0), replies.repeats.get("again_s", 0.0)
    if first_s > _CACHED * again_s and first_s - again_s > _CACHED_S:
        text = f"repeated prompts wait {again_s:.3g} s, new prompts {first_s:.3g} s"
        yield (
            "repeats",
            f"{text}: a cache may be at work that the server does not report",
            "switch prefix caching off, or use samples that do not repeat",
            False,
        )


def _recounted(recount: Mapping[str, Any]) -> Iterator[_Found]:
    if problem := recount.get("problem"):
        yield (
            "recount",
            f"the tokens could not be counted a second time: {problem}",
            "correct tokenizer",
            False,
        )
        return
    told, counted = recount.get("told", 0), recount.get("counted", 0)
    if told < _RECOUNT_TOKENS or not counted:
        return
    # One token of each answer proves nothing: the token that ends an answer has no text, and a model may
    # write as two tokens what a tokenizer reads as one, such as two line ends.
    least = min(max(counted, told - recount.get("texts", 0)), told)
    ratio = max(least / counted, counted / least)
    spoils, doubtful = _RECOUNT
    if ratio >= doubtful:
        who = "the server's own tokenizer" if recount.get("source") == "server" else "the model's tokenizer"
        yield (
            "recount",
            f"the server counts {told} tokens in {recount.get('texts')} answers, {who} {counted}",
            "see how the server counts tokens, and whether the tokenizer is the model's",
            ratio >= spoils,
        )
