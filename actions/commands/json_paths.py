"""Resolve paths into JSON, such as ``jobs[*].read.iops``, by JSONPath's member and index selectors.

Source: RFC 9535.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_STEP = re.compile(
    r"""
      \.?\[(?P<index>-?\d+)\]
    | \.?\[\*\]
    | \.?\[(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\]
    | (?:^|(?<!^)\.)(?P<all>\*)(?=$|[.\[])
    | (?:^|(?<!^)\.)(?P<name>[^.\[\]*'"]+)
    """,
    re.VERBOSE,
)

JsonPath = tuple[str | int | None, ...]
"""Steps of a path: a member's name, an entry's index, or None for all of them."""


@dataclass(frozen=True)
class Found:
    """A value that a path leads to.

    Args:
        value: the value.
        fields: values for its name: keys matched by ``*`` as 1, 2, …, and the plain members of the objects
            on the path, the nearest first.
    """

    value: Any
    fields: Mapping[str, str]


def parse_json_path(text: str) -> JsonPath:
    """Read a path; a leading ``$`` is optional.

    Raises:
        ValueError: if it is not a path.
    """
    rest = text.strip().removeprefix("$").removeprefix(".")
    steps: list[str | int | None] = []
    position = 0
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None or match.end() == position:
            raise ValueError(
                f"{text!r} is not a path into JSON: write a.b[0].c, with * for all, ['…'] for other names"
            )
        if match["index"] is not None:
            steps.append(int(match["index"]))
        elif match["quoted"] is not None or match["name"] is not None:
            steps.append(match["quoted"] if match["quoted"] is not None else match["name"])
        else:
            steps.append(None)
        position = match.end()
    if not steps:
        raise ValueError("the path into JSON is empty")
    return tuple(steps)


def find(document: Any, path: JsonPath) -> Iterator[Found]:
    """Yield the values at a path, in the document's order; yields nothing if a step is missing."""
    yield from _walk(document, path, [], {})


def _walk(value: Any, path: JsonPath, chosen: list[str], fields: Mapping[str, str]) -> Iterator[Found]:
    if isinstance(value, dict):
        own = {str(key): _text(entry) for key, entry in value.items() if not isinstance(entry, dict | list)}
        fields = {**fields, **own}
    if not path:
        numbered = {str(number): key for number, key in enumerate(chosen, 1)}
        yield Found(value, {**fields, **numbered})
        return
    step, rest = path[0], path[1:]
    if step is None:
        entries = (
            value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
        )
        for key, entry in entries:
            yield from _walk(entry, rest, [*chosen, str(key)], fields)
    elif isinstance(value, dict) and str(step) in value:
        yield from _walk(value[str(step)], rest, chosen, fields)
    elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
        yield from _walk(value[step], rest, chosen, fields)
    elif isinstance(value, list) and isinstance(step, str) and step.isdigit() and int(step) < len(value):
        yield from _walk(value[int(step)], rest, chosen, fields)


def _text(value: Any) -> str:
    return "" if value is None else str(value)
