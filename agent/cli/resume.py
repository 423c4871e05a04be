"""``vcagent resume``: go on with a run that was killed, interrupted, or failed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.options import AllowReboot, Arm, AsJson, Parameters, ResultsDir

__all__ = ["resume"]


def resume(
    run: Annotated[
        str | None,
        typer.Argument(help="The run's id, its beginning, or its folder.", show_default="the latest"),
    ] = None,
    results_dir: ResultsDir = Path("results"),
    parameters: Parameters = None,
    yes: AllowReboot = False,
    arm: Arm = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a run where it stopped: what is done is not done again."""
    from agent.cli.finish import finish
    from agent.profile import parse_parameters
    from agent.progress import run_progress
    from agent.run import resume as resume_run

    values = {name: value for text in parameters or [] for name, value in parse_parameters(text).items()}
    progress = run_progress(quiet=quiet or as_json)
    finish(resume_run(results_dir, run, progress, values, allow_reboot=yes, arm=arm), as_json=as_json)
