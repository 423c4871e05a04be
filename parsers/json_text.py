"""Reads JSON, and refuses objects that give two values for one key: which one is meant is unknown."""

from __future__ import annotations

import json
from typing import Any


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        for key, value in pairs:
            if values[key] != value:
                raise ValueError(f"two values for {key[:60]!r}")
    return values


DECODER = json.JSONDecoder(object_pairs_hook=_object)


def read_json(text: str | bytes, *, strict: bool = True) -> Any:
    """Return the value of a JSON text.

    Args:
        text: the text.
        strict: False if strings may contain control characters.

    Raises:
        ValueError: if it is not JSON, or an object gives two different values for one key.
        RecursionError: if it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_object, strict=strict)
