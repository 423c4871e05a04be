"""Facts about the host: one file per subject, one function per fact."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from agent.core.plug_ins import PlugInError, broken, load_plug_in
from agent.facts.base import Fact, Facts, Host, LocalHost

__all__ = ["FACT_GROUP", "Fact", "Facts", "Host", "LocalHost", "broken_plug_ins", "known_facts"]

FACT_GROUP = "vcagent.facts"
"""Entry points of modules with facts in other distributions."""


def known_facts() -> dict[str, Fact[Any]]:
    """Return every fact of this package's modules and of installed plug-ins, by name."""
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    modules += _plug_ins()[0]
    facts = {
        fact.name: fact for module in modules for fact in vars(module).values() if isinstance(fact, Fact)
    }
    return dict(sorted(facts.items()))


def broken_plug_ins() -> tuple[PlugInError, ...]:
    """Return why installed plug-ins with facts cannot be used; the others are not affected."""
    return _plug_ins()[1]


@cache
def _plug_ins() -> tuple[tuple[ModuleType, ...], tuple[PlugInError, ...]]:
    """Return the usable plug-ins and the errors of the broken ones; loaded once."""
    modules, errors = [], []
    for point in entry_points(group=FACT_GROUP):
        try:
            module = load_plug_in(point, "the facts")
        except PlugInError as error:
            errors.append(error)
            continue
        if isinstance(module, ModuleType):
            modules.append(module)
        else:
            errors.append(broken(point, "the facts", TypeError("it is not a module")))
    return tuple(modules), tuple(errors)
