r"""A text in its decoded forms: percent, JSON and HTML escapes resolved, broken lines joined.

Each view maps back to its source text, so that matches in it can be masked there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property, lru_cache
from html.entities import html5
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    _Piece = tuple[int, int, int, bool]

_DEPTH = 3
"""How many times a text may be encoded, one code within another."""

# A pattern that begins with a set of characters passes over text without them several times as fast.
_ESCAPE = re.compile(
    r"""[%\\'&](?:
    (?<=%)(?P<percent>[0-9A-Fa-f]{2}(?:%[0-9A-Fa-f]{2})*)
    | (?<=\\)(?:
        (?P<bytes>x[0-9A-Fa-f]{2}(?:\\x[0-9A-Fa-f]{2})*)
        | u(?P<high>[dD][89abAB][0-9A-Fa-f]{2})\\u(?P<low>[dD][c-fC-F][0-9A-Fa-f]{2})
        | u(?P<four>[0-9A-Fa-f]{4}) | u\{(?P<braces>[0-9A-Fa-f]{1,6})\} | U(?P<eight>[0-9A-Fa-f]{8})
        | (?P<octal>[0-3][0-7]{2}(?:\\[0-3][0-7]{2})*)
        | (?P<letter>[abfnrtv])
        | (?P<plain>[^\w\r\n])
      )
    | (?<=')(?P<quote>"'"'|\\'')
    | (?<=&)(?:
        \#(?P<decimal>[0-9]{1,7}); | \#[xX](?P<hexadecimal>[0-9A-Fa-f]{1,6});
        | (?P<name>[A-Za-z][A-Za-z0-9]{1,30};)
      )
    )""",
    re.VERBOSE,
)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

_BREAKS = r"[\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]"
"""The characters that str.splitlines takes for line ends."""
_CUT_ESCAPE = (
    r"(?:%(?:[89A-Fa-f][0-9A-Fa-f](?:%[89ABab][0-9A-Fa-f]){0,2}(?:%[0-9A-Fa-f]?)?|[0-9A-Fa-f]?)"
    r"|\\(?:x[89A-Fa-f][0-9A-Fa-f](?:\\x[89ABab][0-9A-Fa-f]){0,2}(?:\\(?:x[0-9A-Fa-f]?)?)?"
    r"|[23][0-7]{2}(?:\\2[0-7]{2}){0,2}(?:\\[0-3]?[0-7]?)?"
    r"|u[dD][89abAB][0-9A-Fa-f]{2}(?:\\(?:u[0-9A-Fa-f]{0,3})?)?"
    r"|[uUx]\{?[0-9A-Fa-f]{0,7}|[0-3][0-7]?)?"
    r"|'(?:\"(?:'\"?)?|\\'?)?"
    r"|&(?:\#[xX]?[0-9A-Fa-f]{0,7}|[A-Za-z]\w{0,30})?)"
)
"""An escape up to a line's end, where it, or its character of several bytes, may have been cut."""
_ESCAPE_AT_BREAK = re.compile(rf"{_CUT_ESCAPE}[ \t]{{0,2}}[\\=]?{_BREAKS}")
_ESCAPE_AT_END = re.compile(rf"{_CUT_ESCAPE}\Z")
_LONGEST_ESCAPE = 33
_LINE_BREAK = re.compile(rf"{_BREAKS}[ \t]*(?:[\\=]?{_BREAKS}[ \t]*)*")
_BLANKS_BEFORE = 2
"""Blanks at the end of a line, before a backslash or ``=`` that continues it, that do not count."""

_HEX_DIGITS = frozenset("0123456789abcdef")
_HEX_LETTERS = "0123456789abcdefx \t\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029:,;-\\"
"""The characters of hexadecimal bytes with separators."""
_HEX_TOKENS = (
    re.compile(r"\\+\s*x|0\s*x|.", re.DOTALL),
    re.compile(r"0[\\\s]*x|.", re.DOTALL),  # a backslash before a line's end may continue the line
)
_SEPARATOR = r"[\s:,;\\-]{0,3}(?:0?x)?"


class TextView:
    """A text that was derived from another one.

    Args:
        text: the text.
        parent: its source; None for the text itself.
        pieces: returns for each part of it: its start, the start and end of the corresponding part of the
            parent, and True if it is a copy of that part. Called only if something is found.
        joined: True if parts of it were removed, such as line breaks.
    """

    def __init__(
        self,
        text: str,
        parent: TextView | None = None,
        pieces: Callable[[], list[_Piece]] = list,
        *,
        joined: bool = False,
    ) -> None:
        self.text = text
        self.joined = joined
        self._parent = parent
        self._read_pieces = pieces

    @cached_property
    def _pieces(self) -> list[_Piece]:
        return self._read_pieces()

    @cached_property
    def _starts(self) -> list[int]:
        return [piece[0] for piece in self._pieces]

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
        for joined in _joined(view):
            yield joined
            if _ESCAPE_AT_BREAK.search(view.text):
                yield from _decoded_forms(joined)
        view = _unescaped(view) if _has_escapes(view.text) else None


def _decoded_forms(view: TextView) -> Iterator[TextView]:
    """Yield a view's forms after its escapes are decoded, which may be line breaks."""
    for _ in range(_DEPTH):
        decoded = _unescaped(view)
        if decoded is None:
            return
        yield decoded
        yield from _joined(decoded)
        view = decoded


def _has_escapes(text: str) -> bool:
    return any(mark in text for mark in ("%", "\\", "&", "'\"'\"'"))


def unfinished(text: str) -> Iterator[TextView]:
    """Yield the text and its decoded and joined forms, each up to where the next line may continue it."""
    level = {text: TextView(text)}
    for _ in range(_DEPTH + 1):
        following: list[TextView | None] = []
        for whole in level.values():
            for stop in possible_ends(whole.text):
                view = whole
                if stop != whole.text:
                    view = _without(whole, [(len(stop), len(whole.text))])
                yield view
                following.append(_unescaped(view) if _has_escapes(stop) else None)
                for joined in _joined(view):
                    yield joined
                    if _ESCAPE_AT_BREAK.search(stop):
                        following.append(_unescaped(joined))
        level = {view.text: view for view in following if view}


def possible_ends(text: str) -> Iterable[str]:
    """Return a text without what the next line may continue: blanks, an escape, a mark of continuation."""
    whole = text.rstrip()
    marked = whole[:-1].rstrip() if whole.endswith(("\\", "=")) else whole
    return dict.fromkeys((whole, marked, *(one[: len(one) - cut_escape(one)] for one in (whole, marked))))


def cut_escape(text: str) -> int:
    """Return the length of an escape at a text's end that a next line may continue; 0 for none."""
    found = _ESCAPE_AT_END.search(text, max(0, len(text) - _LONGEST_ESCAPE))
    return len(found[0]) if found else 0


def decoded_forms(text: str) -> Iterator[str]:
    """Yield a text, and its forms after its escapes are decoded."""
    view: TextView | None = TextView(text)
    for _ in range(_DEPTH + 1):
        if view is None:
            return
        yield view.text
        view = _unescaped(view)


def joined_forms(text: str) -> Iterator[str]:
    """Yield a text without its line breaks; nothing if it has none."""
    for view in _joined(TextView(text)):
        yield view.text


def _joined(view: TextView) -> Iterator[TextView]:
    """Yield the view without its line breaks, if it has several lines.

    A backslash or ``=`` before a line break continues the line, or belongs to the text: both are tried.
    """
    source = view.text
    breaks: list[tuple[int, int, int]] = []
    for match in _LINE_BREAK.finditer(source):
        start = kept = match.start()
        start -= source[start - 1 : start] in {"\\", "="}
        breaks.append((_without_blanks(source, start), _without_blanks(source, kept), match.end()))
    if not breaks or (len(breaks) == 1 and not source[breaks[0][2] :].strip()):
        return
    yield _without(view, [(start, end) for start, _, end in breaks])
    if any(start != kept for start, kept, _ in breaks):
        yield _without(view, [(kept, end) for _, kept, end in breaks])


def _without_blanks(source: str, end: int) -> int:
    least = max(end - _BLANKS_BEFORE, 0)
    while end > least and source[end - 1] in " \t":
        end -= 1
    return end


def _without(view: TextView, removed: list[tuple[int, int]]) -> TextView:
    """Return the view without some of its parts."""
    source = view.text
    kept = list(zip([0, *(end for _, end in removed)], [*(start for start, _ in removed), len(source)]))  # noqa: B905

    def pieces() -> list[_Piece]:
        found, length = [], 0
        for start, end in kept:
            found.append((length, start, end, True))
            length += end - start
        return found

    return TextView("".join([source[start:end] for start, end in kept]), view, pieces, joined=True)


def _unescaped(view: TextView) -> TextView | None:
    """Return the view with its escapes resolved, or None if it has none."""
    source = view.text
    parts: list[str] = []
    pieces: list[_Piece] = []
    length = done = 0
    for match in _ESCAPE.finditer(source):
        at = match.start()
        pieces.append((length, done, at, True))
        parts.append(source[done:at])
        length += at - done
        for letters, width in _decoded(match):
            pieces.append((length, at, at + width, False))
            parts.append(letters)
            length += len(letters)
            at += width
        done = match.end()
    if not done:
        return None
    pieces.append((length, done, len(source), True))
    parts.append(source[done:])
    return TextView("".join(parts), view, lambda: pieces, joined=view.joined)


def _decoded(match: re.Match[str]) -> list[tuple[str, int]]:
    kind, text = str(match.lastgroup), match[0]
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
    if kind == "name":
        return html5.get(match["name"], match[0])
    return _LETTERS[match["letter"]] if kind == "letter" else match[kind]


def _of_bytes(data: bytes, width: int) -> list[tuple[str, int]]:
    """Return the characters of some bytes in UTF-8, or else Latin-1, each ``width`` characters per byte."""
    try:
        letters = data.decode()
    except UnicodeDecodeError:
        return [(chr(byte), width) for byte in data]
    return [(letter, width * len(letter.encode())) for letter in letters]


def separated_hex(lowered: str, codes: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield positions of hexadecimal bytes, also with separators, as ``xxd`` and ``openssl`` write them.

    Args:
        lowered: the text, in small letters.
        codes: the bytes, in small letters without separators.
    """
    for pattern in map(_separated, codes):
        match = pattern.search(lowered)
        while match:
            yield match.span()
            match = pattern.search(lowered, match.start() + 1)


def begun_hex(lowered: str, codes: Iterable[str]) -> tuple[int, int] | None:
    """Return where hexadecimal bytes begin at a text's end that a next line may continue, or None.

    Args:
        lowered: the end of a text, in small letters.
        codes: the bytes, in small letters without separators.

    Returns:
        The place of the first digit, and how many digits there are.
    """
    region = lowered[len(lowered.rstrip(_HEX_LETTERS)) :]
    longest = max(map(len, codes), default=0)
    best: tuple[int, int] | None = None
    readings = [
        [one.start() for one in token.finditer(region) if one[0] in _HEX_DIGITS] for token in _HEX_TOKENS
    ]
    for places in readings:
        digits = "".join(region[place] for place in places)
        for end in {len(digits), len(digits) - digits.endswith("0")}:  # a 0 may be that of 0x
            for length in range(min(end, longest), best[1] if best else 0, -1):
                tail = digits[end - length : end]
                if any(length < len(code) and code.startswith(tail) for code in codes):
                    best = len(lowered) - len(region) + places[end - length], length
                    break
    return best


@lru_cache(maxsize=256)
def _separated(code: str) -> re.Pattern[str]:
    return re.compile(_SEPARATOR.join(code[at : at + 2] for at in range(0, len(code), 2)))
