"""Reads YAML with the 1.2 core schema, so that ``00:01:00`` stays a time span and ``on`` a word.

PyYAML reads and composes the text; its YAML 1.1 interpretation of scalars is not used.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from agent.core.timespan import is_timespan
from agent.profile.syntax import (
    MAXIMUM_CHARACTERS,
    MAXIMUM_DEPTH,
    MAXIMUM_NODES,
    Document,
    Path,
    SyntaxProblem,
    has_half_pair,
)

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?(?:0|[1-9]\d{0,400})", re.ASCII)
_BASED = re.compile(r"0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}")
_FLOAT = re.compile(r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?", re.ASCII)
_AS_WRITTEN = re.compile(r"[-+]?(?:0\d.*|\d+\.(?:0{2,}|\d*[1-9]0+))", re.ASCII)
_TAG = "tag:yaml.org,2002:"
_UNSEEN = re.compile("[^\n -~\xa0-\u2027\u2030-\ufefe\uff00-\ufffd\U00010000-\U0010fffe]")
_PLAIN = "plain"
_TEXT = _TAG + "str"
_TYPES = {
    int: (_TAG + "int", _TAG + "float"),
    float: (_TAG + "float",),
    bool: (_TAG + "bool",),
    type(None): (_TAG + "null",),
}
_MERGE = "<<"


_READ_DIFFERENTLY = re.compile(r"[\t\ufeff]|!(?!\S)|[|>][-+\d]*#")
"""Matches text that libyaml may read differently from PyYAML.

These are tabs and byte order marks, ``!`` without a tag name, and ``#`` directly after ``|`` or ``>``.
"""


class _Tags(yaml.resolver.BaseResolver):
    def resolve(self, kind: type[Node], value: Any, implicit: Any) -> Any:
        """Return the tag of a node without one: a scalar is plain or quoted, regardless of YAML 1.1."""
        if kind is ScalarNode:
            return _PLAIN if implicit[0] else _TEXT
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]


class _Composer(_Tags, yaml.SafeLoader):
    """Composes in Python. Errors are reported with its messages and positions.

    PyYAML's time grows with the square of the depth, so that nesting is bounded here, too.
    """

    _depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """Compose the next node and what is in it."""
        if self._depth > MAXIMUM_DEPTH:
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise _problem(event, f"nested deeper than {MAXIMUM_DEPTH}")
        self._depth += 1
        node: Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _FastComposer(_Tags, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Composes with libyaml, if PyYAML was built with it: many times faster."""


