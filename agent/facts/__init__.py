"""What the host is: one file a subject, each fact from one function."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from agent.facts.base import Fact, Facts, Host, LocalHost

__all__ = ["Fact", "Facts", "Host", "LocalHost", "known_facts"]


def known_facts() -> dict[str, Fact[Any]]:
    """Every fact defined in this package's modules, by name."""
    facts: dict[str, Fact[Any]] = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        facts |= {value.name: value for value in vars(module).values() if isinstance(value, Fact)}
    return dict(sorted(facts.items()))
