r"""A text in its decoded forms: percent, JSON and HTML escapes resolved, broken lines joined.

Each view maps back to its source text, so that matches in it can be masked there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_DEPTH = 3
"""How many times a text may be encoded, one code within another."""

_ESCAPE = re.compile(
    r"""(?P<percent>(?:%[0-9A-Fa-f]{2})+)
    | (?P<bytes>(?:\\x[0-9A-Fa-f]{2})+)
    | \\u(?P<high>[dD][89abAB][0-9A-Fa-f]{2})\\u(?P<low>[dD][c-fC-F][0-9A-Fa-f]{2})
    | \\u(?P<four>[0-9A-Fa-f]{4}) | \\u\{(?P<braces>[0-9A-Fa-f]{1,6})\} | \\U(?P<eight>[0-9A-Fa-f]{8})
    | (?P<octal>(?:\\[0-3][0-7]{2})+)
    | (?P<quote>'"'"'|'\\'')
    | \\(?P<letter>[abfnrtv])
    | \\(?P<plain>[^\w\r\n])
    | &\#(?P<decimal>[0-9]{1,7}); | &\#[xX](?P<hexadecimal>[0-9A-Fa-f]{1,6});
    | &(?P<name>amp|lt|gt|quot|apos);""",
    re.VERBOSE,
)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NAMES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}

_LINE_BREAK = re.compile(r"[ \t]{0,2}(?:[\\=]?(?:\r\n|\n|\r)[ \t]*)+")

_BROKEN = re.compile(r"[\r\n]")

_SEPARATOR = r"(?:[\s:,;-]{1,3}(?:0x|\\x)?|0x|\\x)?"
_SEPARATED_HEX = re.compile(r"(?:[0-9a-f]{2,8}(?:[\s:,;-]{1,3}(?:0x|\\x)?|0x|\\x)){2,}[0-9a-f]{2,8}")
_NO_HEX = re.compile(r"0x|\\x|[^0-9a-f]")


class TextView:
    """A text that was derived from another one.

    Args:
        text: the text.
        parent: its source; None for the text itself.
        pieces: for each part of it: its start, the start and end of the corresponding part of the parent, and
            True if it is a copy of that part.
        joined: True if line breaks were removed.
    """

    def __init__(
        self,
        text: str,
        parent: TextView | None = None,
        pieces: list[tuple[int, int, int, bool]] | None = None,
        *,
        joined: bool = False,
    ) -> None:
        self.text = text
        self.joined = joined
        self._parent = parent
        self._pieces = pieces or []
        self._starts = [piece[0] for piece in self._pieces]

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the position of a part of this text in the original text."""
        if self._parent is None:
            return start, end
        first = self._pieces[bisect_right(self._starts, start) - 1]
        last = self._pieces[bisect_right(self._starts, end - 1) - 1]
        start = first[1] + start - first[0] if first[3] else first[1]
        end = last[1] + end - last[0] if last[3] else last[2]
        return self._parent.origin(start, end)


def views(text: str) -> Iterator[TextView]:
    """Yield the text itself, and its forms after decoding or joining lines."""
    view: TextView | None = TextView(text)
    for _ in range(_DEPTH + 1):
        if view is None:
            return
        yield view
        if _BROKEN.search(view.text.rstrip()):
            joined = _rewritten(view, _LINE_BREAK, lambda match: [("", len(match[0]))], joined=True)
            if joined:
                yield joined
        escaped = any(mark in view.text for mark in ("%", "\\", "&", "'\"'\"'"))
        view = _rewritten(view, _ESCAPE, _decoded) if escaped else None


def decoded_forms(text: str) -> Iterator[str]:
    """Yield a text, and its forms after its escapes are decoded."""
    view: TextView | None = TextView(text)
    for _ in range(_DEPTH + 1):
        if view is None:
            return
        yield view.text
        view = _rewritten(view, _ESCAPE, _decoded)


def _rewritten(
    view: TextView,
    pattern: re.Pattern[str],
    replacement: Callable[[re.Match[str]], list[tuple[str, int]]],
    *,
    joined: bool = False,
) -> TextView | None:
    """Return the view with all matches of a pattern replaced, or None if nothing matches.

    Args:
        view: the view to rewrite.
        pattern: the pattern to replace.
        replacement: returns the characters for a match, each with the length that it represents.
        joined: True if the pattern removes line breaks.
    """
    source = view.text
    parts: list[str] = []
    pieces: list[tuple[int, int, int, bool]] = []
    length = done = 0
    for match in pattern.finditer(source):
        if match.start() > done:
            pieces.append((length, done, match.start(), True))
            parts.append(source[done : match.start()])
            length += match.start() - done
        at = match.start()
        for letters, width in replacement(match):
            if letters:
                pieces.append((length, at, at + width, False))
                parts.append(letters)
                length += len(letters)
            at += width
        done = match.end()
    if not done:
        return None
    if done < len(source):
        pieces.append((length, done, len(source), True))
        parts.append(source[done:])
    return TextView("".join(parts), view, pieces, joined=joined)


def _decoded(match: re.Match[str]) -> list[tuple[str, int]]:
    kind, text = match.lastgroup or "", match[0]
    if kind == "percent":
        return _of_bytes(bytes.fromhex(text.replace("%", "")), 3)
    if kind == "bytes":
        return _of_bytes(bytes.fromhex(text.replace("\\x", "")), 4)
    if kind == "octal":
        return _of_bytes(bytes(int(part, 8) for part in text.split("\\")[1:]), 4)
    return [(_letter(kind, match), len(text))]


def _letter(kind: str, match: re.Match[str]) -> str:
    if kind == "low":
        pair = (int(match["high"], 16), int(match["low"], 16))
        return chr(0x10000 + ((pair[0] - 0xD800) << 10) + (pair[1] - 0xDC00))
    if kind in {"four", "braces", "eight", "hexadecimal", "decimal"}:
        number = int(match[kind], 10 if kind == "decimal" else 16)
        return chr(number) if number < 0x110000 else "\ufffd"  # noqa: PLR2004 - the end of Unicode
    if kind == "quote":
        return "'"
    return {"letter": _LETTERS, "name": _NAMES}.get(kind, {}).get(match[kind], match[kind])


def _of_bytes(data: bytes, width: int) -> list[tuple[str, int]]:
    """Return the characters of some bytes in UTF-8, or else Latin-1, each ``width`` characters per byte."""
    try:
        letters = data.decode("utf-8")
    except UnicodeDecodeError:
        return [(chr(byte), width) for byte in data]
    return [(letter, width * len(letter.encode())) for letter in letters]


def separated_hex(lowered: str, codes: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield positions of hexadecimal bytes with separators, as ``xxd`` and ``openssl`` write them.

    Args:
        lowered: the text, in small letters.
        codes: the bytes, in small letters without separators.
    """
    for run in _SEPARATED_HEX.finditer(lowered):
        digits = _NO_HEX.sub("", run[0])
        for code in codes:
            if code in digits:
                pattern = re.compile(_SEPARATOR.join(code[at : at + 2] for at in range(0, len(code), 2)))
                yield from (match.span() for match in pattern.finditer(lowered, *run.span()))