def plain_scalar(text: str) -> str | int | float | bool | None:
    """Return the value of an unquoted scalar.

    A number that would lose digits stays text, because it is a version or an identifier: ``12.10``, ``007``.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _AS_WRITTEN.fullmatch(text):
        return text
    if _INT.fullmatch(text) or _BASED.fullmatch(text):
        return int(text, 0)
    number = float(text) if _FLOAT.fullmatch(text) else math.inf
    return number if math.isfinite(number) else text


def read_yaml(text: str) -> Document:
    """Return the data of a YAML text.

    Raises:
        SyntaxProblem: if it is not YAML, contains several documents or a tag outside of the core schema, or
            expands to more than a profile can need.
    """
    try:
        node = _compose(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(filter(None, (error.problem, error.context)))
        raise SyntaxProblem(message, mark.line + 1 if mark else 1, mark.column + 1 if mark else 1) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position] if isinstance(error.position, int) else ""
        message = f"the character U+{int(error.character):04X} is not allowed"
        raise SyntaxProblem(message, before.count("\n") + 1, len(before) - before.rfind("\n")) from None
    except (ValueError, OverflowError):
        raise SyntaxProblem("an escape such as \\UFFFFFFFF is not a character", 1, 1) from None
    reader = _Reader()
    if node is not None:
        reader.document.data = reader.value(node, ())
    return reader.document


def _compose(text: str) -> Node | None:
    """Return the root of a text. Python reads what libyaml rejects or may read differently."""
    if not _READ_DIFFERENTLY.search(text):
        with suppress(yaml.YAMLError, ValueError):
            return yaml.compose(text, Loader=_FastComposer)
    return yaml.compose(text, Loader=_Composer)


class _Reader:
    def __init__(self) -> None:
        self.document = Document()
        self.depth = 0
        self.count = 0
        self.characters = 0

    def value(self, node: Node, path: Path) -> Any:
        """Return the value of a node; a mapping that ``<<`` includes counts as nested, too."""
        self.count += 1
        if self.depth > MAXIMUM_DEPTH:
            raise _problem(node, f"nested deeper than {MAXIMUM_DEPTH}, or an alias within its own anchor")
        if self.count > MAXIMUM_NODES:
            raise _problem(node, f"more than {MAXIMUM_NODES} values, those of aliases included")
        if isinstance(node, ScalarNode):
            self._count_characters(node)
            return _scalar(node)
        self.depth += 1
        value = self._collection(node, path)
        self.depth -= 1
        return value

    def _count_characters(self, node: ScalarNode) -> None:
        self.characters += len(node.value)
        if self.characters > MAXIMUM_CHARACTERS:
            raise _problem(node, f"more than {MAXIMUM_CHARACTERS} characters, those of aliases included")

    def _collection(self, node: Node, path: Path) -> Any:
        kind = "map" if isinstance(node, MappingNode) else "seq"
        if node.tag != _TAG + kind:
            raise _problem(node, f"the tag {node.tag} is not known here")
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        assert isinstance(node, SequenceNode)  # noqa: S101 - there is no fourth kind
        values = []
        for index, entry in enumerate(node.value):
            inner = (*path, index)
            self.document.lines.setdefault(inner, entry.start_mark.line + 1)
            values.append(self.value(entry, inner))
        return values

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        merged: list[Node] = []
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                raise _problem(key, "a key must be a word")
            self._count_characters(key)
            _scalar(key)
            if key.value == _MERGE and key.tag == _PLAIN:
                merged += value.value if isinstance(value, SequenceNode) else [value]
                continue
            inner = (*path, key.value)
            line = key.start_mark.line + 1
            if key.value in values:
                self.document.duplicates.append((inner, line))
            else:
                self.document.lines[inner] = line
            values[key.value] = self.value(value, inner)
        for source in merged:
            if not isinstance(source, MappingNode):
                raise _problem(source, "'<<' takes a mapping, or a list of mappings")
            values = {**self.value(source, path), **values}
        return values


def _scalar(node: ScalarNode) -> str | int | float | bool | None:
    text: str = node.value
    if has_half_pair(text):
        raise _problem(node, "half of a surrogate pair is not a character")
    if node.tag == _TEXT:
        return text
    value = plain_scalar(text)
    if node.tag != _PLAIN and node.tag not in _TYPES.get(type(value), ()):
        raise _problem(
            node, f"the tag {node.tag.replace(_TAG, '!!')} is not known here, or not of this value"
        )
    return value


def _problem(node: Node, message: str) -> SyntaxProblem:
    return SyntaxProblem(message, node.start_mark.line + 1, node.start_mark.column + 1)


def write_yaml(data: Any, *, block: bool = True) -> str:
    """Data as YAML that all readers understand alike: text that some take for a number is quoted.

    Args:
        data: what ``read_yaml`` gives.
        block: whether a text of several lines is written as such.
    """

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - every value is written out
            return True

    def represent(dumper: yaml.SafeDumper, text: str) -> ScalarNode:
        style = None
        if _UNSEEN.search(text):
            style = '"'
        elif block and "\n" in text:
            style = "|"
        elif plain_scalar(text) != text or is_timespan(text) or _AS_WRITTEN.fullmatch(text):
            style = "'"
        return dumper.represent_scalar(_TEXT, text, style)

    Dumper.add_representer(str, represent)
    return yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10**6)
