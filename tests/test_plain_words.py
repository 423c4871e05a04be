"""The check of the project's language finds the texts that it should find."""

from __future__ import annotations

import pytest

from tests.plain_words import check

SOURCE = '''
class Host:
    @property
    def name(self) -> str:
        """The host's name."""

    def look(self) -> bool:
        """{docstring}"""
        return True  # {comment}
'''


def found(docstring: str = "Return True.", comment: str = "the host answers") -> list[str]:
    return list(check("agent/host.py", SOURCE.format(docstring=docstring, comment=comment)))


def test_plain_language_passes() -> None:
    assert found() == []
    assert (
        found("Read a file that has not been written yet; there is no other.", "it is no longer there") == []
    )


@pytest.mark.parametrize(
    ("docstring", "comment", "expected"),
    [
        (
            "Whether every host is.",
            "",
            "agent/host.py:8: 'Whether every host is.' does not begin with a verb",
        ),
        ("Make it anew.", "", "agent/host.py:8: 'anew': write again, or new"),
        ("Return it.", "x is no group", "agent/host.py:9: 'is no ': write is not a …"),
        (
            "Return it.\n\n        A file is told.",
            "",
            "agent/host.py:10: 'is told': write is reported, or shown",
        ),
    ],
)
def test_what_reads_twice_is_found(docstring: str, comment: str, expected: str) -> None:
    assert found(docstring, comment) == [expected]


def test_pages_are_checked_too() -> None:
    assert list(check("docs/x.md", "Fine.\nAll but for one.\n")) == ["docs/x.md:2: 'but for': write except"]
