"""``vcagent plan``: what a profile would do on this host, and why; nothing is done."""

from __future__ import annotations

from pathlib import Path

import typer

from agent.cli.options import (
    AllowReboot,
    Arm,
    AsJson,
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
    Profiles,
    Quiet,
    ResultsDir,
    RunId,
    Samples,
    Scenarios,
    Settings,
    System,
    Timeout,
    Verbose,
    request_of,
)


def plan(
    profile: Profiles,
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
    experiment_id: ExperimentId = "",
    client_id: ClientId = "",
    run_id: RunId = "",
    system: System = "",
    log_level: LogLevel = "debug",
    metadata: Metadata = None,
    yes: AllowReboot = False,
    arm: Arm = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show every step that a profile would take on this host, with its reason, and change nothing.

    It takes the options of run, and checks them; those that only say how a run goes on change nothing here.
    """
    del verbose, quiet
    from agent.core.errors import ExitCode
    from agent.run.session import plan as plan_run

    request = request_of(
        profile,
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
        results_dir=results_dir,
    )
    planned_profile, planned = plan_run(request)
    if as_json:
        from agent.cli.output import print_json

        print_json(
            {
                "profile": planned_profile.name,
                "components": [
                    {
                        "key": component.element.key,
                        "kind": component.element.kind,
                        "type": component.element.type,
                        "standing": component.standing.value,
                        "note": component.note,
                        "remedy": component.error.remedy if component.error else None,
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
                    for component in planned
                ],
            }
        )
    else:
        from agent.core.terminal import safe_console
        from agent.report import render_plan

        render_plan(planned, safe_console())
    if any(component.error for component in planned):
        raise typer.Exit(ExitCode.HOST_CANNOT_RUN)
