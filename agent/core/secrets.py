"""Keeps tokens and passwords out of logs, records, reports and messages.

A secret is known either by its value (from the environment, a parameter, or ``add``) or by its shape
(the password of a URL, an Authorization header, a Hugging Face token, ``password=…``; see ``secret_shapes``).
"""

from __future__ import annotations

import base64
import codecs
import html
import json
import re
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from agent.core.secret_shapes import is_secret_name, shaped, unfinished_block

__all__ = ["MASK", "LineMasker", "Secrets", "is_secret_name"]

MASK = "***"
"""What stands in a text where a secret was."""

_SHORTEST = 6
"""Shorter values occur in ordinary text by chance; they are masked under their names alone."""

_LONGEST_NUMBER = 15
"""Digits up to which a value is an ordinary number, which occurs in ordinary text."""

_PLAIN = re.compile(
    r"true|false|none|null|default|enabled|disabled|required|changeme|passw(?:or)?d|secret|token|api[_-]?key",
    re.IGNORECASE,
)
"""Words that are no secret though they may stand in the place of one."""

_WORD = re.compile(r"[a-z]{1,20}|[A-Z]{1,20}|[A-Z][a-z]{1,20}")
"""A value that may be part of other words: it is masked only where it stands alone."""

_SHORT_TEXT = 200
_KNOWN_LIMIT = 4096
"""How many short texts are remembered with what they are masked to."""

_REFERENCE = re.compile(r"\$\.|\$?\{")
"""A reference to a secret, as profiles and shells write it, tells nothing."""


