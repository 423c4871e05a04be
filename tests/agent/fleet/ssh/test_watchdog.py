"""Calls that take too long are acted upon; others are left alone."""

from __future__ import annotations

import threading

from agent.fleet.ssh.watchdog import Watchdog
from tests.waiting import wait_for

DEADLINE_S = 30


def test_only_what_is_overdue_is_called() -> None:
    watchdog, overdue, in_time = Watchdog(), threading.Event(), threading.Event()
    with watchdog.watching(0.01, overdue.set), watchdog.watching(DEADLINE_S, in_time.set):
        assert overdue.wait(DEADLINE_S)
    assert not in_time.is_set()


def test_its_thread_ends_and_comes_back() -> None:
    watchdog = Watchdog()
    for _ in range(2):
        overdue = threading.Event()
        with watchdog.watching(0.01, overdue.set):
            assert overdue.wait(DEADLINE_S)
        wait_for(
            lambda: all(thread.name != "watchdog" for thread in threading.enumerate()), limit_s=DEADLINE_S
        )
