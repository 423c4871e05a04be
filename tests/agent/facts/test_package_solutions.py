"""What a simulated change of packages says: apt's lines, and the tables of dnf 4 and 5."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from agent.facts import Facts
from agent.facts.package_solutions import (
    PackageSolution,
    apt_preferences,
    apt_solution,
    dnf_solution,
    read_apt,
    read_dnf,
)

REFUSED = """\
Reading package lists...
The following packages have unmet dependencies:
 a : Depends: b (= 1) but 2 is to be installed
     Recommends: c
               but d  \t
 e : Conflicts: f
 g : Breaks: h
W: a warning
N: a note
i is to be installed
j is not installable
k and l
E: Unable to correct problems
E: exit 100
"""


class Recorded:
    """A host that answers every command alike, and keeps the question."""

    def __init__(self, answer: str | None) -> None:
        self.answer = answer
        self.asked: list[tuple[list[str], dict[str, Any]]] = []

    def output(self, command: list[str], **options: Any) -> str | None:
        self.asked.append((command, options))
        return self.answer


def test_apts_lines() -> None:
    text = (
        "Reading package lists...\n"
        "Remv old [1-1] []\n"
        "Inst libc6 [2.36-1] (2.36-2 Debian:12 [amd64]) []\n"
        "Inst libgl1:i386 (1.2 Ubuntu:24.04 [i386])\n"
        "Purg older:i386 [3]\n"
        "Remv old [1-1]\n"
        "Conf libc6 (2.36-2 Debian:12 [amd64])\n"
    )
    assert read_apt(text) == PackageSolution({"libc6": "2.36-2", "libgl1": "1.2"}, ("old", "older"))
    assert read_apt(None) == PackageSolution(problem=("apt-get gave no answer",))


def test_apts_reasons_are_kept() -> None:
    lines = [line.rstrip() for line in REFUSED.splitlines()]
    assert read_apt(REFUSED) == PackageSolution(problem=(*lines[2:11], lines[12]))


def test_of_many_reasons_the_first_are_kept_and_without_one_the_last_lines() -> None:
    many = "".join(f"E: {number}\n" for number in range(20))
    assert read_apt(many).problem == tuple(f"E: {number}" for number in range(12))
    plain = "".join(f"line {number}\n\n" for number in range(20))
    assert read_apt(f"{plain}E: exit 100\n").problem == (
        *(f"line {number}" for number in range(9, 20)),
        "E: exit 100",
    )


def test_preferences_name_one_version_of_each_package() -> None:
    assert apt_preferences({"b": "2", "a": "1"}) == (
        "Package: a\nPin: version 1\nPin-Priority: 1001\n\nPackage: b\nPin: version 2\nPin-Priority: 1001\n"
    )


def test_apt_is_asked_with_the_pins() -> None:
    host = Recorded("Inst a (1 Debian:12 [amd64])\n")
    fact = apt_solution(["apt-get", "install", "a b"], {"a": "1"})
    assert (fact.name, fact.source) == ("package_solution[apt-get install 'a b']", "apt-get --simulate")
    assert Facts(host)[fact] == PackageSolution({"a": "1"})  # type: ignore[arg-type]
    ((asked, options),) = host.asked
    assert options == {"timeout_s": 120, "hang_is_error": True}
    # The script itself: the pins are in force, and a failure is shown.
    shown = subprocess.run([*asked[:4], "echo", "a b"], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("a b --option=Dir::Etc::Preferences=/")
    assert shown.endswith(" --simulate\n")
    preferences = [*asked[:4], "sh", "-c", 'cat "${0##*=}"']
    text = subprocess.run(preferences, capture_output=True, text=True, check=True).stdout
    assert text.startswith("Package: a\nPin: version 1\nPin-Priority: 1001\n")
    failed = subprocess.run([*asked[:4], "false"], capture_output=True, text=True, check=True).stdout
    assert failed == "E: exit 1\n"


def test_dnf_is_asked_and_answered_with_no() -> None:
    host = Recorded("Nothing to do.\n")
    fact = dnf_solution(["dnf", "--assumeyes", "install", "a b"])
    name = "package_solution[dnf --assumeyes install 'a b']"
    assert (fact.name, fact.source) == (name, "dnf --assumeno")
    assert Facts(host)[fact] == PackageSolution()  # type: ignore[arg-type]
    script = ["sh", "-c", '"$@" 2>&1 || :', "dnf", "dnf", "--assumeno", "install", "a b"]
    assert host.asked == [(script, {"timeout_s": 120, "hang_is_error": True})]


TABLE = """\
Last metadata expiration check: 0:01:00 ago.
Dependencies resolved.
================================================
 Package       Architecture Version   Repository Size
================================================
Installing:
 first         x86_64       1.0-1     cuda       5 k
     replacing  gone.now.x86_64 0.9-1
     replacing  first.x86_64 0.9-1
   a line of four words
 a-package-with-a-long-name
               x86_64       2:3.0-1   cuda       9 k
 second        noarch       4-1       cuda       1 k
Upgrading:
 third         x86_64       5-1       cuda       1 k
Reinstalling:
 fourth        x86_64       6-1       cuda       1 k
Downgrading:
 fifth         x86_64       7-1       cuda       1 k
   replacing other x86_64   8-1       cuda       1 k
Removing dependent packages:
 sixth         x86_64       9-1       @cuda      1 k
 sixth         i686         9-1       @cuda      1 k

Skipping packages with conflicts:
 seventh       x86_64       9-1       cuda       1 k

Transaction Summary
================================================
Install  2 Packages
"""


def test_dnfs_table() -> None:
    assert read_dnf(TABLE) == PackageSolution(
        {
            "first": "1.0-1",
            "a-package-with-a-long-name": "2:3.0-1",
            "second": "4-1",
            "third": "5-1",
            "fourth": "6-1",
            "fifth": "7-1",
        },
        ("gone.now", "other", "sixth"),
    )


@pytest.mark.parametrize("title", ["Removing", "Obsoleting", "Erasing"])
def test_removed_packages_of_dnf(title: str) -> None:
    table = f"{title}:\n a x86_64 1 cuda 1 k\n\nTransaction Summary\n"
    assert read_dnf(table) == PackageSolution(removed=("a",))


@pytest.mark.parametrize(
    "line",
    [
        "Waiting: already locked by 4711",
        "another copy is running",
        "Failed to obtain the transaction lock",
        "failed to obtain a lock",
        "cannot get the rpm transaction lock",
    ],
)
def test_while_dnf_is_busy_nothing_is_known(line: str) -> None:
    assert read_dnf(f"Error: x\n{line}\n") == PackageSolution()


@pytest.mark.parametrize("start", ["Error: ", "Problem: ", "Failed to "])
def test_dnfs_refusal_begins_with_its_reason(start: str) -> None:
    rest = [f"  - line {number}" for number in range(20)]
    text = "\n".join(["Repositories loaded.", "Other", "", f"{start}resolve  ", *rest])
    assert read_dnf(text) == PackageSolution(problem=(f"{start}resolve", *rest[:11]))


def test_dnf_without_a_reason_or_an_answer() -> None:
    assert read_dnf("one\ntwo\n") == PackageSolution(problem=("one", "two"))
    for nothing in (None, "", " \n"):
        assert read_dnf(nothing) == PackageSolution(problem=("dnf gave no answer",))
