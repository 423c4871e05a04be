"""``vcagent convert``: a profile from JSON to YAML and back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.output import print_document, say


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="Profile: a name, a path or a URI.")],
    target: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="File to write; standard output if not given.")
    ] = None,
    to: Annotated[str, typer.Option(help="yaml or json; by OUT's extension, else the other format.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Convert a profile from JSON to YAML or back; only comments are lost."""
    from agent.core.errors import UsageError
    from agent.core.safe_files import replace_text
    from agent.profile.conversion import FORMATS
    from agent.profile.conversion import convert as converted
    from agent.profile.finding import find

    profile = find(source)
    wanted = (to or (target.suffix[1:] if target else "")).lower().replace("yml", "yaml")
    wanted = wanted or next(name for name in FORMATS if name != profile.format)
    if wanted not in FORMATS:
        raise UsageError(f"'{wanted}' is not a format", remedy=f"--to takes {' or '.join(FORMATS)}")
    if wanted == profile.format:
        raise UsageError(f"{profile.label} is {wanted} already")
    if target and target.exists() and not force:
        raise UsageError(f"{target} exists", remedy="choose another name, or overwrite it with --force")
    if target and target.exists() and not target.is_file():
        raise UsageError(f"{target} is not an ordinary file", remedy="leave OUT out for standard output")
    text = converted(profile.text, profile.format, label=profile.label)
    if target:
        try:
            replace_text(target.parent.resolve() / target.name, text)
        except OSError as error:
            raise UsageError(f"{target} cannot be written: {error.strerror}") from error
    if as_json:
        from agent.store.command_documents import ConvertDocument

        outcome = {"source": profile.label, "from": profile.format, "to": wanted}
        outcome |= {"target": str(target)} if target else {"text": text}
        print_document(ConvertDocument, outcome)
    elif target:
        say(f"{target} written")
    elif sys.stdout.isatty():
        say(text, end="")
    else:
        # UTF-8 as in a file: a terminal of another encoding must not cost the profile a character.
        typer.echo(text.encode(), nl=False)
