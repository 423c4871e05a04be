"""``vcagent profiles``: what can be run."""

from __future__ import annotations

from typing import Annotated

import typer

from agent.cli.output import print_document, say


def profiles(
    as_json: Annotated[bool, typer.Option("--json", help="List them as JSON.")] = False,
) -> None:
    """List the installed profiles, each with its description."""
    import shutil
    import textwrap

    from agent.core.errors import ProfileError
    from agent.profile.finding import find, installed
    from agent.profile.structure import read_profile

    rows = []
    for file in installed():
        name = file.rpartition(".")[0]
        try:
            profile = read_profile(find(file))
            rows.append({"name": name, "file": file, "description": profile.description})
        except ProfileError as error:
            rows.append({"name": name, "file": file, "description": "", "error": str(error)})
    if as_json:
        from agent.store.command_documents import ProfilesDocument

        print_document(ProfilesDocument, {"profiles": rows})
        return
    indent = max((len(row["name"]) for row in rows), default=0) + 2
    width = max(shutil.get_terminal_size().columns, indent + 30)
    for row in rows:
        text = " ".join((row["description"] or f"broken: {row['error']}").split())
        say(
            textwrap.fill(
                text, width, initial_indent=row["name"].ljust(indent), subsequent_indent=" " * indent
            )
        )
    if not rows:
        say("No profile is installed.")
