"""The command line's small languages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.errors import ProfileError, UsageError
from agent.profile import TimeoutScope, format_timespan, parse_parameters, parse_timeout, parse_timespan


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1", {"A": "1"}),
        ("A=1,B=2", {"A": "1", "B": "2"}),
        ("A=1;B=2,3", {"A": "1", "B": "2,3"}),
        ("A=1,2;3,,,B=4", {"A": "1,2;3", "B": "4"}),
        ("Packages=a,b,c,,,", {"Packages": "a,b,c"}),
        ("Issuer=CN=ABC CA,,,B=", {"Issuer": "CN=ABC CA", "B": ""}),
        (" A = 1 , B = 2 ", {"A": "1", "B": "2"}),
        ("A=1,A=2", {"A": "2"}),
        ("", {}),
    ],
)
def test_parameters(text: str, expected: dict[str, str]) -> None:
    assert parse_parameters(text) == expected


@pytest.mark.parametrize("text", ["A", "A=1,hunter2", "=1", "Password=a,hunter2,c"])
def test_parameters_that_virtualclient_would_drop(text: str) -> None:
    with pytest.raises(UsageError, match="not written name=value") as caught:
        parse_parameters(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:10:00", 600),
        ("1.02:03:04", 93784),
        ("24:00:00", 86400),
        ("00:30", 1800),
        ("00:00:01.5", 1.5),
        ("90", 90),
        (90, 90),
        (0.5, 0.5),
        ("90s", 90),
        ("10 min", 600),
        ("1.5h", 5400),
        ("2d", 172800),
        ("250ms", 0.25),
    ],
)
def test_time_spans(text: Any, seconds: float) -> None:
    assert parse_timespan(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "00:60:00", "1:2:3:4", "-00:00:01", "9999999.00:00:00", True, "٣", "1e5", "nan"]
)
def test_what_is_no_time_span(text: Any) -> None:
    with pytest.raises(ProfileError):
        parse_timespan(text)


@given(st.integers(0, 10**9))
def test_a_time_span_is_read_as_it_was_written(seconds: int) -> None:
    assert parse_timespan(format_timespan(timedelta(seconds=seconds))) == seconds


@pytest.mark.parametrize(
    ("text", "duration_s", "scope"),
    [
        ("1440", 86400, TimeoutScope.NOTHING),
        ("01:00:00", 3600, TimeoutScope.NOTHING),
        ("1.00:00:00,deterministic", 86400, TimeoutScope.ACTION),
        ("90,Deterministic*", 5400, TimeoutScope.ALL_ACTIONS),
        ("30s", 30, TimeoutScope.NOTHING),
        ("never", None, TimeoutScope.NOTHING),
        ("-1", None, TimeoutScope.NOTHING),
    ],
)
def test_timeouts(text: str, duration_s: float | None, scope: TimeoutScope) -> None:
    timeout = parse_timeout(text)
    assert (timeout.duration_s, timeout.scope) == (duration_s, scope)


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "soon", "90,often", "90,nothing", "90,deterministic,x", "00:00:00"]
)
def test_what_is_no_timeout(text: str) -> None:
    with pytest.raises(UsageError, match="not a timeout"):
        parse_timeout(text)
