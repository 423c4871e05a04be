"""Facts about the host: one file per subject, one function per fact."""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points
from typing import Any

from agent.facts.base import Fact, Facts, Host, LocalHost

__all__ = ["FACT_GROUP", "Fact", "Facts", "Host", "LocalHost", "known_facts"]

FACT_GROUP = "vcagent.facts"
"""Entry points of modules with facts in other distributions."""


def known_facts() -> dict[str, Fact[Any]]:
    """Return every fact of this package's modules and of installed plug-ins, by name.

    A plug-in that cannot be loaded is skipped, so that it does not stop the others.
    """
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    for point in entry_points(group=FACT_GROUP):
        try:
            modules.append(point.load())
        except Exception:  # noqa: BLE001, S112 - foreign code may raise anything
            continue
    facts = {
        fact.name: fact for module in modules for fact in vars(module).values() if isinstance(fact, Fact)
    }
    return dict(sorted(facts.items()))
