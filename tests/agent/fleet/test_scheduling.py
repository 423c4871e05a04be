"""Tasks wait without a thread, and a stuck task does not delay others."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from agent.fleet.scheduling import Scheduler, Wait, run_task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.fleet.scheduling import Task


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler(1)
    yield made
    made.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for descriptor in (read, write):
        os.close(descriptor)


def reader(descriptor: int, seconds: float = 60) -> Task[bytes | None]:
    return os.read(descriptor, 9) if (yield Wait(seconds, descriptor)) else None


def test_many_wait_on_one_worker_while_another_works(scheduler: Scheduler, pipe: tuple[int, int]) -> None:
    results: list[object] = []

    def writer() -> Task[str]:
        yield Wait(0)
        os.write(pipe[1], b"x")
        return "written"

    def ended(value: object, error: BaseException | None) -> None:
        assert error is None
        results.append(value)

    scheduler.start(reader(pipe[0]), ended)
    scheduler.start(writer(), ended)
    assert scheduler.run(lambda: True)
    assert sorted(map(str, results)) == ["b'x'", "written"]


def test_time_is_over(scheduler: Scheduler, pipe: tuple[int, int]) -> None:
    results: list[object] = []
    scheduler.start(reader(pipe[0], 0.01), lambda value, error: results.append((value, error)))
    assert scheduler.run(lambda: True)
    assert results == [(None, None)]


def test_an_error_is_handed_over_and_the_others_go_on(scheduler: Scheduler) -> None:
    seen: list[object] = []

    def bad() -> Task[None]:
        yield Wait(0)
        raise ValueError("bad")

    def good() -> Task[int]:
        yield Wait(0.01)
        return 1

    scheduler.start(bad(), lambda _, error: seen.append(repr(error)))
    scheduler.start(good(), lambda value, _: seen.append(value))
    assert scheduler.run(lambda: True)
    assert sorted(map(str, seen)) == ["1", "ValueError('bad')"]


def test_what_ends_may_start_others(scheduler: Scheduler) -> None:
    seen: list[int] = []

    def count(number: int) -> Task[int]:
        yield Wait(0)
        return number

    def ended(value: int | None, _: BaseException | None) -> None:
        assert value is not None
        seen.append(value)
        if value < 3:
            scheduler.start(count(value + 1), ended)

    scheduler.start(count(1), ended)
    assert scheduler.run(lambda: True)
    assert seen == [1, 2, 3]


def test_it_can_be_left_while_tasks_wait(scheduler: Scheduler, pipe: tuple[int, int]) -> None:
    scheduler.start(reader(pipe[0]), lambda *_: None)
    assert not scheduler.run(lambda: False)


def test_work_is_bounded() -> None:
    scheduler, lock = Scheduler(3), threading.Lock()
    now, most = 0, 0

    def work() -> Task[None]:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.01)
        with lock:
            now -= 1
        yield Wait(0)

    for _ in range(20):
        scheduler.start(work(), lambda *_: None)
    assert scheduler.run(lambda: True)
    scheduler.close()
    assert 1 <= most <= 3


def test_a_task_alone(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"y")
    assert run_task(reader(pipe[0])) == b"y"
    assert run_task(reader(pipe[0], 0.01)) is None
