"""``vcagent resume``: go on with a run that was killed, interrupted, or failed."""

from __future__ import annotations

from pathlib import Path

from agent.cli.options import AllowReboot, Arm, AsJson, Parameters, Quiet, ResultsDir, Run, pairs

__all__ = ["resume"]


def resume(
    run: Run = None,
    results_dir: ResultsDir = Path("results"),
    parameters: Parameters = None,
    yes: AllowReboot = False,
    arm: Arm = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a run where it stopped: what is done is not done again."""
    from agent.cli.finish import finish
    from agent.core.progress import run_progress
    from agent.run.session import resume as resume_run

    progress = run_progress(quiet=quiet or as_json)
    finished = resume_run(results_dir, run, progress, pairs(parameters), allow_reboot=yes, arm=arm)
    finish(finished, as_json=as_json)
