"""The job array of a fleet run: a task a host, each pinned to its node when the host's turn has come.

All tasks of an array share their options, so that an array alone cannot name a node for each: two tasks could
land on one node, one after the other. It is submitted held, therefore; a task gets its node (ReqNodeList) and
is released when its host may start. That is also what keeps canaries and batches in order.
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
"""How often squeue is asked, once for all hosts."""

_FORMAT = "%F|%K|%A|%T|%r"
_PENDING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "CONFIGURING")
_ENDS = {
    "BOOT_FAIL": "the node did not boot",
    "CANCELLED": "the job was cancelled",
    "DEADLINE": "the job ran into its deadline",
    "NODE_FAIL": "the node failed",
    "OUT_OF_MEMORY": "the job ran out of memory",
    "PREEMPTED": "the job had to give way to another",
    "TIMEOUT": "the job ran into its time limit",
}
_OVER = ("COMPLETED", "FAILED", "REVOKED", *_ENDS)
"""States of squeue(1), "JOB STATE CODES"; one that is none of these is at work."""


@dataclass(frozen=True)
class Task:
    """One task of an array, as squeue tells it.

    Args:
        array: the array's job id.
        index: the task's number in it.
        job: the job id of the task alone.
        state: as squeue writes it in full.
        reason: why it waits, or how it ended.
    """

    array: str
    index: int
    job: int
    state: str
    reason: str = ""

    def __str__(self) -> str:
        """As Slurm's programs take it."""
        return f"{self.array}_{self.index}"

    @property
    def is_pending(self) -> bool:
        """Whether it has not begun."""
        return self.state in _PENDING

    @property
    def is_over(self) -> bool:
        """Whether it has ended, however."""
        return self.state in _OVER

    @property
    def end(self) -> str:
        """What ended it from outside; empty if it ended by itself or has not."""
        return _ENDS.get(self.state, "")


def read_tasks(text: str) -> dict[int, Task]:
    """What ``squeue --format=%F|%K|%A|%T|%r`` prints: the latest task of each index."""
    tasks: dict[int, Task] = {}
    for line in text.splitlines():
        array, index, job, state, reason = (*line.split("|", 4), "", "", "", "")[:5]
        if index.isdigit() and (int(index) not in tasks or tasks[int(index)].job < int(job)):
            tasks[int(index)] = Task(array, int(index), int(job), state, "" if reason == "None" else reason)
    return tasks


def batch_script(folder: Path) -> str:
    """What each task runs: its own script in the folder that the nodes and the controller share."""
    return f"""\
#!/bin/sh
cd {shlex.quote(str(folder))} || exit {JobArray.NO_FOLDER}
exec sh "task-$SLURM_ARRAY_TASK_ID.sh" >"task-$SLURM_ARRAY_TASK_ID.log" 2>&1
"""


class JobArray:
    """The tasks of one fleet run; safe to use from several threads.

    Args:
        slurm: calls Slurm's programs.
        name: the job's name, by which it is found again after the controller's death.
        folder: the folder that the nodes and the controller share.
    """

    NO_FOLDER = 66
    """What a task ends with that does not see the shared folder (EX_NOINPUT of sysexits.h)."""

    def __init__(self, slurm: SlurmPrograms, name: str, folder: Path) -> None:
        self._slurm = slurm
        self._name = name
        self._folder = folder
        self._lock = threading.Lock()
        self._tasks: dict[int, Task] = {}
        self._asked_at: float | None = None

    def submit(self, indexes: Iterable[int], options: Sequence[str], limit_s: float | None) -> str:
        """Put tasks into the queue, held; the array's job id.

        Args:
            indexes: their numbers.
            options: more of sbatch's; where they say otherwise than ours, they count.
            limit_s: seconds that a task may take; None for the partition's limit.

        Raises:
            HostError: if Slurm does not take them.
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
        return answer.strip().partition(";")[0]  # what follows is the cluster's name

    def release(self, index: int, node: str) -> Task:
        """Let a task go to its node.

        Raises:
            HostUnfitError: if Slurm does not take it there.
        """
        task = self.task(index)
        if task is None:
            raise HostUnfitError("its task is not in the queue", remedy="vcagent fleet retry starts it anew")
        if not task.is_pending:  # an earlier controller has released it
            return task
        try:
            self._slurm.call("scontrol", "update", f"JobId={task}", f"ReqNodeList={node}")
            self._slurm.call("scontrol", "release", str(task))
        except HostError as error:
            raise HostUnfitError(
                f"Slurm does not take job {task} to node {node}: {error.message}", remedy=error.remedy
            ) from error
        return task

    def task(self, index: int) -> Task | None:
        """A task as it was a few seconds ago; None if Slurm has forgotten it, minutes after its end.

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
        """The exit code of a task's script; None where Slurm does not tell."""
        try:
            shown = self._slurm.call("scontrol", "--oneliner", "show", "job", str(task))
        except HostError:
            return None
        codes = [word.removeprefix("ExitCode=") for word in shown.split() if word.startswith("ExitCode=")]
        code = codes[0].partition(":")[0] if codes else ""
        return int(code) if code.isdigit() else None

    def hand_over(self, task: Task, pipe: str, data: bytes) -> None:
        """Write to a pipe on the task's node; what is written touches no file on the way.

        Raises:
            HostError: if that does not work.
        """
        self._slurm.call(
            *("srun", f"--jobid={task.job}", "--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "--mpi=none"),
            *("--chdir=/", "sh", "-c", 'cat >"$0"', pipe),
            stdin=data,
        )

    def cancel(self, task: Task | None = None) -> None:
        """Take out of the queue what is still there.

        Args:
            task: one task; None for all.

        Raises:
            HostError: if Slurm does not answer.
        """
        self._slurm.call("scancel", str(task) if task else f"--name={self._name}")
