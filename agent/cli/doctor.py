"""``vcagent doctor``: whether this host is fit to run, in general or for a profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli.completion import complete_profiles
from agent.cli.options import AsJson, BundleFolder, PackageDir, Parameters, ProfileArguments, request_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.doctor.check import Check

OptionalProfiles = Annotated[
    list[str] | None,
    typer.Option(
        "--profile",
        "-p",
        help="Also check whether this profile can run here.",
        show_default=False,
        autocompletion=complete_profiles,
    ),
]


def doctor(
    profiles: ProfileArguments = None,
    profile: OptionalProfiles = None,
    parameters: Parameters = None,
    package_dir: PackageDir = None,
    bundle: BundleFolder = None,
    results_dir: Annotated[Path, typer.Option(help="The folder of all runs.")] = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Check what a run needs on this host, and name a remedy for each problem; nothing is changed."""
    import tempfile

    from agent.core.errors import ExitCode
    from agent.doctor.amd_gpus import check_amd_gpus
    from agent.doctor.check import Status
    from agent.doctor.gpus import check_gpus
    from agent.doctor.host import check_host
    from agent.doctor.profile import agree, check_plan, check_secrets, check_servers, for_profile
    from agent.facts import Facts, LocalHost
    from agent.facts.agent_paths import PACKAGE_DIR

    modelled = {PACKAGE_DIR.name: package_dir.absolute()} if package_dir else {}
    facts = Facts(LocalHost(), modelled)
    checks = check_host(facts, results_dir.absolute(), Path(tempfile.gettempdir()))
    gpu_checks = check_gpus(facts) + check_amd_gpus(facts)
    if named := [*(profiles or ()), *(profile or ())]:
        from agent.run.session import plan

        run = plan(
            request_of(named, parameters, package_dir=package_dir, bundle=bundle, results_dir=results_dir),
            folders=False,
        )
        read, planned = run.profile, run.components
        checks = agree([*checks, *for_profile(gpu_checks, planned)], planned)
        checks += check_secrets(read) + check_plan(planned)
        if bundle is None:
            checks += check_servers(planned, facts)
    else:
        checks += gpu_checks
    if as_json:
        import dataclasses

        from agent.cli.output import print_document
        from agent.store.command_documents import DoctorDocument

        rows = [dataclasses.asdict(check) for check in checks]
        print_document(DoctorDocument, {"summary": _summary(checks), "checks": rows})
    else:
        _show(checks)
    if any(check.status is Status.PROBLEM for check in checks):
        raise typer.Exit(ExitCode.HOST_CANNOT_RUN)


def _show(checks: Sequence[Check]) -> None:
    """Print problems, then warnings, then the rest; checks with the same cause are one entry."""
    from rich.text import Text

    from agent.core.layout import print_entry
    from agent.core.terminal import safe_console
    from agent.doctor.check import Status

    console = safe_console(highlight=False)
    styles = {Status.PROBLEM: "bold red", Status.WARNING: "yellow", Status.OK: "green"}
    width = max(len(status.value) for status in Status) + 2
    for status, style in styles.items():
        causes: dict[tuple[str, str], list[str]] = {}
        for check in checks:
            if check.status is status:
                causes.setdefault((check.message, check.remedy), []).append(check.name)
        for (message, remedy), names in causes.items():
            lead = Text(f"{status.value:<{width}}", style)
            print_entry(console, lead, f"{', '.join(dict.fromkeys(names))}: {message}", indent=width)
            if remedy:
                print_entry(console, Text(" " * width + "→ "), remedy, indent=width + 2)
    console.print(Text(_summary(checks), style="bold"), soft_wrap=True)


def _summary(checks: Sequence[Check]) -> str:
    """Return one sentence about all checks."""
    from agent.core.counts import count_of
    from agent.doctor.check import Status

    counts = {status: sum(check.status is status for check in checks) for status in Status}
    problems, warnings = counts[Status.PROBLEM], counts[Status.WARNING]
    return (
        f"{count_of(problems, 'problem') if problems else 'No problem'}, "
        f"{count_of(warnings, 'warning') if warnings else 'no warning'}; "
        f"{counts[Status.OK]} of {count_of(len(checks), 'check')} passed."
    )
