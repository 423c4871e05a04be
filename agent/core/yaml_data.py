"""Reads tables and other YAML files whose lines need not be known; profiles have a reader of their own."""

from __future__ import annotations

from typing import Any


def yaml_data(text: str) -> Any:
    """Return the data of a YAML text, read by libyaml if PyYAML was built with it: many times faster.

    Raises:
        yaml.YAMLError: if it is not YAML.
    """
    import yaml

    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
