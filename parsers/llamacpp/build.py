"""Finds the build of llama.cpp that wrote a log or answers ``--version``."""

from __future__ import annotations

import re
from dataclasses import dataclass

# common/build-info.cpp.in and the tools' main functions: ``version: 0.1.0 (build 11434, commit 515e855)``
# in builds with a version number; before, ``version: 3661 (f648ca2c)`` and ``build: 3661 (f648ca2c)``;
# in 2024 also ``main: build = 3661 (f648ca2c)``. llama-bench's rows have both, as JSON or CSV.
_FORMS = (
    re.compile(r"version: \S+ \(build (?P<number>\d{1,9}), commit (?P<commit>\w+)\)"),
    re.compile(r"(?:version:|build:|build =) (?P<number>\d{1,9}) \((?P<commit>\w+)\)"),
    re.compile(r'"build_commit": "(?P<commit>\w+)",\s*"build_number": (?P<number>\d{1,9})'),
    re.compile(r'^"(?P<commit>\w+)","(?P<number>\d{1,9})",', re.MULTILINE),
)
_NO_COMMIT = ("unknown", "unkown", "untold")


@dataclass(frozen=True)
class Build:
    """A build of llama.cpp.

    Args:
        number: its number, such as 3661 for the tag b3661; 0 if it was built outside a repository.
        commit: the short hash of its commit, or ``unknown``.
    """

    number: int
    commit: str

    def __str__(self) -> str:
        """Return the tag, such as ``b3661``; without a number the commit; empty if both are unknown."""
        return f"b{self.number}" if self.number else self.known_commit

    @property
    def known_commit(self) -> str:
        """The commit; empty if unknown."""
        return "" if self.commit in _NO_COMMIT else self.commit


def build_of(text: str) -> Build | None:
    """Return the build that a tool names in its output, or None if it names none."""
    for form in _FORMS:
        if match := form.search(text):
            return Build(int(match["number"]), match["commit"])
    return None
