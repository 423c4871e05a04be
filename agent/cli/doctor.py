"""``vcagent doctor``: whether this host is fit to run, in general or for a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.options import AsJson, PackageDir, Parameters, request_of

OptionalProfiles = Annotated[
    list[str] | None,
    typer.Option("--profile", "-p", help="Also see whether this profile can run here.", show_default=False),
]


def doctor(
    profile: OptionalProfiles = None,
    parameters: Parameters = None,
    package_dir: PackageDir = None,
    results_dir: Annotated[Path, typer.Option(help="Where results will be written.")] = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Look at what a run needs of this host and say what to do about what is missing; changes nothing."""
    import tempfile

    from agent.core.errors import ExitCode
    from agent.doctor import (
        Status,
        agree,
        check_amd_gpus,
        check_gpus,
        check_host,
        check_plan,
        check_secrets,
        check_servers,
    )
    from agent.facts import Facts, LocalHost
    from agent.facts.agent_paths import PACKAGE_DIR

    modelled = {PACKAGE_DIR.name: package_dir.absolute()} if package_dir else {}
    facts = Facts(LocalHost(), modelled)
    checks = check_host(facts, results_dir.absolute(), Path(tempfile.gettempdir()))
    checks += check_gpus(facts) + check_amd_gpus(facts)
    if profile:
        from agent.run.session import plan

        read, planned = plan(
            request_of(profile, parameters, package_dir=package_dir, results_dir=results_dir), folders=False
        )
        checks = agree(checks, planned)
        checks += check_secrets(read) + check_plan(planned) + check_servers(planned, facts)
    if as_json:
        import dataclasses

        from agent.cli.output import print_json

        print_json([dataclasses.asdict(check) for check in checks])
    else:
        from rich.table import Table
        from rich.text import Text

        from agent.core.terminal import safe_console

        styles = {Status.OK: "green", Status.WARNING: "yellow", Status.PROBLEM: "bold red"}
        table = Table("", "check", "found", "what to do", box=None, pad_edge=False, header_style="bold")
        for check in checks:
            status = Text(check.status.value, styles[check.status])
            table.add_row(status, Text(check.name), Text(check.message), Text(check.remedy))
        safe_console(highlight=False).print(table)
    if any(check.status is Status.PROBLEM for check in checks):
        raise typer.Exit(ExitCode.HOST_CANNOT_RUN)
