"""The start order of hosts: canary, batches, and the end after too many failures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.errors import UsageError
from agent.fleet.waves import Waves, share_of

HOSTS = ["a", "b", "c", "d", "e"]
CASES = {
    "all at once": (Waves(HOSTS), "", "", "", "abcde"),
    "what has started is not started again": (Waves(HOSTS), "ab", "a", "", "cde"),
    "the canary first": (Waves(HOSTS, canary=2), "", "", "", "ab"),
    "nobody while the canary is at work": (Waves(HOSTS, canary=2), "ab", "a", "", ""),
    "the others behind it": (Waves(HOSTS, canary=2), "ab", "ab", "", "cde"),
    "nobody after a failed canary": (Waves(HOSTS, canary=2), "ab", "ab", "b", ""),
    "a batch": (Waves(HOSTS, batch=2), "", "", "", "ab"),
    "the next as soon as one is done": (Waves(HOSTS, batch=2), "ab", "a", "", "c"),
    "a canary larger than the batch": (Waves(HOSTS, canary=3, batch=2), "", "", "", "ab"),
    "as many failures as may be": (Waves(HOSTS, batch=2, max_failures=1), "ab", "ab", "a", "cd"),
    "one failure more": (Waves(HOSTS, batch=2, max_failures=1), "ab", "ab", "ab", ""),
    "no failure may be": (Waves(HOSTS, batch=1, max_failures=0), "a", "a", "a", ""),
}


@pytest.mark.parametrize("case", CASES)
def test_next(case: str) -> None:
    waves, started, ended, failed, expected = CASES[case]
    assert "".join(waves.next(set(started), set(ended), set(failed))) == expected


@given(st.integers(0, 6), st.none() | st.integers(0, 4), st.data())
def test_every_host_starts_once_where_none_fails(canary: int, batch: int | None, data: st.DataObject) -> None:
    waves, started, ended = Waves(HOSTS, canary, batch), list[str](), set[str]()
    while len(ended) < len(HOSTS):
        started += waves.next(set(started), ended, set())
        running = sorted(set(started) - ended)
        assert running
        assert batch is None or len(running) <= max(1, batch)
        ended.add(data.draw(st.sampled_from(running)))
    assert sorted(started) == HOSTS


@pytest.mark.parametrize(("text", "share"), [("", None), ("3", 3), ("25%", 3), ("0", 0), ("100%", 10)])
def test_shares(text: str, share: int | None) -> None:
    assert share_of(text, 10, "--batch") == share


@pytest.mark.parametrize("text", ["x", "-1", "101%", "2.5", "%"])
def test_no_share(text: str) -> None:
    with pytest.raises(UsageError, match="--batch"):
        share_of(text, 10, "--batch")
