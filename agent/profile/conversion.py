"""A profile from JSON to YAML and back, nothing lost."""

from __future__ import annotations

__all__ = ["convert"]


def convert(text: str, from_format: str, *, label: str = "profile") -> str:
    """The text in the other format: ``json`` becomes YAML, ``yaml`` becomes JSON.

    Raises:
        ProfileError: if the text cannot be read, with line and column, or the other format cannot say it.
    """
    raise NotImplementedError
