"""Reads JSON like VirtualClient's parser: comments are allowed, and every value has a line."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from agent.profile.syntax import MAXIMUM_DEPTH, Document, Path, SyntaxProblem, has_half_pair

_BLANK = re.compile(r"(?:[ \t\n\r]+|//[^\n\r]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,400})(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_WORD = re.compile(r"[^\s,\]}:\"]{1,40}")
_CONSTANTS = {"true": True, "false": False, "null": None}
_REMEDIES = {
    "True": "write true",
    "False": "write false",
    "None": "write null",
    "NaN": "NaN is not a JSON number",
    "Infinity": "infinity is not a JSON number",
    "-Infinity": "infinity is not a JSON number",
}


def read_json(text: str) -> Document:
    """Return the data of a JSON text.

    Raises:
        SyntaxProblem: if it is not JSON.
    """
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.document = Document()
        self.line_ends = [match.start() for match in re.finditer("\n", text)]

    def read(self) -> Document:
        self._skip()
        self.document.data = self._value(())
        self._skip()
        if self.at < len(self.text):
            raise self._problem("the text continues after its end")
        return self.document

    def _value(self, path: Path) -> Any:
        if len(path) > MAXIMUM_DEPTH:
            raise self._problem(f"nested deeper than {MAXIMUM_DEPTH}")
        if self._take("{"):
            return self._mapping(path)
        if self._take("["):
            return self._list(path)
        if self.text.startswith('"', self.at):
            return self._string()
        if match := _NUMBER.match(self.text, self.at):
            return self._number(match)
        word = _WORD.match(self.text, self.at)
        if word is None or word[0] not in _CONSTANTS:
            raise self._problem(
                _REMEDIES.get(word[0], "text needs double quotes") if word else "a value is missing"
            )
        self.at = word.end()
        return _CONSTANTS[word[0]]

    def _number(self, match: re.Match[str]) -> int | float:
        number: int | float = json.loads(match[0])
        if number in (float("inf"), float("-inf")):
            raise self._problem("the number is too large")
        if (rest := _WORD.match(self.text, match.end())) and not rest[0].startswith("/"):
            raise self._problem("this is not a JSON number")
        self.at = match.end()
        return number

    def _string(self) -> str:
        try:
            value, self.at = scanstring(self.text, self.at + 1, True)
        except json.JSONDecodeError as error:
            self.at = error.pos
            raise self._problem(error.msg[:1].lower() + error.msg[1:].removesuffix(" at")) from None
        if has_half_pair(value):
            raise self._problem("half of a surrogate pair is not a character")
        return str(value)

    def _mapping(self, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        self._skip()
        if self._take("}"):
            return values
        while True:
            if not self.text.startswith('"', self.at):
                raise self._problem("a name in double quotes is expected")
            line = self._line(self.at)
            name = self._string()
            inner = (*path, name)
            if name in values:
                self.document.duplicates.append((inner, line))
            else:
                self.document.lines[inner] = line
            self._skip()
            if not self._take(":"):
                raise self._problem(f"a colon is expected after the name '{name[:40]}'")
            self._skip()
            values[name] = self._value(inner)
            if self._end("}", "name and value"):
                return values

    def _list(self, path: Path) -> list[Any]:
        values: list[Any] = []
        self._skip()
        if self._take("]"):
            return values
        while True:
            inner = (*path, len(values))
            self.document.lines[inner] = self._line(self.at)
            values.append(self._value(inner))
            if self._end("]", "value"):
                return values

    def _end(self, bracket: str, what: str) -> bool:
        self._skip()
        if self._take(bracket):
            return True
        if not self._take(","):
            raise self._problem(f"a comma or '{bracket}' is expected")
        self._skip()
        if self.text.startswith(bracket, self.at):
            raise self._problem(f"a further {what} is expected after the comma")
        return False

    def _take(self, character: str) -> bool:
        taken = self.text.startswith(character, self.at)
        self.at += taken
        return taken

    def _skip(self) -> None:
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def _line(self, position: int) -> int:
        return bisect_left(self.line_ends, position) + 1

    def _problem(self, message: str) -> SyntaxProblem:
        column = self.at - self.text.rfind("\n", 0, self.at)
        if self.at >= len(self.text):
            message += " (the text ends here)"
        return SyntaxProblem(message, self._line(self.at), column)
