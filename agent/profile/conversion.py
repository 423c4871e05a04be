"""Converts a profile from JSON to YAML and back without loss."""

from __future__ import annotations

import json
from typing import Any

from agent.core.errors import ProfileError, UsageError
from agent.profile.document import read_document
from agent.profile.finding import Source

FORMATS = ("json", "yaml")


def convert(text: str, from_format: str, *, label: str = "profile") -> str:
    """Return the text in the other format: ``json`` becomes YAML, ``yaml`` becomes JSON.

    Types, order and spelling of keys, null and every character are kept. Comments, anchors and the style of
    quotes are lost: JSON does not have them.

    Args:
        text: the text.
        from_format: the format of the text.
        label: its name in an error.

    Raises:
        ProfileError: if the text cannot be read (with its place), or the other format has no equivalent.
    """
    if from_format not in FORMATS:
        raise UsageError(f"'{from_format}' is not a format", remedy=f"known: {', '.join(FORMATS)}")
    data = read_document(Source(label, label, text, from_format)).data
    if from_format == "yaml":
        return json.dumps(data, indent=4, ensure_ascii=False, allow_nan=False) + "\n"
    return _to_yaml(data, label)


def _to_yaml(data: Any, label: str) -> str:
    from agent.profile.yaml_text import read_yaml, write_yaml

    for block in (True, False):
        text = write_yaml(data, block=block)
        if _same(read_yaml(text).data, data):
            return text
    raise ProfileError("contains a value that YAML cannot express", where=label)


def _same(one: Any, other: Any) -> bool:
    """Return True if both are equal, also in type and order: 1 is neither 1.0 nor true."""
    return json.dumps(one) == json.dumps(other)
