"""``vcagent plan``: what a profile would do on this host, and why; nothing is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli.options import (
    AllowReboot,
    Arm,
    AsJson,
    BundleFolder,
    Clean,
    ClientId,
    ExperimentId,
    FailFast,
    Iterations,
    KeepServing,
    LogLevel,
    Metadata,
    OnlyDependencies,
    PackageDir,
    Parameters,
    ProfileArguments,
    Profiles,
    Quiet,
    ResultsDir,
    RunId,
    Samples,
    Scenarios,
    Settings,
    Sinks,
    System,
    Timeout,
    Verbose,
    named_profiles,
    request_of,
)

if TYPE_CHECKING:
    from agent.planning.planner import PlannedComponent


def plan(
    profiles: ProfileArguments = None,
    profile: Profiles = None,
    parameters: Parameters = None,
    samples: Samples = None,
    scenarios: Scenarios = "",
    dependencies: OnlyDependencies = False,
    settings: Settings = None,
    iterations: Iterations = None,
    timeout: Timeout = "",
    fail_fast: FailFast = False,
    keep_serving: KeepServing = False,
    results_dir: ResultsDir = Path("results"),
    package_dir: PackageDir = None,
    bundle: BundleFolder = None,
    experiment_id: ExperimentId = "",
    client_id: ClientId = "",
    run_id: RunId = "",
    system: System = "",
    log_level: LogLevel = "debug",
    metadata: Metadata = None,
    sink: Sinks = None,
    yes: AllowReboot = False,
    arm: Arm = False,
    clean: Clean = "",
    verbose: Verbose = False,
    quiet: Quiet = False,
    commands: Annotated[
        bool, typer.Option("--commands", help="Also show each step's command, and whole reasons.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show every step that a profile would take on this host, with its reason, and change nothing.

    It accepts the options of run and checks them. Options that do not change the steps have no effect here.
    """
    del quiet
    from agent.core.errors import ExitCode
    from agent.run.cleaning import check_targets
    from agent.run.session import plan as plan_run

    check_targets(clean)
    request = request_of(
        named_profiles(profiles, profile),
        parameters,
        metadata,
        samples=samples,
        settings=settings,
        iterations=iterations,
        timeout=timeout,
        fail_fast=fail_fast,
        keep_serving=keep_serving,
        experiment_id=experiment_id,
        client_id=client_id,
        run_id=run_id,
        system=system,
        log_level=log_level,
        allow_reboot=yes,
        arm=arm,
        scenarios=scenarios,
        only_dependencies=dependencies,
        package_dir=package_dir,
        bundle=bundle,
        results_dir=results_dir,
        sinks=tuple(sink or ()),
    )
    planned = plan_run(request)
    is_refused = any(component.error for component in planned.components)
    if as_json:
        from agent.cli.output import print_document
        from agent.store.command_documents import PlanDocument

        print_document(
            PlanDocument,
            {
                "profile": planned.profile.name,
                "timeout": planned.timeout.meaning if planned.timeout else None,
                "step_count": len(planned.estimates_s),
                "refused": is_refused,
                "components": [_as_dict(component, planned.iterations) for component in planned.components],
            },
        )
    else:
        from agent.core.terminal import safe_console
        from agent.report.plan_text import render_plan

        rounds = planned.timeout.meaning if planned.timeout else ""
        if planned.iterations > 1:
            rounds = f"The actions run {planned.iterations} times, in rounds."
        render_plan(
            planned.components,
            safe_console(highlight=False),
            estimates_s=planned.estimates_s,
            package_dir=planned.package_dir,
            rounds=rounds,
            show_commands=commands or verbose,
        )
    if is_refused:
        raise typer.Exit(ExitCode.HOST_CANNOT_RUN)


def _as_dict(component: PlannedComponent, iterations: int) -> dict[str, Any]:
    rounds = iterations if component.element.kind == "action" else 1
    return {
        "key": component.element.key,
        "kind": component.element.kind,
        "type": component.element.type,
        "scenario": component.scenario or None,
        "standing": component.standing.value,
        "note": component.note,
        "remedy": component.error.remedy if component.error else None,
        "groups": [
            f"{group.scenario}: {group.order}" if group.scenario else group.order
            for group in component.groups
        ],
        "repeats": component.repeats * rounds,
        "steps": [
            {
                "name": step.name,
                "reason": step.reason,
                "command": step.command,
                "estimate_s": step.estimate_s,
            }
            for step in (component.plan.steps if component.plan else ())
        ],
    }
