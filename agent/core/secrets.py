"""Keeps tokens and passwords out of logs, records, reports and messages.

A secret is known either by its value (from the environment, a parameter, or ``add``) or by its shape
(the password of a URL, an Authorization header, a Hugging Face token, ``password=…``; see ``secret_shapes``).
The value is searched in the text itself and in all decoded forms (see ``text_views``).
"""

from __future__ import annotations

import base64
import codecs
import os
import re
import shlex
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from agent.core.secret_shapes import is_secret_name, lower, secret_reference, shaped, unfinished_block
from agent.core.text_views import (
    TextView,
    begun_hex,
    cut_escape,
    decoded_forms,
    joined_forms,
    possible_ends,
    separated_hex,
    unfinished,
    views,
)

MASK = "***"
"""Replacement for a secret in a text."""

_SHORTEST = 6
"""Shorter values of the environment occur in ordinary text by chance."""

_SHORTEST_DECLARED = 4
"""Parameters of at least this length are masked anywhere; shorter ones only if they stand alone."""

_SHORTEST_ALONE = 3
"""A shorter parameter is masked only under its name."""

_SHORTEST_SPLIT = 6
"""Length of a value, or of its code, that is recognised even across a line break."""

_LONGEST_NUMBER = 15
"""A value of the environment with at most this many digits counts as an ordinary number."""

_NO_SECRET = re.compile(r"true|false|none|null|", re.IGNORECASE)
"""Values that mean "no secret"."""

_PLAIN = re.compile(
    r"true|false|none|null|default|enabled|disabled|required|changeme|passw(?:or)?d|secret|token|api[_-]?key",
    re.IGNORECASE,
)
"""Words that may replace a secret and that are frequent in ordinary text."""

_WORD = re.compile(r"[a-z]{1,20}|[A-Z]{1,20}|[A-Z][a-z]{1,20}")
"""A value of the environment that may be part of other words: it is masked only if it stands alone."""

_SCHEMA_KEY = re.compile(r"[a-z_]+")
"""A key that is searched in programs' output."""

_SHORT_TEXT = 200
_KNOWN_LIMIT = 4096
"""Number of short texts whose masked form is cached."""

_LONGEST_BEGINNING = 256
"""Length up to which each beginning of a secret is stored; a longer one is found by these characters."""

_CODE_LENGTH = 4
"""Length of a code, such as bytes with separators, in lengths of the longest searched text."""

_WITHHELD = 4
"""Characters of a secret's beginning for which a line is withheld until the next one arrives."""

_LONGEST_KEY_FILE_BYTES = 65_536

_REFERENCE = re.compile(
    r"\$\.[A-Za-z][\w.]*|\$\{\w+\}|\{[A-Za-z_][\w.]*(?::[\w./-]+)?\}|\{calculate\(.*\)\}", re.DOTALL
)
"""A reference to a secret, as written in profiles and shells; it reveals nothing."""


def is_reference(value: str) -> bool:
    """Return True if a whole value refers to another one: ``$.Parameters.Key``, ``{Key}``, ``${KEY}``."""
    return _REFERENCE.fullmatch(value.strip()) is not None


class _Needle(NamedTuple):
    """A text that reveals a secret.

    Args:
        text: the text to search.
        alone: True if it counts only if no letter or digit is next to it.
        before: number of characters before it that also contain bits of the secret.
        after: number of characters after it that also contain bits of the secret.
    """

    text: str
    alone: bool = False
    before: int = 0
    after: int = 0


def _base64_needles(value: bytes) -> Iterator[_Needle]:
    """Yield the parts common to all base64 texts that contain ``value``, for each of the three alignments."""
    for offset in range(3):
        padded = bytes(offset) + value
        # Characters that also depend on the text before or after the value are not searched.
        whole = len(padded) * 8 // 6
        core = base64.b64encode(padded).decode()[(0, 2, 3)[offset] : whole]
        before, after = int(offset > 0), int(len(padded) % 3 > 0)
        for text in {core, core.replace("+", "-").replace("/", "_")}:
            yield _Needle(text, before=before, after=after)


