"""Runs commands on this host."""

from __future__ import annotations

import copy
import itertools
import os
import shlex
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from agent.core.secrets import Secrets
from agent.host.processes.contract import ProcessResult, ProcessRunner, RunningProcess
from agent.host.processes.marker import fingerprint, read_marker, wrapped
from agent.host.processes.outcome import checked, last_words, refuse_when_stopped, result_of
from agent.host.processes.output import OutputLog, last_output
from agent.host.processes.secret_line import arguments_of
from agent.host.processes.tree import (
    PROCESS_VARIABLE,
    RUN_VARIABLE,
    STEP_VARIABLE,
    UNINTERRUPTIBLE_VARIABLE,
    end_found,
    environment_of,
    processes_carrying,
    wait_for_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import psutil

    from agent.host.processes.invoked import TreeRunner

_SHELL = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
_LONG_GRACE_S = 30.0
"""Seconds between SIGTERM and SIGKILL for an uninterruptible command after its timeout."""

_PATIENCE_S = 600.0
"""Seconds for an uninterruptible command of a killed agent to finish."""


class LocalProcesses(ProcessRunner):
    """Implements ProcessRunner for this host.

    Args:
        run_id: the run's id; every child has it as a variable, so that ``kill_leftovers`` finds them.
        secrets: secrets to mask in logs, results and messages.
        stop: when set, ``run`` ends its process tree, unless it is uninterruptible, and raises
            InterruptedRunError.
        grace_s: seconds between SIGTERM and SIGKILL when a run is stopped or its time is over.
    """

    def __init__(
        self,
        run_id: str,
        *,
        secrets: Secrets | None = None,
        stop: threading.Event | None = None,
        grace_s: float = 1.0,
    ) -> None:
        self.run_id = run_id
        self.secrets = secrets or Secrets()
        self.stop = stop or threading.Event()
        self.grace_s = grace_s
        self._agent = uuid.uuid4().hex
        self._counter = itertools.count(1)
        self._lock = threading.Lock()
        self._running: set[TreeRunner] = set()
        self.step = ""
        """The key of the step that these processes belong to; empty for none."""

    def for_step(self, key: str) -> LocalProcesses:
        """Return the same processes, for one step: children have the step's key in ``VCAGENT_STEP``.

        Everything else is shared: ``stop``, the secrets, and the processes that ``stop_all`` ends.
        """
        view = copy.copy(self)
        view.step = key
        return view

    @override
    def run(
        self,
        command: Sequence[str] | str,
        *,
        log: Path,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        check: bool = True,
        on_line: Callable[[str], None] | None = None,
        marker: Path | None = None,
        uninterruptible: bool = False,
        copies: Mapping[str, Path] | None = None,
    ) -> ProcessResult:
        argv, shown, extra = self._spelled(command)
        mark = fingerprint([_SHELL, "-c", command] if isinstance(command, str) else argv, cwd)
        if marker and (ended := read_marker(marker, mark)):
            said = last_output(log, shown)
            result = ProcessResult(
                shown, ended.exit_code, said, "", ended.duration_s, timed_out=False, log=log, adopted=True
            )
            return checked(result, said.splitlines()) if check else result
        refuse_when_stopped(self.stop, shown)
        if marker:
            marker.unlink(missing_ok=True)
            argv, noting = wrapped(argv, marker, mark)
            extra |= noting

        output = OutputLog(log, shown, self.secrets, on_line, copies)
        runner = self._runner(output, env, extra, cwd, uninterruptible=uninterruptible)
        try:
            runner.run_to_end(argv, timeout_s)
        finally:
            self._forget(runner)
        if (
            marker and runner.ended_by != "itself"
        ):  # then the marker shows how it was stopped, not how it ended
            marker.unlink(missing_ok=True)
        result = result_of(
            runner, runner.exit_code, shown=shown, log=log, stop=self.stop, uninterruptible=uninterruptible
        )
        return checked(result, last_words(runner.output, result.stderr)) if check else result

    @override
    def start(
        self,
        command: Sequence[str] | str,
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> RunningProcess:
        argv, shown, extra = self._spelled(command)
        refuse_when_stopped(self.stop, shown)
        runner = self._runner(OutputLog(log, shown, self.secrets), env, extra, cwd)
        return _Background(runner, argv, self._forget)

    def stop_all(self) -> None:
        """End every process tree that still runs, and wait for uninterruptible ones.

        Called when the agent ends, for whatever reason.
        """
        with self._lock:
            running = list(self._running)

        def end(runner: TreeRunner) -> None:
            if not runner.uninterruptible:
                runner.end(self.grace_s)
            runner.finish()
            self._forget(runner)

        threads = [threading.Thread(target=end, args=(runner,)) for runner in running]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def kill_leftovers(self, unfinished: Collection[str] | None = None) -> int:
        """End processes that a killed agent left running for this run; return their number.

        Only processes of this user that carry the run's id are ended, and none of this agent's own.
        Uninterruptible processes get ten minutes to finish.

        Args:
            unfinished: keys of the steps that did not finish. Processes of a finished step, such as a
                service, are kept; processes without a step, such as a monitor's command, are ended. None for
                all.
        """
        patient = self._leftovers(unfinished, uninterruptible=True)
        wait_for_all(patient, _PATIENCE_S)
        ended = end_found(
            lambda: [*self._leftovers(unfinished, uninterruptible=False), *patient], self.grace_s
        )
        return len({*patient, *ended})

    def _leftovers(
        self, unfinished: Collection[str] | None, *, uninterruptible: bool
    ) -> list[psutil.Process]:
        """Return processes of this run that another agent started."""
        leftovers = []
        for process in processes_carrying(RUN_VARIABLE, self.run_id):
            try:
                environment = environment_of(process.pid)
            except OSError:
                continue
            step = environment.get(STEP_VARIABLE, "")
            if environment.get(PROCESS_VARIABLE, "").startswith(f"{self._agent}."):
                continue
            asked_for = unfinished is None or not step or step in unfinished
            if asked_for and bool(environment.get(UNINTERRUPTIBLE_VARIABLE)) == uninterruptible:
                leftovers.append(process)
        return leftovers

    def _spelled(self, command: Sequence[str] | str) -> tuple[list[str], str, dict[str, str]]:
        """Return the arguments, their displayed form, and the variables that they need."""
        if isinstance(command, str):
            argv, extra = arguments_of(command, _SHELL, self.secrets)
            return argv, self.secrets.mask(command), extra
        argv = [str(part) for part in command]
        return argv, self.secrets.mask(shlex.join(argv)), {}

    def _runner(
        self,
        output: OutputLog,
        env: Mapping[str, str] | None,
        extra: Mapping[str, str],
        cwd: Path | None,
        *,
        uninterruptible: bool = False,
    ) -> TreeRunner:
        from agent.host.processes.invoked import TreeRunner

        mark = f"{self._agent}.{next(self._counter)}"
        environment = {**os.environ, "LC_ALL": "C", **(env or {}), **extra}
        environment |= {
            RUN_VARIABLE: self.run_id,
            STEP_VARIABLE: self.step,
            PROCESS_VARIABLE: mark,
            UNINTERRUPTIBLE_VARIABLE: "1" if uninterruptible else "",
        }
        runner = TreeRunner(
            output,
            environment=environment,
            cwd=cwd,
            mark=mark,
            stop_event=self.stop,
            grace_s=max(self.grace_s, _LONG_GRACE_S) if uninterruptible else self.grace_s,
            uninterruptible=uninterruptible,
        )
        with self._lock:
            self._running.add(runner)
        return runner

    def _forget(self, runner: TreeRunner) -> None:
        with self._lock:
            self._running.discard(runner)


class _Background:
    """A command in the background; implements RunningProcess."""

    def __init__(self, runner: TreeRunner, argv: Sequence[str], forget: Callable[[TreeRunner], None]) -> None:
        self._runner = runner
        self._forget = forget
        try:
            runner.launch(argv)
        except BaseException:
            self._close()
            raise
        self.pid = runner.process_id

    def poll(self) -> int | None:
        if not self._runner.finished:
            return None
        self._close()
        return self._runner.exit_code

    def tail(self, lines: int = 20) -> tuple[str, ...]:
        return self._runner.output.lines(lines)

    def stop(self, grace_s: float = 5.0) -> int:
        self._runner.end(grace_s)
        self._close()
        return self._runner.exit_code

    def _close(self) -> None:
        self._runner.finish()
        self._forget(self._runner)
