"""Runs many tasks in a few threads; a task uses no thread while it waits.

A task is a generator. Its code between two ``yield`` runs in a thread of the pool. It yields a ``Wait``, and
continues when there is something to read or the time is over. So a host that hangs delays no other host.
"""

from __future__ import annotations

import heapq
import os
import selectors
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")
_LONGEST_WAIT_S = 3600.0


@dataclass(frozen=True)
class Wait:
    """A condition that a task waits for.

    Args:
        seconds: the longest time to wait.
        file: a file descriptor; None to wait for the time alone.
        write: whether to wait until it can be written to, instead of read from.
    """

    seconds: float
    file: int | None = None
    write: bool = False


if TYPE_CHECKING:
    Task = Generator[Wait, bool, T]
    """A generator that yields its waits and receives True if the file became ready; it returns a result."""
else:
    Task = dict


@dataclass
class _Running:
    task: Task[object]
    ended: Callable[[object, BaseException | None], None]
    until: float = 0.0
    file: int | None = None
    is_waiting: bool = False


class Scheduler:
    """Runs tasks in a limited number of threads.

    Args:
        workers: the number of threads.
    """

    def __init__(self, workers: int) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="fleet")
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._yielded: deque[tuple[_Running, Wait | None, object, BaseException | None]] = deque()
        self._running: set[int] = set()
        self._waiting: dict[int, _Running] = {}
        self._due: list[tuple[float, int, _Running]] = []
        self._numbers = count()

    def start(self, task: Task[T], ended: Callable[[T | None, BaseException | None], None]) -> None:
        """Start a task.

        Args:
            task: the task.
            ended: called in the thread of ``run`` with the task's result or error; may start other tasks.
        """
        running = _Running(task, ended)  # type: ignore[arg-type]
        self._running.add(id(running))
        self._pool.submit(self._advance, running, ready=False, first=True)

    def run(self, each: Callable[[], bool], every_s: float = 0.5) -> bool:
        """Work until all tasks have ended.

        Args:
            each: called at regular intervals; the work ends if it returns False.
            every_s: the interval in seconds.

        Returns:
            True if all tasks have ended.
        """
        looked = 0.0
        while self._running:
            now = time.monotonic()
            if now - looked >= every_s:
                looked = now
                if not each():
                    return False
            nearest = self._due[0][0] if self._due else now + every_s
            for key, _ in self._selector.select(max(0.0, min(nearest, looked + every_s) - now)):
                if key.data is None:
                    os.read(self._wake_read, 65536)
                else:
                    self._resume(key.data, ready=True)
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                until, _, running = heapq.heappop(self._due)
                if running.until == until:  # it has not begun another wait
                    self._resume(running, ready=False)
            while self._yielded:
                self._take(*self._yielded.popleft())
        return True

    def close(self) -> None:
        """Shut the threads down without waiting for tasks that still work in them."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._selector.close()

    def _advance(self, running: _Running, *, ready: bool, first: bool = False) -> None:
        wait, value, error = None, None, None
        try:
            wait = next(running.task) if first else running.task.send(ready)
        except StopIteration as end:
            value = end.value
        except BaseException as caught:  # noqa: BLE001 - handled by the task's owner
            error = caught
        self._yielded.append((running, wait, value, error))
        os.write(self._wake_write, b"\0")

    def _take(self, running: _Running, wait: Wait | None, value: object, error: BaseException | None) -> None:
        if wait is None:
            self._running.discard(id(running))
            running.ended(value, error)
            return
        running.until = time.monotonic() + min(wait.seconds, _LONGEST_WAIT_S)
        running.file = wait.file
        if wait.file is not None:
            event = selectors.EVENT_WRITE if wait.write else selectors.EVENT_READ
            self._selector.register(wait.file, event, running)
        self._waiting[id(running)] = running
        heapq.heappush(self._due, (running.until, next(self._numbers), running))

    def _resume(self, running: _Running, *, ready: bool) -> None:
        if self._waiting.pop(id(running), None) is None:
            return
        if running.file is not None:
            self._selector.unregister(running.file)
        self._pool.submit(self._advance, running, ready=ready)


def run_task(task: Task[T]) -> T:
    """Run one task in this thread; block whenever it waits."""
    ready = None
    while True:
        try:
            wait = next(task) if ready is None else task.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result
        with selectors.DefaultSelector() as selector:
            if wait.file is not None:
                selector.register(wait.file, selectors.EVENT_WRITE if wait.write else selectors.EVENT_READ)
            ready = bool(selector.select(wait.seconds))
