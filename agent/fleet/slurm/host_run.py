"""One host as a task of a Slurm job array."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from agent.core.errors import ExitCode, HostError
from agent.fleet.bundle import Platform
from agent.fleet.commands import NEWER_PYTHON, NO_PYTHON
from agent.fleet.errors import HostUnfitError, UnreachableError
from agent.fleet.host_run import STOPPED, HostRun
from agent.fleet.remote.standing import RunState, Standing
from agent.fleet.scheduling import Wait
from agent.fleet.slurm.job_array import JobArray
from agent.fleet.slurm.programs import REMEDY
from agent.fleet.status import HostPhase
from agent.store.journal import now

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.fleet.host_run import HostPart, Surroundings
    from agent.fleet.scheduling import Task as Work
    from agent.fleet.slurm.job_array import Task
    from agent.fleet.slurm.nodes import Node
    from agent.fleet.slurm.shared_folder import SharedFolder

_LOOK_S = 1.0
_HOPELESS = (NO_PYTHON, JobArray.NO_FOLDER)
"""The exit codes of a script that could not write any output."""
_SETTLE_S = 20.0
"""Seconds after a task's end until its last files must be visible here: NFS may lag."""


class SlurmHostRun(HostRun):
    """One host that is reached through Slurm.

    Args:
        part: the host's part in the run.
        around: the settings that all hosts share.
        index: the number of its task in the array.
        array: the job array.
        folder: the folder that the nodes and the controller share.
        nodes: returns the nodes of the cluster.
        is_secret: whether the request contains secrets and must not be written to a file.
    """

    def __init__(
        self,
        part: HostPart,
        around: Surroundings,
        *,
        index: int,
        array: JobArray,
        folder: SharedFolder,
        nodes: Callable[[], Mapping[str, Node]],
        is_secret: bool,
    ) -> None:
        super().__init__(part, around)
        self.index = index
        self._array = array
        self._folder = folder
        self._nodes = nodes
        self._is_secret = is_secret

    @property
    def is_to_start(self) -> bool:
        """True if the host needs a task in the queue."""
        return not self.status.starts and not self.status.phase.is_final

    @override
    def check(self, *, keep_open: bool) -> Work[None]:
        self.set(phase=HostPhase.CONNECTING)
        name = self.host.address
        node = self._nodes().get(name)
        if node is None:
            raise HostUnfitError(
                f"node {name} is not in the cluster or the partition",
                remedy="sinfo --Node lists them; address: in the inventory is the node's name",
            )
        if not node.is_usable:
            raise UnreachableError(f"node {name} is {node.state}" + (node.reason and f": {node.reason}"))
        self.set(phase=HostPhase.WAITING)
        yield from ()

    def lay_out(self) -> None:
        """Write the task's files, before the task is submitted."""
        home = self._around.folder.absolute() / self.status.folder
        order = {
            "run": f"{self._around.run_id}.{self.status.folder}",
            "home": str(home),
            "request": None if self._is_secret else {**self._request, "resume": False},
        }
        self._folder.put_order(self.index, self.host.python, order)

    @override
    def carry_out(self) -> Work[None]:
        if not self.status.starts:
            task = self._array.release(self.index, self.host.address)
            self.set(phase=HostPhase.QUEUED, job=str(task), starts=1)
        self.judge((yield from self._followed()))

    @override
    def stop(self) -> Work[None]:
        self.stopping = True
        if task := self._array.task(self.index):
            self._array.cancel(task)
        yield from ()

    def _followed(self) -> Work[Standing]:
        """Follow the task until it has copied its files home, or Slurm has ended it."""
        silent_since: float | None = None
        over_since: float | None = None
        while True:
            standing = self._folder.standing(self.index)
            if standing and standing.state is not RunState.RUNNING:
                return (yield from self._explained(standing))
            try:
                task = self._array.task(self.index)
                silent_since = None
            except HostError as error:
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > self._around.options.reconnect_timeout_s:
                    raise UnreachableError(
                        f"Slurm does not answer: {error.message}",
                        remedy=f"when it answers again: vcagent fleet resume {self._around.run_id}",
                    ) from error
                self.set(phase=HostPhase.LOST, message=error.message)
                yield Wait(_LOOK_S)
                continue
            if task is None or task.is_over:
                code = self._array.exit_code(task) if task and over_since is None else None
                over_since = over_since or time.monotonic()
                if code in _HOPELESS or time.monotonic() - over_since > _SETTLE_S:
                    raise self._ended(task)
                self._folder.look_again()
            elif task.is_pending:
                self.set(phase=HostPhase.QUEUED, message=task.reason)
            else:
                self._answer(task)
                self._show(standing)
            yield Wait(_LOOK_S)

    def _show(self, standing: Standing | None) -> None:
        """Record that the task is running."""
        started = self.status.started or now().isoformat()
        if standing is None:
            self.set(phase=HostPhase.PREPARING, started=started, message="the job has started")
        else:
            self.set(phase=HostPhase.RUNNING, started=started, step=standing.step, message=standing.message)

    def _answer(self, task: Task) -> None:
        """Send the task what it waits for."""
        wanted = self._folder.wanted(self.index)
        if "platform" in wanted:
            platform = Platform.from_text(wanted["platform"])
            self.set(message=f"preparing the agent for {platform}", platform=str(platform))
            self._folder.put_bundle(platform, self._around.bundles.bundle(platform))
        if "pipe" in wanted:
            request = {**self._request, "resume": False}
            self._array.hand_over(task, wanted["pipe"], json.dumps(request).encode())
        if wanted:
            self._folder.answered(self.index)

    def _explained(self, standing: Standing) -> Work[Standing]:
        """Return the standing of a run that ended, with Slurm's reason if it was interrupted or died."""
        if standing.state is RunState.ENDED and standing.exit_code != ExitCode.INTERRUPTED:
            return standing
        until = time.monotonic() + _SETTLE_S
        told = "the agent was ended on the node"
        with suppress(HostError):
            while (task := self._array.task(self.index)) and not task.is_over and time.monotonic() < until:
                yield Wait(_LOOK_S)
            told = (task and task.end) or told
        if self.stopping:
            return replace(standing, exit_code=int(ExitCode.INTERRUPTED))
        exit_code = int(ExitCode.INTERRUPTED if standing.exit_code is None else standing.exit_code)
        return replace(standing, exit_code=exit_code, error=f"{told}, before the run was done")

    def _ended(self, task: Task | None) -> HostUnfitError:
        """Return the error of a task that ended without results."""
        said = self._folder.said(self.index)
        if self.stopping:
            return HostUnfitError(STOPPED)
        if task is None:
            return HostUnfitError(
                f"job {self.status.job} is no longer in the queue, and left no results",
                remedy=f"sacct --jobs={self.status.job} may show the reason",
            )
        if task.end:
            return HostUnfitError(f"{task.end} (job {task})", details=(said,) if said else ())
        code = self._array.exit_code(task)
        if code == NO_PYTHON:
            return HostUnfitError(
                "no Python 3.10 or newer found",
                remedy=f"{NEWER_PYTHON}, or name one with python: in the inventory",
            )
        if code == JobArray.NO_FOLDER:
            return HostUnfitError(
                f"the node cannot see {self._folder.path}",
                remedy="put --results-dir on a file system that the nodes share",
            )
        return HostUnfitError(
            f"job {task} ended with exit code {code} and left no results",
            details=(said,) if said else (),
            remedy=REMEDY,
        )
