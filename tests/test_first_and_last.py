"""CI's further Pythons run every test: the option drops parameters, never a test."""

from __future__ import annotations

from dataclasses import dataclass

from tests.conftest import _first_and_last


@dataclass(frozen=True)
class Item:
    nodeid: str

    def get_closest_marker(self, name: str) -> object:
        return name if name in self.nodeid else None


def test_a_costly_test_keeps_its_first_and_its_last_parameters() -> None:
    costly = [f"a.py::costly[{number}]" for number in range(4)]
    others = ["a.py::costly_alone", "a.py::Of::costly[x[0]-1]", *(f"a.py::cheap[{n}]" for n in range(4))]
    names = [*costly, *others]
    kept = _first_and_last([Item(name) for name in names])  # type: ignore[misc]
    assert [name for name in names if Item(name) not in kept] == costly[1:-1]