def _needles(value: str, *, alone: bool) -> set[_Needle]:
    """Return the texts that reveal a secret in a decoded text."""
    encoded = _bytes_of(value)
    codes: set[_Needle] = set()
    if not alone or len(value) >= _SHORTEST:
        codes = {*_base64_needles(encoded), _Needle(encoded.hex())}
    if alone:
        return {_Needle(value, alone=True), *codes}
    forms = {value, quote_plus(encoded), shlex.quote(value)}
    if (shown := encoded.decode(errors="replace")) != value:
        forms |= {shown, encoded.decode("latin-1")}
    forms.update(form for form in decoded_forms(value) if len(form) >= _SHORTEST_DECLARED)
    forms |= {form.rstrip("\\") for form in forms}  # which may escape the character after it
    # A secret of several lines, such as a private key, appears in logs line by line, or in other lines.
    forms.update(form for form in joined_forms(value) if len(form) >= _SHORTEST_SPLIT)
    lines = [line.strip() for line in value.splitlines()]
    forms.update(line for line in lines if len(line) >= _SHORTEST and not line.startswith("-----"))
    return {*map(_Needle, forms), *codes}


def _bytes_of(value: str) -> bytes:
    """Return a value's bytes; a variable of the environment may contain bytes that are not UTF-8."""
    try:
        return value.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # half of a surrogate pair
        return value.encode(errors="surrogatepass")


def _is_number(value: str) -> bool:
    """Return True if a value is an ordinary number."""
    try:
        float(value)
    except ValueError:
        return False
    return sum(map(str.isdigit, value)) <= _LONGEST_NUMBER


class _Beginnings(NamedTuple):
    """The beginnings of secrets, by which a line is withheld until the next one arrives.

    Args:
        texts: the beginnings, up to a length.
        longest: length of the longest of them.
        long: texts whose beginnings may be longer.
        window: number of characters at the end of a text in which a secret may begin.
    """

    texts: frozenset[str]
    longest: int
    long: tuple[str, ...]
    window: int


