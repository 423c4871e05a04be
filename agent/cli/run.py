"""``vcagent run``: carry a profile out on this host."""

from __future__ import annotations

import os
from pathlib import Path

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


def run(
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
    verbose: Verbose = False,
    metadata: Metadata = None,
    sink: Sinks = None,
    yes: AllowReboot = False,
    arm: Arm = False,
    clean: Clean = "",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a profile: bring the host to its state, run its actions, judge and record the results."""
    from agent.cli.clean import clean_up
    from agent.run.cleaning import check_targets

    check_targets(clean)
    if clean and not profiles and not profile:
        clean_up(clean, results_dir, package_dir, yes=yes, as_json=as_json)
        return
    names = named_profiles(profiles, profile)
    from agent.cli.finish import finish
    from agent.core.hub_token import adopt_hub_token
    from agent.core.progress import run_progress
    from agent.run.session import check, start

    request = request_of(
        names,
        parameters,
        metadata,
        samples=samples,
        scenarios=scenarios,
        only_dependencies=dependencies,
        iterations=iterations,
        timeout=timeout,
        fail_fast=fail_fast,
        keep_serving=keep_serving,
        results_dir=results_dir,
        package_dir=package_dir,
        bundle=bundle,
        experiment_id=experiment_id,
        client_id=client_id,
        allow_reboot=yes,
        arm=arm,
        run_id=run_id,
        system=system,
        log_level=log_level,
        settings=settings,
        sinks=tuple(sink or ()),
    )
    adopt_hub_token(os.environ, Path(".env"))
    if clean:
        check(request)
        clean_up(clean, results_dir, package_dir, yes=yes)
    finish(start(request, run_progress(quiet=quiet or as_json, verbose=verbose)), as_json=as_json)
