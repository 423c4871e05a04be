"""Programs of the host."""

from __future__ import annotations

from agent.facts.base import Fact


def program(name: str) -> Fact[str | None]:
    """Return the fact of a program's path, on the agent's PATH; None if it is missing."""
    command = ["sh", "-c", 'command -v "$1"', "sh", name]
    return Fact(
        f"program[{name}]", f"command -v {name}", lambda host: (host.output(command) or "").strip() or None
    )
