"""JSON that gives two values for one key is refused by every parser: which number is meant is unknown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from agent.core.errors import VcagentError
from parsers.json_text import read_json
from tests.parsers.mangling import named_values, originals, parsed

if TYPE_CHECKING:
    from pathlib import Path

_A_NUMBER = re.compile(rb'("\w+") ?: ?(-?\d+\.\d+)')
_WRONG = b"77777.5"
WITH_NUMBERS = sorted(name for name, data in originals().items() if _A_NUMBER.search(data))


def test_two_values_for_a_key_are_refused() -> None:
    assert read_json('{"a": 1, "b": {"a": 2}}') == {"a": 1, "b": {"a": 2}}
    assert read_json('{"a": [1], "a": [1]}') == {"a": [1]}
    for text in ('{"a": 1, "a": 2}', '[{"b": {"a": 1, "a": null}}]', '{"a": 1, "b": 0, "a": 1, "a": 3}'):
        with pytest.raises(ValueError, match="two values for 'a'"):
            read_json(text)


@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_a_second_value_is_never_taken(name: str, tmp_path: Path) -> None:
    data = originals()[name]
    before = named_values(parsed(name, data, tmp_path))
    assert len(WITH_NUMBERS) > 10
    for text in (rb"\1: \2, \1: " + _WRONG, rb"\1: " + _WRONG + rb", \1: \2"):
        try:
            outputs = parsed(name, _A_NUMBER.sub(text, data), tmp_path)
        except VcagentError:
            continue
        assert named_values(outputs) <= before
