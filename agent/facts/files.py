"""Single files and folders, as facts: a plan that depends on one is still a function of facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.facts.base import Fact

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["exists", "text_of"]


def text_of(path: Path) -> Fact[str | None]:
    """A file's text; None where it cannot be read."""
    return Fact(f"text[{path}]", str(path), lambda host: host.text(str(path)))


def exists(path: Path) -> Fact[bool]:
    """Whether something of that name is there: file, folder or link."""
    return Fact(f"exists[{path}]", str(path), lambda host: path.name in host.names(str(path.parent)))
