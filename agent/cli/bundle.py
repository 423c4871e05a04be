"""``vcagent bundle``: the agent as one file, for hosts that reach no package index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.options import AsJson
from agent.cli.output import print_document, say


def bundle(
    platform: Annotated[
        list[str],
        typer.Option("--platform", help="What for: 3.11-x86_64, 3.12-aarch64, 3.12-x86_64-musl; several."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder that it is put into.")] = Path(),
    wheels: Annotated[
        Path | None,
        typer.Option("--wheels", help="Take wheels from this folder alone.", show_default="the index"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the file that fleet run brings to hosts; give it there with --bundle."""
    from agent.core.safe_files import copy_file
    from agent.fleet.bundle import Bundles, Platform

    bundles = Bundles(wheels=wheels)
    output.mkdir(parents=True, exist_ok=True)
    paths = []
    for text in platform:
        made = bundles.bundle(Platform.from_text(text))
        copy_file(made.path, output.resolve() / made.path.name)
        paths.append(str(output / made.path.name))
        if not as_json:
            say(paths[-1])
    if as_json:
        from agent.store.command_documents import BundleDocument

        print_document(BundleDocument, {"bundles": paths})
