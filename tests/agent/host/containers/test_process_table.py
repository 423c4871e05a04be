"""The processes that belong to a command."""

from __future__ import annotations

import pytest

from agent.host.containers.process_table import Entry, members, read_listing


def entry(pid: int, parent: int = 0, session: int = 0, mark: str = "-", *, zombie: bool = False) -> Entry:
    return Entry(pid, parent, session, mark, zombie)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([entry(1), entry(7, mark="-")], set()),
        ([entry(1), entry(7, mark="+")], {7}),
        ([entry(7, mark="+"), entry(8, 7), entry(9, 8)], {7, 8, 9}),
        ([entry(7, session=7, mark="+"), entry(8, 1, 7)], {7, 8}),
        ([entry(7, mark="+", zombie=True), entry(8, 7)], {8}),
        ([entry(7, mark="?"), entry(8, 7)], set()),
        ([entry(1, mark="+"), entry(7, 1)], set()),
    ],
    ids=["none", "one", "descendants", "session", "zombie", "another", "the first process"],
)
def test_members(entries: list[Entry], expected: set[int]) -> None:
    assert members(entries) == expected


def test_a_listing() -> None:
    text = "+ 12 (a (b) c) S 1 12 12 0 -1\n? 13 (sh) Z 12 12 12 0\n- 1 (sleep) S 0 1 1 0\n- torn\n"
    assert read_listing(text) == [
        Entry(12, 1, 12, "+", zombie=False),
        Entry(13, 12, 12, "?", zombie=True),
        Entry(1, 0, 1, "-", zombie=False),
    ]
