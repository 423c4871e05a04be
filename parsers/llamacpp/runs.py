"""Tells the runs apart that one log holds, as ``tee -a`` and ``>>`` leave them behind each other."""

from __future__ import annotations

import re

from agent.core.errors import ParseError

_TIMINGS = r"(?:timings|llama_perf\w*|common_perf_print):\s+"
# What one run of a tool writes once. A second one of a kind begins another run.
_MARKS = re.compile(
    r"^.*(?:"
    r"(?P<build>main: build = \d|(?:(?<=I )|^)build: \d+ \()"
    r"|(?P<begin>perplexity: tokenizing the input|\w{1,40}_score\s*: (?:loaded \d|there are \d))"
    r"|(?P<head>calculating perplexity over|computing over \d|calculating \w{1,40} score over|: quantizing ')"
    r"|(?P<tasks>^task[ \t]+acc_norm)"
    r"|(?P<final>Final (?:estimate|result|Winogrande score))"
    r"|(?P<statistics>=====+ (?:Perplexity statistics|KL-divergence statistics))"
    rf"|(?P<load>{_TIMINGS}load time =)|(?P<total>{_TIMINGS}total time =)"
    r"|(?P<quantized>: +quantize time =)"
    r")",
    re.MULTILINE,
)


def split_runs(text: str) -> list[str]:
    """Return the text of each run.

    Args:
        text: a log of any of the tools; one without a result is one run.
    """
    starts, seen = [0], set[str | None]()
    for match in _MARKS.finditer(text):
        if match.lastgroup in seen:
            starts.append(match.start())
            seen = set()
        seen.add(match.lastgroup)
    ends = [*starts[1:], len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def one(pattern: re.Pattern[str], text: str, what: str) -> re.Match[str] | None:
    """Return the only match in a text; None if there is none.

    Raises:
        ParseError: if there are several: which of them is the result cannot be known.
    """
    found = list(pattern.finditer(text))
    if len(found) > 1:
        raise ParseError(
            f"it holds {len(found)} lines with a {what}", remedy="give each run a log of its own"
        )
    return found[0] if found else None
