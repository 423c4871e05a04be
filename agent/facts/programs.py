"""Programs of the host."""

from __future__ import annotations

from agent.facts.base import Fact


def program(name: str) -> Fact[str | None]:
    """Where a program is, on the agent's PATH; None where it is not."""
    command = ["sh", "-c", 'command -v "$1"', "sh", name]
    return Fact(
        f"program[{name}]", f"command -v {name}", lambda host: (host.output(command) or "").strip() or None
    )
