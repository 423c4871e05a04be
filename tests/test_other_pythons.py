"""CI's further Pythons leave out costly tests, and never the only one that executes a line."""

from __future__ import annotations

from tests.other_pythons import left_out


def test_every_line_is_executed_by_a_test_that_stays() -> None:
    cpu_s = {
        "cheap": 0.01,
        "slow": 2.0,
        "slower": 4.0,
        "needless": 1.0,
        "needless_too": 3.0,
        "a[1": 1.0,
        "a[10": 0.01,
    }
    tests = {
        ("a.py", 1): {"cheap", "slow", "needless"},
        ("a.py", 2): {"slow", "slower"},
        ("a.py", 3): {"slow", "needless_too"},
        ("a.py", 4): set[str](),
        ("b.py", 1): {"a[1", "cheap"},
    }
    assert left_out(cpu_s, tests) == ["needless", "needless_too", "slower"]
