"""The Slurm transport: everything that its hosts share."""

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
    """Reaches hosts through Slurm.

    Args:
        around: the settings that all hosts share.
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
        """Submit the tasks of the hosts to be started, held.

        Args:
            tell: called with a message before a step that takes long.

        Raises:
            HostError: if Slurm rejects the job.
        """
        waiting = [run for run in self._runs if run.is_to_start and self._array.task(run.index) is None]
        if not waiting:
            return
        tell("preparing the agent")
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
                f"Slurm rejected the job; nothing was started: {error.message}", remedy=error.remedy
            ) from error
        tell(f"submitted as job {job}")

    def close(self, *, complete: bool) -> None:
        """Cancel tasks that have not started; after an interruption, running tasks continue."""
        if complete:
            with suppress(HostError):
                self._array.cancel()
            self._folder.clear()

    def _nodes(self) -> dict[str, Node]:
        with self._lock:
            if self._known is None:
                self._known = nodes_of(self._slurm, self._around.options.partition)
            return self._known
