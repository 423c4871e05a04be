"""The job array of a fleet run: one task per host, pinned to its node when the host's turn has come.

All tasks of an array share their options, so the array cannot name a node per task: two tasks could run on
the same node, one after the other. Therefore the array is submitted held. A task gets its node (ReqNodeList)
and is released when its host may start, which also keeps canaries and batches in order.
"""

from __future__ import annotations

import math
import shlex
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.errors import HostError
from agent.fleet.errors import HostUnfitError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from agent.fleet.slurm.programs import SlurmPrograms

_ASK_S = 5.0
"""Seconds between two calls of squeue, each for all hosts."""

_FORMAT = "%F|%K|%A|%T|%r"
_PENDING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "CONFIGURING")
_ENDS = {
    "BOOT_FAIL": "the node did not boot",
    "CANCELLED": "the job was cancelled",
    "DEADLINE": "the job ran into its deadline",
    "NODE_FAIL": "the node failed",
    "OUT_OF_MEMORY": "the job ran out of memory",
    "PREEMPTED": "the job was preempted by another",
    "TIMEOUT": "the job ran into its time limit",
}
_OVER = ("COMPLETED", "FAILED", "REVOKED", *_ENDS)
"""States that end a task (squeue(1), "JOB STATE CODES"); in any other state it is pending or running."""


@dataclass(frozen=True)
class Task:
    """One task of an array, as squeue shows it.

    Args:
        array: the array's job id.
        index: the task's number in it.
        job: the job id of the task alone.
        state: the state, in squeue's long form.
        reason: the reason why it waits, or how it ended.
    """

    array: str
    index: int
    job: int
    state: str
    reason: str = ""

    def __str__(self) -> str:
        """Return the task's id as Slurm's programs take it."""
        return f"{self.array}_{self.index}"

    @property
    def is_pending(self) -> bool:
        """True if the task has not started."""
        return self.state in _PENDING

    @property
    def is_over(self) -> bool:
        """True if the task has ended, for any reason."""
        return self.state in _OVER

    @property
    def end(self) -> str:
        """The outside cause that ended the task; empty if it ended by itself or has not ended."""
        return _ENDS.get(self.state, "")


def read_tasks(text: str) -> dict[int, Task]:
    """Parse the output of ``squeue --format=%F|%K|%A|%T|%r``: the latest task of each index."""
    tasks: dict[int, Task] = {}
    for line in text.splitlines():
        array, index, job, state, reason = (*line.split("|", 4), "", "", "", "")[:5]
        if index.isdigit() and (int(index) not in tasks or tasks[int(index)].job < int(job)):
            tasks[int(index)] = Task(array, int(index), int(job), state, "" if reason == "None" else reason)
    return tasks


def batch_script(folder: Path) -> str:
    """Return the script of the array: each task runs its own script in the shared folder."""
    return f"""\
#!/bin/sh
cd {shlex.quote(str(folder))} || exit {JobArray.NO_FOLDER}
exec sh "task-$SLURM_ARRAY_TASK_ID.sh" >"task-$SLURM_ARRAY_TASK_ID.log" 2>&1
"""


class JobArray:
    """The tasks of one fleet run; safe to use from several threads.

    Args:
        slurm: calls Slurm's programs.
        name: the job's name, by which a later controller finds it.
        folder: the folder that the nodes and the controller share.
    """

    NO_FOLDER = 66
    """The exit code of a task that cannot see the shared folder (EX_NOINPUT of sysexits.h)."""

    def __init__(self, slurm: SlurmPrograms, name: str, folder: Path) -> None:
        self._slurm = slurm
        self._name = name
        self._folder = folder
        self._lock = threading.Lock()
        self._tasks: dict[int, Task] = {}
        self._asked_at: float | None = None

    def submit(self, indexes: Iterable[int], options: Sequence[str], limit_s: float | None) -> str:
        """Submit tasks, held; return the array's job id.

        Args:
            indexes: the task numbers.
            options: additional options for sbatch; they override the agent's own.
            limit_s: the time limit of a task in seconds; None for the partition's limit.

        Raises:
            HostError: if Slurm rejects the job.
        """
        limit = [f"--time={math.ceil(limit_s / 60)}"] if limit_s else []
        answer = self._slurm.call(
            "sbatch",
            "--parsable",
            f"--job-name={self._name}",
            f"--array={','.join(map(str, indexes))}",
            "--hold",
            "--nodes=1",
            "--ntasks=1",
            "--exclusive",
            "--mem=0",
            "--no-requeue",
            "--chdir=/",
            "--output=/dev/null",
            *limit,
            *options,
            stdin=batch_script(self._folder).encode(),
        )
        self._asked_at = None
        return answer.strip().partition(";")[0]  # the rest is the cluster's name

    def release(self, index: int, node: str) -> Task:
        """Release a task to its node.

        Raises:
            HostUnfitError: if Slurm rejects it.
        """
        task = self.task(index)
        if task is None:
            raise HostUnfitError("its task is not in the queue", remedy="start it again: vcagent fleet retry")
        if not task.is_pending:  # an earlier controller released it
            return task
        try:
            self._slurm.call("scontrol", "update", f"JobId={task}", f"ReqNodeList={node}")
            self._slurm.call("scontrol", "release", str(task))
        except HostError as error:
            raise HostUnfitError(
                f"Slurm cannot assign job {task} to node {node}: {error.message}", remedy=error.remedy
            ) from error
        return task

    def task(self, index: int) -> Task | None:
        """Return a task as it was a few seconds ago; None if Slurm has removed it, minutes after its end.

        Raises:
            HostError: if Slurm does not answer.
        """
        with self._lock:
            if self._asked_at is None or time.monotonic() - self._asked_at > _ASK_S:
                options = (f"--name={self._name}", "--states=all", "--array", f"--format={_FORMAT}")
                self._tasks = read_tasks(self._slurm.call("squeue", "--noheader", *options))
                self._asked_at = time.monotonic()
            return self._tasks.get(index)

    def exit_code(self, task: Task) -> int | None:
        """Return the exit code of a task's script; None if Slurm does not show it."""
        try:
            shown = self._slurm.call("scontrol", "--oneliner", "show", "job", str(task))
        except HostError:
            return None
        codes = [word.removeprefix("ExitCode=") for word in shown.split() if word.startswith("ExitCode=")]
        code = codes[0].partition(":")[0] if codes else ""
        return int(code) if code.isdigit() else None

    def hand_over(self, task: Task, pipe: str, data: bytes) -> None:
        """Write data to a pipe on the task's node; the data touches no file on the way.

        Raises:
            HostError: if the data cannot be written.
        """
        self._slurm.call(
            *("srun", f"--jobid={task.job}", "--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "--mpi=none"),
            *("--chdir=/", "sh", "-c", 'cat >"$0"', pipe),
            stdin=data,
        )

    def cancel(self, task: Task | None = None) -> None:
        """Cancel tasks that are still in the queue.

        Args:
            task: one task; None for all.

        Raises:
            HostError: if Slurm does not answer.
        """
        self._slurm.call("scancel", str(task) if task else f"--name={self._name}")
