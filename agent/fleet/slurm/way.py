"""A fleet through Slurm: what its hosts share."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from typing_extensions import override

from agent.core.errors import HostError
from agent.fleet.host_run import Way
from agent.fleet.slurm.host_run import SlurmHostRun
from agent.fleet.slurm.job_array import JobArray
from agent.fleet.slurm.nodes import nodes_of
from agent.fleet.slurm.programs import SlurmPrograms
from agent.fleet.slurm.shared_folder import SharedFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.fleet.host_run import HostPart, Surroundings
    from agent.fleet.slurm.nodes import Node


class ThroughSlurm(Way):
    """Hosts that Slurm brings the agent to.

    Args:
        around: what all hosts share.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._slurm = SlurmPrograms(around.mask)
        self._folder = SharedFolder(around.folder.parent / "slurm")
        self._array = JobArray(self._slurm, around.run_id, self._folder.path)
        self._lock = threading.Lock()
        self._known: dict[str, Node] | None = None
        self._runs: list[SlurmHostRun] = []

    @override
    def host_run(self, part: HostPart) -> SlurmHostRun:
        run = SlurmHostRun(
            part,
            self._around,
            index=len(self._runs),
            array=self._array,
            folder=self._folder,
            nodes=self._nodes,
            is_secret=self._around.mask_value(part.request) != part.request,
        )
        self._runs.append(run)
        return run

    def prepare(self, tell: Callable[[str], None]) -> None:
        """Submit the tasks of the hosts that are to be started, held.

        Args:
            tell: told what takes its time.

        Raises:
            HostError: if Slurm does not take them.
        """
        waiting = [run for run in self._runs if run.is_to_start and self._array.task(run.index) is None]
        if not waiting:
            return
        tell("making the agent ready")
        self._folder.path.mkdir(mode=0o700, exist_ok=True)
        for platform, bundle in self._around.bundles.ready():
            self._folder.put_bundle(platform, bundle)
        for run in waiting:
            run.lay_out()
        options = self._around.options
        partition = [f"--partition={options.partition}"] if options.partition else []
        indexes = [run.index for run in waiting]
        try:
            job = self._array.submit(indexes, [*partition, *options.sbatch], options.host_timeout_s)
        except HostError as error:
            raise HostError(
                f"Slurm does not take the job; nothing was started: {error.message}", remedy=error.remedy
            ) from error
        tell(f"submitted as job {job}")

    def close(self, *, complete: bool) -> None:
        """Take out of the queue what was not to start any more; tasks at work go on after an interruption."""
        if complete:
            with suppress(HostError):
                self._array.cancel()
            self._folder.clear()

    def _nodes(self) -> dict[str, Node]:
        with self._lock:
            if self._known is None:
                self._known = nodes_of(self._slurm, self._around.options.partition)
            return self._known
