"""``vcagent resume``: go on with a run that was killed, interrupted, or failed."""

from __future__ import annotations

import os
from pathlib import Path

from agent.cli.options import AllowReboot, Arm, AsJson, Parameters, Quiet, ResultsDir, Run, Verbose, pairs


def resume(
    run: Run = None,
    results_dir: ResultsDir = Path("results"),
    parameters: Parameters = None,
    yes: AllowReboot = False,
    arm: Arm = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Continue a run where it stopped; completed steps are not repeated."""
    from agent.cli.finish import finish
    from agent.core.hub_token import adopt_hub_token
    from agent.core.progress import run_progress
    from agent.run.session import resume as resume_run

    adopt_hub_token(os.environ, Path(".env"))
    progress = run_progress(quiet=quiet or as_json, verbose=verbose)
    finished = resume_run(results_dir, run, progress, pairs(parameters), allow_reboot=yes, arm=arm)
    finish(finished, as_json=as_json)
