"""Splits a log into its runs; ``tee -a`` and ``>>`` append one run to another."""

from __future__ import annotations

import re

from agent.core.errors import ParseError

_TIMINGS = r"(?:timings|llama_perf\w*|common_perf_print):\s+"
# Lines that one run of a tool writes once. A second line of the same kind begins another run.
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
        text: a log of any of the tools; a log without a result counts as one run.
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
    """Return the only match in a text, or None if there is none.

    Raises:
        ParseError: if there are several, because it is unclear which one is the result.
    """
    found = list(pattern.finditer(text))
    if len(found) > 1:
        raise ParseError(
            f"it holds {len(found)} lines with a {what}", remedy="give each run a log of its own"
        )
    return found[0] if found else None
