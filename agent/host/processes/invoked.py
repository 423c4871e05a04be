"""invoke's local runner, extended to bound its memory, end whole process trees and stop on request."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, Literal, cast

from invoke.config import Config
from invoke.context import Context
from invoke.exceptions import ThreadException
from invoke.runners import Local, Promise

from agent.core.errors import ActionFailedError, InterruptedRunError
from agent.host.processes.outcome import ended_with_run
from agent.host.processes.tree import end_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.host.processes.output import OutputLog

_NOT_FOUND = 127
_REAP_S = 5.0
_DRAIN_S = 1.0
"""Seconds of silence after a command's end before a pipe that its background children hold is left."""

EndedBy = Literal["itself", "stop", "timeout"]


class TreeRunner(Local):
    """Runs one command in a session of its own.

    Args:
        output: receives its output; invoke itself stores nothing.
        environment: all of its variables.
        cwd: the folder to run in.
        mark: the value of its ``VCAGENT_PROCESS``, by which its descendants are found.
        stop_event: when set, the tree is ended.
        grace_s: seconds between SIGTERM and SIGKILL.
        uninterruptible: True if the stop event does not end it; a timeout still does.
    """

    read_chunk_size = 65_536

    def __init__(
        self,
        output: OutputLog,
        *,
        environment: Mapping[str, str],
        cwd: Path | None,
        mark: str,
        stop_event: threading.Event,
        grace_s: float,
        uninterruptible: bool = False,
    ) -> None:
        super().__init__(Context(Config(lazy=True)))
        self.output = output
        self.ended_by: EndedBy = "itself"
        self.uninterruptible = uninterruptible
        self._environment = dict(environment)
        self._cwd = cwd
        self._mark = mark
        self._stop_event = stop_event
        self._grace_s = grace_s
        self._argv: Sequence[str] = ()
        self._deadline: float | None = None
        self._abandoned = False
        self._promise: Promise | None = None
        self._started = time.monotonic()
        self.duration_s = 0.0
        self._over = False
        self._end_lock = threading.Lock()  # also held while the command is started
        self._finish_lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None  # type: ignore[assignment]

    # Methods for LocalProcesses.

    def run_to_end(self, argv: Sequence[str], timeout_s: float | None) -> None:
        """Run a command; the result is in ``exit_code``, ``ended_by`` and ``duration_s``."""
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            self.launch(argv)
        finally:
            self.finish()

    def launch(self, argv: Sequence[str]) -> None:
        """Start a command and the threads that read its output, unless it was ended before it began."""
        self._argv = argv
        try:
            with self._end_lock:
                if self._over:
                    raise InterruptedRunError(f"the run ended before {argv[0]} was started")
                promise = self.run(argv[0], asynchronous=True, in_stream=False, warn=True)
                self._promise = cast("Promise", promise)
        except OSError as error:
            self.output.note(f"{error.strerror}: {error.filename}")
            if self._cwd and not self._cwd.is_dir():
                raise ActionFailedError(f"the working directory {self._cwd} does not exist") from error
            raise ActionFailedError(
                f"{argv[0]} cannot be run: {error.strerror}",
                remedy="install it, or correct its name or PATH",
            ) from error

    def finish(self) -> None:
        """Wait for the command's end and for its last output, then close the log; once."""
        with self._finish_lock:
            with self._end_lock:
                self._over = True
                promise, self._promise = self._promise, None
            if promise is None:
                self.end(self._grace_s)  # it was started, and its launch was interrupted
            try:
                if promise is not None:
                    promise.join()
            except ThreadException as failure:
                error = failure.exceptions[0].value
                if isinstance(error, OSError):
                    raise ActionFailedError(f"the log cannot be written: {error}") from error
                raise error from None
            finally:
                self._close_pipes()
                self.duration_s = self.duration_s or time.monotonic() - self._started
                if promise is not None and ended_with_run(self, self.exit_code, self._stop_event):
                    self.ended_by = "stop"
                reason = {"stop": ", stopped", "timeout": ", its time was over"}.get(self.ended_by, "")
                code = f"exit code {self.exit_code}" if self._argv else "not started"
                self.output.close(f"{code} after {self.duration_s:.1f} s{reason}")

    def end(self, grace_s: float) -> None:
        """End the whole tree; returns when it is gone."""
        with self._end_lock:
            self._over = True
            if not self.finished and self.process:
                self.ended_by = "stop"
                end_tree(self.process.pid, self._mark, grace_s)
                try:  # a zombie with many threads is not reaped at once
                    self.process.wait(_REAP_S)
                except subprocess.TimeoutExpired:
                    self._abandoned = True
                    self.output.note("it cannot be ended: it waits for a disk or a network file system")

    @property
    def finished(self) -> bool:
        """True if the command has ended, or cannot be ended."""
        return self.process is None or self._abandoned or self.process.poll() is not None

    @property
    def exit_code(self) -> int:
        """Its exit code; negative for a signal's number; 127 if it could not be started."""
        if self.process is None:
            return _NOT_FOUND
        return -signal.SIGKILL if self._abandoned else int(self.process.wait())

    @property
    def process_id(self) -> int:
        """The number of its process."""
        return 0 if self.process is None else self.process.pid

    # Methods for invoke.

    def start(self, command: str, shell: str, env: dict[str, Any]) -> None:  # noqa: ARG002 - invoke's names
        """Start the command without invoke's shell, without a terminal, and without input."""
        self.process = subprocess.Popen(
            list(self._argv),
            env=self._environment,
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def wait(self) -> None:
        """Wait for the end of the command, the timeout or the end of the run."""
        while not self.finished:
            if self._stop_event.is_set() and not self.uninterruptible:
                self.end(self._grace_s)
            elif self._deadline is not None and time.monotonic() >= self._deadline:
                self.end(self._grace_s)
                self.ended_by = "timeout"
            elif self.has_dead_threads:
                self.end(self._grace_s)
            else:
                self._nap()

    def _nap(self) -> None:
        left_s = 0.25 if self._deadline is None else min(0.25, self._deadline - time.monotonic())
        try:
            if self.process:
                self.process.wait(timeout=max(left_s, 0.001))
        except subprocess.TimeoutExpired:
            return

    def send_interrupt(self, interrupt: KeyboardInterrupt) -> None:
        """End the tree: there is no terminal to pass the interrupt on."""
        self.end(self._grace_s)
        raise interrupt

    def handle_stdout(self, buffer_: list[str], hide: bool, output: Any) -> None:  # noqa: ARG002, FBT001
        """Read standard output to its end; invoke's own buffer stays empty."""
        self._follow("stdout")

    def handle_stderr(self, buffer_: list[str], hide: bool, output: Any) -> None:  # noqa: ARG002, FBT001
        """Read standard error to its end."""
        self._follow("stderr")

    def _follow(self, stream: Literal["stdout", "stderr"]) -> None:
        pipe = getattr(self.process, stream)
        poller = select.poll()
        poller.register(pipe, select.POLLIN | select.POLLHUP)
        while True:
            ended = self.finished  # checked first: the last output is then already in the pipe
            if poller.poll(_DRAIN_S * 1000):
                data = os.read(pipe.fileno(), self.read_chunk_size)
                if not data:
                    break
                self.output.feed(stream, data)
            elif ended:
                self.output.note(f"{stream} is still held by a process in the background")
                break
        self.output.feed(stream, b"")

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdout, self.process.stderr) if self.process else ():
            if pipe:
                pipe.close()
