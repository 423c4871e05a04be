"""The context of a step, for downloads that a bundle makes in the same way as a host."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

from agent.component.component import StepContext
from agent.core.progress import StepProgress
from agent.host.processes import LocalProcesses

if TYPE_CHECKING:
    from agent.component.downloads import Fetching


def fetching_context(fetching: Fetching, name: str) -> StepContext:
    """Return a context on this machine, whose run and packages are in the scratch folder of a bundle.

    Args:
        fetching: the bundle.
        name: the name of the download, and of its log.
    """
    return StepContext(
        fetching.facts,
        LocalProcesses("bundle"),
        StepProgress(name, None, lambda _: None),
        Event(),
        run_dir=fetching.scratch,
        package_dir=fetching.scratch,
        log=fetching.scratch / f"{name}.log",
    )