class Secrets:
    """The secrets known to a run; safe to use from any thread.

    Args:
        values: values to mask.
        mappings: parameters: the values under secret names are masked (see ``is_secret_name``), at any
            depth, and also the values that parameters such as ``apiKeyEnv`` and ``apiKeyFile`` refer to.
        environment: variables that were not given to vcagent explicitly: values that are probably not secret,
            such as numbers, are not masked.
    """

    def __init__(
        self,
        values: Iterable[str] = (),
        mappings: Iterable[Mapping[str, Any]] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._needles: frozenset[_Needle] = frozenset()
        self._spread: frozenset[str] = frozenset()
        """Codes in hexadecimal, which also appear with separators."""
        self._beginnings: _Beginnings | None = None
        self._known: dict[str, str] = {}
        for value in values:
            self.add(value)
        if environment is not None:
            self._add_named(environment, declared=False)
        for mapping in mappings:
            self.add_from(mapping)

    def add(self, value: str, *, declared: bool = False) -> None:
        """Mask this value from now on, in all its forms.

        Args:
            value: the value; quotes and blanks around it do not count.
            declared: True if it was declared as a secret: then it is masked everywhere. Otherwise values that
                are frequent in ordinary text are not masked (shorter than 6 characters, a number, ``true``),
                and a value that is one word is masked only if it stands alone.
        """
        value = value.strip().strip("\"'").strip()
        if _NO_SECRET.fullmatch(value):
            return
        if declared:
            if len(value) < _SHORTEST_ALONE:
                return
            alone = len(value) < _SHORTEST_DECLARED or _PLAIN.fullmatch(value) is not None
        else:
            if len(value) < _SHORTEST or _PLAIN.fullmatch(value) or _is_number(value):
                return
            alone = _WORD.fullmatch(value) is not None
        found = _needles(value, alone=alone)
        with self._lock:
            if found <= self._needles:
                return
            self._needles |= found
            self._spread |= {_bytes_of(value).hex()} & {one.text for one in found}
            self._beginnings = None
            self._known.clear()

    def add_from(self, mapping: Mapping[str, Any]) -> None:
        """Add the values under secret names in parameters, and those that parameters refer to."""
        self._add_named(mapping, declared=True)

    def _add_named(self, mapping: Mapping[str, Any], *, declared: bool) -> None:
        for name, value in mapping.items():
            if isinstance(value, Mapping):
                self._add_named(value, declared=declared)
                continue
            items = value if isinstance(value, (list, tuple)) else (value,)
            for item in items:
                if isinstance(item, Mapping):
                    self._add_named(item, declared=declared)
                elif item is None or isinstance(item, bool) or is_reference(str(item)):
                    continue
                elif is_secret_name(str(name)):
                    self.add(str(item), declared=declared)
                elif declared:
                    self.add(_named_secret(str(name), str(item)), declared=True)

    def mask(self, text: str) -> str:
        """Return the text with every secret replaced by ``***``; the results for short texts are cached."""
        if len(text) > _SHORT_TEXT:
            return self._masked(text)
        with self._lock:
            known, needles = self._known.get(text), self._needles
        if known is None:
            known = self._masked(text)
            with self._lock:
                if len(self._known) >= _KNOWN_LIMIT:
                    self._known.clear()
                if needles is self._needles:
                    self._known[text] = known
        return known

    def _masked(self, text: str) -> str:
        return _covered(text, self.spans(text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the positions of secrets in a text: pairs of start and end, in order, none overlapping."""
        shapes = [(start, end) for start, end in shaped(text) if text[start:end] != MASK]
        return _merged((*shapes, *self._known_in(text)))

    def mask_values(self, text: str) -> str:
        """Return the text with known secret values masked, but not texts that only look like a secret."""
        return _covered(text, _merged(self._known_in(text)))

    def _known_in(self, text: str) -> Iterator[tuple[int, int]]:
        if self._needles:
            for view in views(text):
                yield from self._found(view)

    def _found(self, view: TextView) -> Iterator[tuple[int, int]]:
        text = view.text
        for needle in self._needles:
            code = needle.text
            if view.joined and (needle.alone or len(code) < _SHORTEST_SPLIT):
                continue
            start = text.find(code)
            while start >= 0:
                end = start + len(code)
                if not needle.alone or _stands_alone(text, start, end):
                    yield view.origin(*_widened(text, start, end, needle))
                start = text.find(code, start + 1)
        for span in separated_hex(lower(text), self._spread):
            yield view.origin(*span)

    def begun(self, text: str) -> tuple[int, int] | None:
        """Return the start and length of a secret that may continue in the next line, or None."""
        beginnings = self._beginnings
        if beginnings is None:
            beginnings = self._index_beginnings()
        if not beginnings.texts:
            return None
        end = len(text.rstrip())
        cut = max(0, end - beginnings.window)
        found = [
            (cut + view.origin(start, start + 1)[0], length)
            for view in unfinished(text[cut:end])
            for start, length in self._begun_in(view.text, beginnings)
        ]
        # The first character of a secret may be in a cut escape.
        ends = possible_ends(text[cut:end])
        found += [(cut + len(one) - escape, 0) for one in ends if (escape := cut_escape(one))]
        if not found:
            return None
        return min(start for start, _ in found), max(length for _, length in found)

    def _index_beginnings(self) -> _Beginnings:
        with self._lock:
            whole = [needle.text for needle in self._needles if not needle.alone]
            texts = frozenset(
                text[:length]
                for text in whole
                if len(text) >= _SHORTEST_SPLIT
                for length in range(1, min(len(text), _LONGEST_BEGINNING))
            )
            self._beginnings = _Beginnings(
                texts,
                longest=max(map(len, texts), default=0),
                long=tuple(text for text in whole if len(text) > _LONGEST_BEGINNING),
                window=_CODE_LENGTH * max([_LONGEST_BEGINNING, *map(len, whole)]),
            )
            return self._beginnings

    def _begun_in(self, text: str, beginnings: _Beginnings) -> Iterator[tuple[int, int]]:
        """Yield the start and length of the longest beginning of a secret at a text's end, by kind."""
        for length in range(min(len(text), beginnings.longest), 0, -1):
            if text[-length:] in beginnings.texts:
                yield len(text) - length, length
                break
        for start in _long_beginnings(text, beginnings.long):
            yield start, len(text) - start
        if code := begun_hex(lower(text), self._spread):
            yield code

    def mask_value(self, value: Any) -> Any:
        """Return the same mappings and sequences with every secret masked, by name and by value."""
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {self._mask_key(key): self._mask_named(key, item) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            items = [self.mask_value(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, Path):
            return Path(self.mask(str(value)))
        if isinstance(value, bytes):
            return self.mask(value.decode(errors="replace")).encode()
        return value

    def _mask_key(self, key: Any) -> Any:
        return self.mask(key) if isinstance(key, str) and not _SCHEMA_KEY.fullmatch(key) else key

    def _mask_named(self, name: Any, value: Any) -> Any:
        if not is_secret_name(str(name)) or value is None or value == "" or isinstance(value, bool):
            return self.mask_value(value)
        if isinstance(value, Mapping):
            return dict.fromkeys(map(self._mask_key, value), MASK)
        if isinstance(value, (list, tuple, set, frozenset)):
            return [MASK] * len(value)
        return MASK


def _named_secret(name: str, value: str) -> str:
    """Return the secret that a parameter such as ``apiKeyEnv`` or ``apiKeyFile`` refers to, or ""."""
    kind = secret_reference(name)
    if kind == "environment":
        return os.environ.get(value, "")
    if kind != "file":
        return ""
    try:
        path = Path(value).expanduser()
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LONGEST_KEY_FILE_BYTES:
            return ""
        return path.read_bytes().decode(errors="surrogateescape")
    except (OSError, RuntimeError, ValueError):  # the code that uses it reports the error
        return ""


def _long_beginnings(text: str, codes: Iterable[str]) -> Iterator[int]:
    """Yield where a beginning of a code that is longer than the stored ones continues to a text's end."""
    for code in codes:
        start = text.find(code[:_LONGEST_BEGINNING])
        while start >= 0:
            if code.startswith(text[start:]):
                yield start
            start = text.find(code[:_LONGEST_BEGINNING], start + 1)


def _stands_alone(text: str, start: int, end: int) -> bool:
    beside = text[start - 1 : start] + text[end : end + 1]
    return not any(letter.isalnum() or letter == "_" for letter in beside)


def _widened(text: str, start: int, end: int, needle: _Needle) -> tuple[int, int]:
    """Return the span extended by the adjacent base64 characters that contain bits of the secret."""
    if needle.before and start and _is_base64(text[start - 1]):
        start -= 1
    if needle.after and end < len(text) and _is_base64(text[end]):
        end += 1
    return start, end


def _is_base64(letter: str) -> bool:
    return (letter.isascii() and letter.isalnum()) or letter in "+/-_"


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _covered(text: str, spans: Iterable[tuple[int, int]]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in spans:
        parts += (text[done:start], MASK)
        done = end
    return "".join((*parts, text[done:]))


class LineMasker:
    r"""Masks a stream of bytes that arrives in pieces, whole lines at a time.

    A secret that is split over two pieces, or over two lines, is masked too. ``\r`` ends a line like ``\n``,
    so that a redrawn progress bar becomes lines. Bytes that are not UTF-8 are replaced.

    Args:
        secrets: the secrets to mask.
        longest: characters after which a line is passed on in parts; a private key is held back until it
            ends, up to this length, and so is a line that ends like the beginning of a secret.
    """

    def __init__(self, secrets: Secrets, longest: int = 65_536) -> None:
        self._secrets = secrets
        self._longest = longest
        self._decode: Callable[..., str] = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""
        self._before = ""
        """The part passed on already that may be the beginning of a secret."""

    def feed(self, data: bytes) -> str:
        """Take bytes; return the text of the lines that are now complete, masked."""
        text = self._rest + self._decode(data)
        # A carriage return at the very end may be half of \r\n.
        cut = max(text.rfind("\n"), text.rfind("\r", 0, -1)) + 1
        begun = unfinished_block(text)
        if begun is not None and len(text) - begun <= self._longest:
            cut = min(cut, begun)
        elif cut == 0 and len(text) > self._longest:
            cut = self._safe_cut(text)
        before = ""
        while cut and (begin := self._secrets.begun(self._before + text[:cut])):
            start, length = begin[0] - len(self._before), begin[1]
            if length >= _WITHHELD and len(text) - max(start, 0) <= self._longest:
                cut = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1 if start > 0 else 0
            else:
                before = (self._before + text[:cut])[begin[0] :]
                break
        self._rest = text[cut:]
        shown = self._finished(text[:cut])
        self._before = before if cut else self._before
        return shown

    def close(self) -> str:
        """Return the rest, masked, with a final newline if it is not empty."""
        text = self._finished(self._rest + self._decode(b"", final=True))
        self._rest = self._before = ""
        return text if not text or text.endswith("\n") else text + "\n"

    def _finished(self, text: str) -> str:
        if not text:
            return ""
        if not self._before:
            return self._secrets.mask(_with_newlines(text))
        joined = self._before + text
        done = len(self._before)
        spans = [(max(start, done) - done, end - done) for start, end in self._secrets.spans(joined)]
        return _with_newlines(_covered(text, [span for span in spans if span[1] > 0]))

    def _safe_cut(self, text: str) -> int:
        """Return where an endless line can be split without splitting a secret or its beginning."""
        cut = len(text) - self._longest // 2
        for start, end in self._secrets.spans(text):
            if start < cut < end:
                return start or end
        return cut


def _with_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
