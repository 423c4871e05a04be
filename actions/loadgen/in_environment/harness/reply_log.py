"""Count contradictions within replies: recorded cheaply for each reply, judged after the test.

The counters' names are those of ``parsers.replies``, which knows how many of each spoil a result.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .completion import is_blank, whole_characters
from .endpoint import is_like

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .completion import CompletionReader
    from .dataset import Sample

_ENOUGH_TOKENS = 8
"""Minimum number of tokens for comparing the times or texts of replies."""
_ENOUGH_FOR_PACE = 16
"""Minimum number of tokens for judging the pace: with fewer, a busy client may see all of them at once."""
_LEAST_S_PER_TOKEN = 20e-6
"""Lower bound of seconds per token of one answer: makers claim 17,000 tokens/s at most (Taalas, 2026)."""
_LONG_PAUSE_S = 0.02
_MOSTLY = 0.5
_SLACK_S = 0.01
_SLACK_SHARE = 1.1
_FIRST_PARTS = 4
"""The share of an answer's tokens, as a divisor, within which a pause counts as one after the first words."""
_GATHERED_SHARE = 0.95
_GATHERED_S_PER_TOKEN = 150e-6
"""A proxy that waits for a whole answer sends its parts faster than this, after this share of the time."""
_WORDS_OF_LOOP = 8
_DATE_SLACK_S = 60.0
_CREATED_SLACK_S = 2.0
_DISTINCT_TIMES = 4
"""Minimum number of different times of creation that show that a server tells the time."""
_CUT_PROMPTS = 3
_CUT_SHARE = 0.05
_CUT_RATIO = 1.5
"""Prompts with the same, largest number of tokens may have been cut if their lengths differ by this."""
_WITHHELD = frozenset({"content_filter", "tool_calls", "function_call"})
_KEPT_TEXTS = 64
_SHOWN = 60
_ECHO_CHARS = (12, 64)
_ERROR = re.compile(
    r"\s*(\{\s*\"(error|detail)\"|<html|error\b\s*[:\d(]|(an )?internal (server )?error|traceback \(most|"
    r"cuda (error|out of memory)|out of memory|rate limit|too many requests|service unavailable)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Reply:
    """A complete reply; times are of ``perf_counter``.

    Args:
        index: the sample's index in the data set.
        reader: the reply's content.
        data: the reply's text, as bytes.
        tokens: its output tokens.
        source: the method by which they were counted.
        sent: time of sending the request.
        moments: arrivals of bytes with text, each with the number of parts so far: the first ones, and the
            last one; empty if the reply is not streamed, or has no text.
        ended: time at which the answer was complete.
    """

    index: int
    reader: CompletionReader
    data: bytes
    tokens: int
    source: str
    sent: float
    moments: tuple[tuple[float, int], ...]
    ended: float


class ReplyLog:
    """Counts signs that no honest reply has, and signs that few have.

    Args:
        samples: the data set.
        models: the names of the requested model.
        max_tokens: output tokens requested, unless a sample sets its own number.
        distinct: True if answers to different prompts must differ; short answers to questions need not.
    """

    def __init__(
        self, samples: Sequence[Sample], models: Iterable[str], max_tokens: int, *, distinct: bool
    ) -> None:
        self._samples = samples
        self._names = dict.fromkeys(models, True)
        self._max_tokens = max_tokens
        self._distinct = distinct
        self._seen: dict[int, tuple[int | None, str | None, float | None, float]] = {}
        """Prompt tokens, id, time of creation and end of the first reply to each sample."""
        self._created_s: set[float] = set()
        """Some of the times of creation."""
        self._date = "", 0.0
        """The last Date header, and its seconds since 1970."""
        self._owners: dict[int, int] = {}
        """Sample to which a text, by its hash, was the first answer."""
        self._build: str | None = None
        self._some_id: str | None = None
        self._ids_differ = False
        self._first_parts: Counter[str] = Counter()
        self._random = random.Random(1)  # noqa: S311 - a choice of texts, not a secret
        self.kept: list[tuple[str, int]] = []
        """Some answers with their tokens; each reply has the same chance of being chosen."""
        self.counts: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.recount: dict[str, Any] | None = None
        """Result of counting the kept answers with a tokenizer, from ``recount``."""
        self._tokens: list[int] = []
        """Minimum and maximum number of tokens of a reply."""

    def as_json(self) -> dict[str, Any]:
        """Return the counters as stored in ``harness_result.json``."""
        counts = dict(self.counts)
        if not self._ids_differ:
            counts.pop(
                "same_id", None
            )  # an engine that does not number replies gives no information by equal ids
        if len(self._created_s) < _DISTINCT_TIMES:
            counts.pop("same_created", None)  # a server that does not tell the time
        if cut := self._cut_prompts():
            counts["prompts_cut"] = cut
        if self._first_parts and len(self._seen) > 1:
            most = max(self._first_parts.values())
            counts["paused_alike"] = most if most > 1 else 0
        return {
            "counts": counts,
            "sums": dict(self.sums),
            "examples": self.examples,
            "tokens_min": min(self._tokens, default=None),
            "tokens_max": max(self._tokens, default=None),
            "recount": self.recount,
        }

    def note(self, reply: Reply) -> None:
        """Record a reply."""
        sums, tokens, reader = self.sums, reply.tokens, reply.reader
        sums["replies"] += 1
        sums["tokens"] += tokens
        sums["text_bytes"] += len(reply.data)
        if not self._tokens:
            self._tokens = [tokens, tokens]
        elif tokens < self._tokens[0]:
            self._tokens[0] = tokens
        elif tokens > self._tokens[1]:
            self._tokens[1] = tokens
        reader.check_counts()
        for name in reader.oddities:
            self.count(name, reader.reply_id or "")
        if reader.build != self._build and reader.build is not None:
            if self._build is not None:
                self.count("other_build", f"{reader.build} after {self._build}")
            self._build = reader.build
        self._note_said(reply.index, reader, tokens)
        self._note_prompt(reply)
        self._note_created(reply)
        self._note_parts(reply)
        self._note_text(reply)
        self._note_times(reply)

    def count(self, name: str, example: str = "") -> None:
        """Count one case, and keep the first as an example."""
        self.counts[name] += 1
        if example and name not in self.examples:
            self.examples[name] = whole_characters(example[:_SHOWN])

    def _note_said(self, index: int, reader: CompletionReader, tokens: int) -> None:
        model, finish = reader.model, reader.finish_reason
        most = self._samples[index].max_output_tokens or self._max_tokens
        if model is None:
            self.count("no_model")
        elif not self._is_asked(model):
            self.count("other_model", model)
        if finish is None:
            self.count("unfinished")
        elif finish in _WITHHELD:
            self.count("withheld", finish)
        elif finish == "length" and tokens < most:
            self.count("short_of_length", f"{tokens} of {most} tokens")
        if tokens > most:
            self.count("too_long", f"{tokens} tokens, {most} were requested")

    def _is_asked(self, model: str) -> bool:
        known = self._names.get(model)
        if known is None:
            known = any(is_like(model, name) for name, is_asked in self._names.items() if is_asked)
            self._names[model] = known
        return known

    def _note_prompt(self, reply: Reply) -> None:
        index, reader = reply.index, reply.reader
        told, reply_id = reader.input_tokens, reader.reply_id
        if told is not None:
            sample = self._samples[index]
            if sample.tokens and told != len(sample.tokens):
                self.count("prompt_tokens", f"{told} of {len(sample.tokens)} tokens")
            elif sample.prompt and not sample.tokens:
                self.sums["prompt_tokens"] += told
                self.sums["prompt_chars"] += len(sample.prompt)
        if reply_id != self._some_id:
            self._ids_differ = self._some_id is not None
            self._some_id = self._some_id or reply_id
        known = self._seen.get(index)
        if known is None:
            self._seen[index] = told, reply_id, reader.created_s, reply.ended
            return
        if told is not None and known[0] is not None and known[0] != told:
            self.count("prompt_varies", f"{known[0]}, then {told} tokens")
        if reply_id is not None and known[1] == reply_id:
            self.count("same_id", reply_id)

    def _note_created(self, reply: Reply) -> None:
        """Record a reply that was created before it was requested: a stored one."""
        created_s, date = reply.reader.created_s, reply.reader.date
        if created_s is None:
            return
        if len(self._created_s) < _DISTINCT_TIMES:
            self._created_s.add(created_s)
        _, _, first_s, ended = self._seen[reply.index]
        if created_s == first_s and reply.sent > ended + _CREATED_SLACK_S:
            self.count("same_created", f"{created_s:.0f}")
        if not date:
            return
        if date != self._date[0]:
            self._date = date, _seconds(date)
        early_s = self._date[1] - created_s
        if early_s > reply.ended - reply.sent + _DATE_SLACK_S:
            self.count("created_before", f"{early_s:.0f} s earlier")

    def _cut_prompts(self) -> int:
        """Return the number of prompts with the largest number of tokens if their lengths differ widely."""
        told = {index: seen[0] for index, seen in self._seen.items() if seen[0]}
        most = max(told.values(), default=0)
        lengths = [len(self._samples[index].prompt) for index, tokens in told.items() if tokens == most]
        are_many = len(lengths) >= max(_CUT_PROMPTS, _CUT_SHARE * len(told))
        return len(lengths) if are_many and max(lengths) > _CUT_RATIO * min(lengths) else 0

    def _note_parts(self, reply: Reply) -> None:
        """Add up the parts, and choose some texts to keep."""
        tokens, parts = reply.tokens, reply.reader.texts
        if reply.moments:
            self.sums["streamed_tokens"] += tokens
            self.sums["parts"] += len(parts)
            # A part that ends with a letter or a digit is visible.
            self.sums["blank_parts"] += sum(is_blank(part) for part in parts if not part[-1].isalnum())
        if reply.source == "chunks":
            self.sums["counted_parts"] += len(parts)
        elif len(parts) > tokens:
            self.count("more_parts", f"{len(parts)} parts of {tokens} tokens")
        if len(self.kept) < _KEPT_TEXTS:
            self.kept.append((reply.reader.text, tokens))
        elif (place := int(self._random.random() * self.sums["replies"])) < _KEPT_TEXTS:
            self.kept[place] = reply.reader.text, tokens

    def _note_text(self, reply: Reply) -> None:
        text, tokens = reply.reader.text, reply.tokens
        if not tokens:
            return
        if is_blank(text):
            self.count("blank")
        elif _ERROR.match(text):
            self.count("error_text", text)
        elif self._distinct and tokens >= _ENOUGH_TOKENS:
            self._compare(reply.index, text)
            if tokens >= _ENOUGH_FOR_PACE and len(reply.data) < tokens:
                self.count("little_text", f"{tokens} tokens, {len(reply.data)} bytes: {text}")
            if is_doubled(reply.reader.texts if reply.moments else text.split()):
                self.count("doubled", text)

    def _compare(self, index: int, text: str) -> None:
        """Record an answer that equals another one or the prompt, or repeats one word."""
        sample = self._samples[index]
        owner = self._owners.setdefault(hash(text), index)
        if owner != index:
            other = self._samples[owner]
            if (other.prompt, other.tokens) != (sample.prompt, sample.tokens):
                self.count("shared_text", text)
        least, most = _ECHO_CHARS
        begin = text.lstrip()[: min(most, len(sample.prompt))]
        if len(begin) >= least and begin in sample.prompt:
            self.count("echo", begin)
        words = text.split()
        if len(words) >= _WORDS_OF_LOOP and len(set(words)) * _WORDS_OF_LOOP <= len(words):
            self.count("one_word", text)

    def _note_times(self, reply: Reply) -> None:
        took_s, tokens, timings = reply.ended - reply.sent, reply.tokens, reply.reader.timings
        if timings:
            worked_s = (timings.get("prompt_ms", 0.0) + timings.get("predicted_ms", 0.0)) / 1000
            if worked_s > took_s * _SLACK_SHARE + _SLACK_S:
                self.count("worked_longer", f"{worked_s:.3g} s of {took_s:.3g} s")
        if tokens < _ENOUGH_TOKENS:
            return
        least_s = tokens * _LEAST_S_PER_TOKEN
        if took_s < least_s:
            self.count("too_fast", f"{tokens} tokens in {took_s * 1e3:.3g} ms")
        if not reply.moments or tokens < _ENOUGH_FOR_PACE:
            return
        self.sums["streamed"] += 1
        first, last = reply.moments[0][0], reply.moments[-1][0]
        streamed_s = last - first
        if len(reply.moments) == 1 or streamed_s < least_s:
            self.count("burst", f"{tokens} tokens within {streamed_s * 1e3:.3g} ms")
        elif streamed_s < tokens * _GATHERED_S_PER_TOKEN and first - reply.sent > _GATHERED_SHARE * took_s:
            self.count("gathered", f"{tokens} tokens within {streamed_s * 1e3:.3g} ms of {took_s:.3g} s")
        else:
            self._note_pause(reply)

    def _note_pause(self, reply: Reply) -> None:
        """Record a pause after the first words for most of the stream's time."""
        streamed_s = reply.moments[-1][0] - reply.moments[0][0]
        long_s = max(_LONG_PAUSE_S, _MOSTLY * streamed_s)
        for place, ((before, parts), (after, _)) in enumerate(pairwise(reply.moments)):
            if after - before <= long_s or (place and parts * _FIRST_PARTS > reply.tokens):
                continue
            begin = "".join(reply.reader.texts[:parts])
            kind = "paused_blank" if is_blank(begin) else "halted" if place else "paused"
            self.count(kind, f"{after - before:.3g} s of {streamed_s:.3g} s")
            if kind != "paused_blank":
                self._first_parts[begin] += 1


def is_doubled(parts: Sequence[str]) -> bool:
    """Return True if each part of an answer is sent twice."""
    end = len(parts) // 2 * 2
    if end < _ENOUGH_TOKENS or parts[0] != parts[1] or len(set(parts)) <= 2:  # noqa: PLR2004 - a loop
        return False
    return list(parts[0:end:2]) == list(parts[1:end:2])


def _seconds(date: str) -> float:
    """Return the seconds since 1970 of an HTTP date; 0 if it is not one."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return 0.0