def _base64_cores(value: bytes) -> Iterator[str]:
    """What every base64 text that contains ``value`` contains, for each of the three alignments."""
    for offset in range(3):
        padded = bytes(offset) + value
        # Characters that also depend on what stands before or after the value are left out.
        encoded = base64.b64encode(padded).decode("ascii")[(0, 2, 3)[offset] : len(padded) * 8 // 6]
        yield encoded
        yield encoded.replace("+", "-").replace("/", "_")


def _patterns(value: str) -> set[str]:
    """Patterns of a secret in the ways in which other texts may hold it: quoted, escaped, encoded."""
    encoded = {re.escape(core) for core in _base64_cores(value.encode()) if len(core) > _SHORTEST}
    if _WORD.fullmatch(value):
        return {rf"\b{value}\b", *encoded}
    forms = {
        value,
        quote(value),
        quote(value, safe=""),
        quote_plus(value),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        html.escape(value),
        shlex.quote(value),
    }
    # A secret of several lines, such as a private key, appears in logs line by line.
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        forms.update(line for line in lines if len(line) >= _SHORTEST and not line.startswith("-----"))
    return {*map(re.escape, forms), *encoded}


def _is_number(value: str) -> bool:
    """Whether a value is an ordinary number."""
    try:
        float(value)
    except ValueError:
        return False
    return sum(map(str.isdigit, value)) <= _LONGEST_NUMBER


class Secrets:
    """The secrets known to a run; safe to use from any thread.

    Args:
        values: values to mask.
        mappings: environments or parameters: the values under secret names are masked
            (see ``is_secret_name``), at any depth.
    """

    def __init__(self, values: Iterable[str] = (), mappings: Iterable[Mapping[str, Any]] = ()) -> None:
        self._lock = threading.Lock()
        self._literals: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._known: dict[str, str] = {}
        for value in values:
            self.add(value)
        for mapping in mappings:
            self.add_from(mapping)

    def add(self, value: str) -> None:
        """Mask this value from now on, in all its forms.

        What ordinary text is full of is not added: a value shorter than 6 characters, a number, ``true``. A
        value that is one word is masked where it is a word, not within another.
        """
        value = value.strip().strip("\"'").strip()
        if len(value) < _SHORTEST or _PLAIN.fullmatch(value) or _is_number(value):
            return
        with self._lock:
            self._literals |= _patterns(value)
            self._pattern = re.compile("|".join(sorted(self._literals, key=len, reverse=True)))
            self._known.clear()

    def add_from(self, mapping: Mapping[str, Any]) -> None:
        """Add the values that stand under secret names in an environment or in parameters."""
        for name, value in mapping.items():
            if isinstance(value, Mapping):
                self.add_from(value)
            elif is_secret_name(str(name)) and value is not None and not isinstance(value, bool):
                for item in value if isinstance(value, (list, tuple)) else (value,):
                    if not _REFERENCE.match(str(item)):
                        self.add(str(item))

    def mask(self, text: str) -> str:
        """The text with every secret replaced by ``***``; names and descriptions come again and again."""
        if len(text) > _SHORT_TEXT:
            return self._masked(text)
        with self._lock:
            known, pattern = self._known.get(text), self._pattern
        if known is None:
            known = self._masked(text)
            with self._lock:
                if len(self._known) >= _KNOWN_LIMIT:
                    self._known.clear()
                if pattern is self._pattern:
                    self._known[text] = known
        return known

    def _masked(self, text: str) -> str:
        parts: list[str] = []
        done = 0
        for start, end in self.spans(text):
            parts += (text[done:start], MASK)
            done = end
        return "".join((*parts, text[done:])) if parts else text

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the secrets stand in a text: pairs of start and end, in order, none overlapping."""
        found: list[tuple[int, int]] = []
        if self._pattern:
            found += (match.span() for match in self._pattern.finditer(text))
        found += ((start, end) for start, end in shaped(text) if text[start:end] != MASK)
        merged: list[tuple[int, int]] = []
        for start, end in sorted(found):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged

    def mask_value(self, value: Any) -> Any:
        """The same structure of mappings and sequences with every secret masked, by name and by value."""
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {key: self._mask_named(key, item) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            items = [self.mask_value(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, Path):
            return Path(self.mask(str(value)))
        if isinstance(value, bytes):
            return self.mask(value.decode(errors="replace")).encode()
        return value

    def _mask_named(self, name: Any, value: Any) -> Any:
        if not is_secret_name(str(name)) or value is None or value == "" or isinstance(value, bool):
            return self.mask_value(value)
        if isinstance(value, Mapping):
            return dict.fromkeys(value, MASK)
        if isinstance(value, (list, tuple, set, frozenset)):
            return [MASK] * len(value)
        return MASK


class LineMasker:
    r"""Masks a stream of bytes that arrives in pieces, whole lines at a time.

    A secret that is split over two pieces is masked too. ``\r`` ends a line like ``\n``, so that a
    redrawn progress bar becomes lines. Bytes that are not UTF-8 are replaced.

    Args:
        secrets: what to mask.
        longest: characters after which a line is passed on in parts; a private key is held back until it
            ends, up to as many.
    """

    def __init__(self, secrets: Secrets, longest: int = 65_536) -> None:
        self._secrets = secrets
        self._longest = longest
        self._decode: Callable[..., str] = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def feed(self, data: bytes) -> str:
        """Take bytes; return the text of the lines that are complete now, masked."""
        text = self._rest + self._decode(data)
        # A carriage return at the very end may be half of \r\n.
        cut = max(text.rfind("\n"), text.rfind("\r", 0, -1)) + 1
        begun = unfinished_block(text)
        if begun is not None and len(text) - begun <= self._longest:
            cut = min(cut, begun)
        elif cut == 0 and len(text) > self._longest:
            cut = self._safe_cut(text)
        self._rest = text[cut:]
        return self._finished(text[:cut])

    def close(self) -> str:
        """The rest, masked, ended by a newline if there is any."""
        text = self._finished(self._rest + self._decode(b"", final=True))
        self._rest = ""
        return text if not text or text.endswith("\n") else text + "\n"

    def _finished(self, text: str) -> str:
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return self._secrets.mask(text)

    def _safe_cut(self, text: str) -> int:
        """Where an endless line can be cut so that no secret, whole or begun, is cut with it."""
        cut = len(text) - self._longest // 2
        for start, end in self._secrets.spans(text):
            if start < cut < end:
                return start or end
        return cut
