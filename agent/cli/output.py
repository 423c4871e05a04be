"""How the commands speak: tables for people, JSON for programs, errors with their remedy."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.core.errors import VcagentError
    from agent.store.documents import Document


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    json.dump(value, sys.stdout, indent=2, default=str)
    print()


def print_document(model: type[Document], values: Mapping[str, Any]) -> None:
    """Print a command's document as JSON, in the form that its published schema has.

    Args:
        model: the document's model.
        values: its values.
    """
    print_json(model.model_validate(dict(values)).to_json())


def is_json_asked(arguments: Sequence[str]) -> bool:
    """Return True if the arguments of a command ask for JSON."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def print_error_document(error: VcagentError) -> None:
    """Print an error as JSON on standard output, without anything secret of the environment."""
    import os

    from agent.core.secrets import Secrets
    from agent.store.command_documents import ErrorDocument

    mask = Secrets(environment=os.environ).mask
    print_document(
        ErrorDocument,
        {
            "error": mask(error.message),
            "remedy": mask(error.remedy) if error.remedy else None,
            "exit_code": int(error.exit_code),
            "where": mask(error.where) if error.where else None,
            "details": [mask(detail) for detail in error.details],
        },
    )


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

    from agent.core.layout import print_lines
    from agent.core.secrets import Secrets
    from agent.core.terminal import safe_console

    text = Secrets(environment=os.environ).mask(str(error))
    console = safe_console(stderr=True, highlight=False)
    print_lines(console, text, lead=Text("error: ", style="bold red"))
