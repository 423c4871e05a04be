"""Fetch the official checker at a pinned commit, with the profile that clones it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from agent.core.errors import DependencyFailedError, ExitCode

if TYPE_CHECKING:
    from agent.run.session import FinishedRun


def fetch(profile: str, package_dir: Path | None) -> None:
    """Run the profile; keep only the checkout of its run.

    Args:
        profile: the profile's name.
        package_dir: the package folder; None for the default one.

    Raises:
        DependencyFailedError: if the profile fails.
    """
    from agent.core.progress import run_progress
    from agent.run.request import RunRequest
    from agent.run.session import start

    with TemporaryDirectory(prefix="vcagent-fetch-") as folder:
        request = RunRequest((profile,), results_dir=Path(folder), package_dir=package_dir)
        finished: FinishedRun = start(request, run_progress(quiet=True))
        if finished.outcome.exit_code is not ExitCode.OK:
            raise DependencyFailedError(
                "the official checker could not be fetched",
                remedy="clone https://github.com/mlcommons/inference and set MLPERF_INFERENCE_REPO to it",
            )
