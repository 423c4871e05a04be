"""``vcagent bundle``: the agent, or all that a profile downloads, for hosts without a network."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.completion import complete_profiles
from agent.cli.options import AsJson, OnlyDependencies, Parameters, Scenarios, Settings, request_of
from agent.cli.output import print_document, say


def bundle(
    platform: Annotated[
        list[str],
        typer.Option(
            "--platform",
            help="Platform of the hosts. The agent: 3.11-x86_64, 3.12-aarch64, 3.12-x86_64-musl; repeatable. "
            "A profile: ubuntu-24.04-x64.",
        ),
    ],
    profile: Annotated[
        list[str] | None,
        typer.Option(
            "--profile",
            "-p",
            help="Fetch all that this profile downloads; several are merged.",
            show_default="the agent alone",
            autocompletion=complete_profiles,
        ),
    ] = None,
    parameters: Parameters = None,
    scenarios: Scenarios = "",
    dependencies: OnlyDependencies = False,
    settings: Settings = None,
    python: Annotated[
        str,
        typer.Option(
            "--python",
            help="Version of the Python that runs the agent on the host.",
            show_default="the distribution's",
        ),
    ] = "",
    kernel: Annotated[
        str,
        typer.Option(
            "--kernel",
            help="Kernel of the host (uname -r), for the headers that a GPU driver needs.",
            show_default=False,
        ),
    ] = "",
    repositories: Annotated[
        Path | None,
        typer.Option(
            "--repositories",
            "--apt-sources",
            help="A .sources, .list or .repo file with that release's repositories.",
            show_default="those of this host, or the distribution's",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The folder to write; for a profile also FILE.tar.",
            show_default=False,
        ),
    ] = None,
    wheels: Annotated[
        Path | None,
        typer.Option("--wheels", help="Take wheels only from this folder.", show_default="the index"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pack what a host without a network needs.

    Without a profile: make the file of the agent that fleet run brings to hosts; give it there with --bundle.
    With a profile: fetch all that its plan downloads into a folder; give it to run and plan with --bundle.
    """
    from agent.core.counts import count_of

    if not profile:
        _bundle_agent(platform, output or Path(), wheels, as_json=as_json)
        return
    from agent.core.errors import UsageError
    from agent.run.bundling import make_archive, make_bundle

    if len(platform) > 1:
        raise UsageError(
            "a bundle of a profile is for one platform", remedy="make one bundle for each platform"
        )
    folder = output or Path(f"bundle-{Path(profile[0]).stem}-{platform[0]}")
    request = request_of(
        profile, parameters, scenarios=scenarios, only_dependencies=dependencies, settings=settings
    )
    make = partial(
        make_bundle,
        request,
        platform[0],
        python=python,
        kernel=kernel,
        wheels=wheels,
        repositories=repositories,
        say=(lambda _text: None) if as_json else say,
    )
    made = make_archive(folder, make) if folder.suffix == ".tar" else make(folder)
    if as_json:
        from agent.store.command_documents import BundleDocument

        print_document(BundleDocument, {"bundles": [str(folder)], **made.model_dump(mode="json")})
        return
    size = sum(one.size_bytes for one in made.files)
    counts = f"{count_of(len(made.contents), 'download')} in {count_of(len(made.files), 'file')}"
    say(f"{folder}: {counts}, {size / 2**20:.1f} MiB")
    option = f"--bundle {folder.name.removesuffix('.tar')}"
    say(f"Copy it to the host, and there: vcagent --profile {' --profile '.join(profile)} {option}")


def _bundle_agent(platforms: list[str], output: Path, wheels: Path | None, *, as_json: bool) -> None:
    """Make the agent's own file for each platform."""
    from agent.core.errors import host_errors
    from agent.core.safe_files import copy_file
    from agent.fleet.bundle import Bundles, Platform

    bundles = Bundles(wheels=wheels)
    with host_errors(f"the folder {output}"):
        output.mkdir(parents=True, exist_ok=True)
    paths = []
    for text in platforms:
        made = bundles.bundle(Platform.from_text(text))
        copy_file(made.path, output.resolve() / made.path.name)
        paths.append(str(output / made.path.name))
        if not as_json:
            say(paths[-1])
    if as_json:
        from agent.store.command_documents import BundleDocument

        print_document(BundleDocument, {"bundles": paths})
