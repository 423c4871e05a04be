"""A time span stays the same if the host's clock is set in the middle of it."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from actions.monitors.history import History
from actions.monitors.steady_clock import SteadyClock


class Host:
    """The two clocks of a host."""

    def __init__(self) -> None:
        self.steady_s = 1000.0
        self.offset_s = 1.7e9
        self.clock = SteadyClock(lambda: self.steady_s, lambda: self.steady_s + self.offset_s)

    def pass_s(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.steady_s += 1
            self.clock.now_s()

    def told(self) -> datetime:
        return datetime.fromtimestamp(self.steady_s + self.offset_s, timezone.utc)


@pytest.mark.parametrize("jump_s", [0.0, -3600.0, -20.0, 20.0, 3600.0])
def test_the_clock_is_set_in_the_middle(jump_s: float) -> None:
    host, history = Host(), History()

    def watch(seconds: int) -> None:
        for _ in range(seconds):
            before_s = host.clock.now_s()
            host.pass_s(1)
            history.add(before_s, host.clock.now_s(), {"energy": 100.0})

    watch(30)
    start = host.told()
    watch(30)
    host.offset_s += jump_s
    watch(40)
    end_s = host.clock.seconds_of(host.told(), host.clock.now_s())
    start_s = host.clock.seconds_of(start, end_s)
    assert (start_s, end_s) == pytest.approx((1030, 1100))
    energy = history.total("energy", start_s, end_s)
    assert energy is not None
    assert energy.value == pytest.approx(70 * 100)
    assert host.clock.set_by_s(start_s, end_s) == ([] if not jump_s else [pytest.approx(jump_s, abs=0.01)])
    assert host.clock.set_by_s(end_s + 1, end_s + 9) == []


def test_a_pause_between_the_two_clocks_is_no_clock_that_was_set() -> None:
    moments, late_s = iter([1000.0, 1010.0, 1010.3, 1020.0]), iter([0.0, 0.3, 0.0])
    seen_s = 0.0

    def steady() -> float:
        nonlocal seen_s
        seen_s = next(moments)
        return seen_s

    clock = SteadyClock(steady, lambda: seen_s + next(late_s) + 1.7e9)
    clock.now_s()
    clock.now_s()
    assert clock.seconds_of(datetime.fromtimestamp(1.7e9 + 1005, timezone.utc)) == pytest.approx(1005)


def test_slow_corrections_add_up() -> None:
    host = Host()
    start = host.told()
    for _ in range(1000):
        host.pass_s(1)
        host.offset_s += 0.001
    assert host.clock.seconds_of(start, 2000) == pytest.approx(1000, abs=0.2)
    assert host.clock.seconds_of(host.told(), 2000) == pytest.approx(2000, abs=0.2)
    assert host.clock.set_by_s(1000, 2000) == []


def test_a_moment_that_the_clock_left_out_is_when_it_was_set() -> None:
    host = Host()
    host.pass_s(10)
    left_out = datetime.fromtimestamp(host.steady_s + host.offset_s + 50, timezone.utc)
    host.offset_s += 100
    host.pass_s(10)
    assert host.clock.seconds_of(left_out, host.clock.now_s()) == pytest.approx(1010)
