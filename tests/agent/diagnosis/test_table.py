"""A diagnosis as rows, as Markdown, as JSON and on the screen."""

from __future__ import annotations

import io

from rich.console import Console

from agent.diagnosis.diagnosis import Defect, Diagnosis, HostDiagnosis, Unjudged
from agent.diagnosis.rules import Function
from agent.diagnosis.table import print_defects, rows, to_markdown

SLOW = Defect(
    "slow", Function.VARIANCE, "Speed", "x < -0.05", "a|b/speed", 1234567.0, "B/s", 2e6, -0.38271, -9.5
)
MISSING = Defect("there", Function.FAILURE_CHECK, "Failed", "x > 0", "a/return_code")
BOTH = Defect("both", Function.MULTI_RULES, "Machine", "label > 1", evidence=(SLOW, MISSING))
NOT_JUDGED = Unjudged("slow", "a/delay", "there is no baseline")
HOSTS = (
    HostDiagnosis("h0", True, 2, (BOTH, MISSING), (), group="8 H100"),
    HostDiagnosis("h1", False, 0, (), (), group="7 H100"),
    HostDiagnosis("h2", True, 2, (), (), (NOT_JUDGED,), suspicions=(SLOW,)),
    HostDiagnosis("h3", True, 1, (), ("a/delay",), group="8 H100"),
    HostDiagnosis("h4", True, 1, (), (), (NOT_JUDGED,)),
    HostDiagnosis("h5", True, 3, (), ()),
)
FOUND = Diagnosis(HOSTS, ("first [warning]", "second"))
ROWS = [
    ("h0", "Machine", "both", "label > 1", "", "", ""),
    ("h0", "Speed", "↳ slow", "a|b/speed", "1,234,567 B/s", "2,000,000 B/s", "-38.3%"),
    ("h0", "Failed", "↳ there", "a/return_code", "missing", "", ""),
    ("h0", "Failed", "there", "a/return_code", "missing", "", ""),
    ("h1", "", "", "no records", "", "", ""),
    ("h2", "Speed (suspect)", "slow", "a|b/speed", "1,234,567 B/s", "2,000,000 B/s", "-38.3%"),
]
SUMMARY = "6 hosts: 1 sick, 1 no records, 1 suspect, 2 not judged, 1 well"


def test_rows_of_defects_with_what_they_combine() -> None:
    assert list(rows(FOUND)) == ROWS
    bare = Defect("r", Function.VALUE, "C", metric="m", value=0.0, baseline=0.0, variance=0.0)
    deep = Defect("r", Function.MULTI_RULES, "C", "c", evidence=(BOTH,))
    found = Diagnosis((HostDiagnosis("h", True, 1, (bare, deep), ()),), ())
    assert next(iter(rows(found))) == ("h", "C", "r", "m", "0", "0", "+0.0%")
    assert [row[2] for row in rows(found)] == ["r", "r", "↳ both", "↳ ↳ slow", "↳ ↳ there"]


def test_markdown_escapes_bars() -> None:
    header = ["| host | category | rule | metric | value | baseline | variance |", f"|{' --- |' * 7}"]
    table = [f"| {' | '.join(row)} |".replace("a|b", r"a\|b") for row in ROWS]
    told = ["", "- first [warning]", "- second", "", SUMMARY, ""]
    assert to_markdown(FOUND) == "\n".join([*header, *table, *told])
    assert to_markdown(Diagnosis((HOSTS[5],), ())) == "\n".join([*header, "", "1 host: 1 well", ""])


def test_the_screen_shows_texts_as_they_are() -> None:
    screen = io.StringIO()
    print_defects(FOUND, Console(file=screen, width=200, force_terminal=True, color_system="standard"))
    text = screen.getvalue()
    assert "\x1b[33m! first [warning]\x1b[0m" in text
    for cell in ("category", "baseline", "a|b/speed", "2,000,000 B/s", "↳ there"):
        assert cell in text
    quiet = io.StringIO()
    print_defects(Diagnosis((HOSTS[5],), ()), Console(file=quiet))
    assert quiet.getvalue() == ""


def test_the_states_of_hosts() -> None:
    assert [host.state.value for host in HOSTS] == [
        "sick", "no records", "suspect", "not judged", "not judged", "well",
    ]  # fmt: skip
    assert [host.categories for host in HOSTS] == [("Failed", "Machine"), (), ("Speed",), (), (), ()]
    assert [host.is_good for host in HOSTS] == [False] * 5 + [True]


def test_the_document_of_a_diagnosis() -> None:
    slow = {
        "rule": "slow",
        "function": "variance",
        "category": "Speed",
        "criteria": "x < -0.05",
        "metric": "a|b/speed",
        "value": 1234567.0,
        "unit": "B/s",
        "baseline": 2e6,
        "variance": -0.38271,
        "z": -9.5,
        "evidence": [],
    }
    assert SLOW.to_json() == slow
    assert BOTH.to_json()["evidence"] == [slow, MISSING.to_json()]
    document = FOUND.to_json()
    assert document == {
        "schema_version": 1,
        "summary": SUMMARY,
        "defective": ["h0"],
        "suspect": ["h2"],
        "not_judged": ["h3", "h4"],
        "without_records": ["h1"],
        "hosts": [host.to_json() for host in HOSTS],
        "warnings": ["first [warning]", "second"],
    }
    assert HOSTS[2].to_json() == {
        "host": "h2",
        "state": "suspect",
        "good": False,
        "group": "",
        "has_records": True,
        "judged": 2,
        "categories": ["Speed"],
        "defects": [],
        "suspicions": [slow],
        "absent": [],
        "not_judged": [{"rule": "slow", "metric": "a/delay", "reason": "there is no baseline"}],
    }
    first = HOSTS[0].to_json()
    assert first["defects"] == [BOTH.to_json(), MISSING.to_json()]
    assert (first["group"], HOSTS[3].to_json()["absent"]) == ("8 H100", ["a/delay"])
    assert not FOUND.is_good
    assert Diagnosis((HOSTS[5], HOSTS[5]), ()).is_good
    assert list(FOUND.groups.items()) == [("", 3), ("7 H100", 1), ("8 H100", 2)]
