"""CI's further Pythons run every test: the option drops parameters, never a test."""

from __future__ import annotations

from dataclasses import dataclass

from tests.conftest import _first_and_last


@dataclass(frozen=True)
class Item:
    nodeid: str


def test_each_test_keeps_its_first_and_its_last_parameters() -> None:
    names = [
        "a.py::one",
        "a.py::many[1]",
        "a.py::many[2]",
        "a.py::Of::many[x[0]-1]",
        "a.py::many[3]",
        "b.py::many[1]",
    ]
    kept = _first_and_last([Item(name) for name in names])  # type: ignore[misc]
    assert [name for name in names if Item(name) not in kept] == ["a.py::many[2]"]
