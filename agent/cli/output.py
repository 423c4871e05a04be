"""How the commands speak: tables for people, JSON for programs, errors with their remedy."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.core.errors import VcagentError


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    json.dump(value, sys.stdout, indent=2, default=str)
    print()


def say(text: str, *, end: str = "\n", error: bool = False) -> None:
    """Print a text for people, on standard output or standard error.

    Names, reasons and addresses come from profiles, hosts and files: what would give a terminal orders is
    spelled out.
    """
    from agent.core.terminal import printable

    print(printable(text), end=end, file=sys.stderr if error else sys.stdout)


def print_error(error: VcagentError) -> None:
    """Print an error with its remedy on standard error, without anything secret of the environment."""
    import os

    from rich.text import Text

    from agent.core.secrets import Secrets
    from agent.core.terminal import safe_console

    text = Text("error: ", style="bold red")
    text.append(Secrets(environment=os.environ).mask(str(error)), style="not bold default")
    safe_console(stderr=True, highlight=False, soft_wrap=True).print(text)
