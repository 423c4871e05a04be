"""Requirements that an index offers only as source: the real pip, with a folder of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from agent.facts import Facts, LocalHost
from agent.facts.python import PYTHON, PythonInterpreter
from dependencies.python.wheels import OfferedFiles, build_packages, offered_files, sourced, unoffered

if TYPE_CHECKING:
    from pathlib import Path

LACKS_ALL = {"headers": False, "compiler": False}


def test_what_has_no_wheel_in_a_version_that_is_asked_for() -> None:
    offered: dict[str, list[tuple[str, bool]]] = {
        "old": [("1.0", True), ("2.0", False)],
        "both": [("2.0", True), ("2.0", False)],
        "unknown": [],
    }
    wanted = [Requirement(text) for text in ("old==2.0", "both==2.0", "unknown==2.0")]
    assert sourced(wanted, {name: list(map(tuple, files)) for name, files in offered.items()}) == (
        "old==2.0",
    )
    assert sourced([Requirement("old>=1")], {"old": [("1.0", True), ("2.0", False)]}) == ()


def test_what_has_no_file_at_all_and_which_versions_have_one() -> None:
    offered = {
        "wheels": [("2.0", True), ("3.0rc1", True), ("10.0", False)],
        "sources": [("1.0", False), ("1.5", False), ("not a version", False)],
        "elsewhere": [],
        "early": [("1.0rc1", True)],
    }
    asked = ("wheels==1.0", "sources==2.0", "elsewhere==1.0", "early>=1.0rc1", "early>=0.9", "unknown==1.0")
    assert unoffered(map(Requirement, asked), offered) == {
        "wheels==1.0": ("2.0",),
        "sources==2.0": ("1.5 (source)", "1.0 (source)"),
        "elsewhere==1.0": (),
    }


def test_pip_is_asked(tmp_path: Path) -> None:
    """Ask pip, which needs only the name of a file to know its target."""
    names = (
        *("a-1.0.tar.gz", "b-1.0.tar.gz", "b-1.0-py3-none-any.whl", "b-2.0-py3-none-any.whl"),
        *("c-1.0-cp30-cp30-linux_x86_64.whl", "d-1.0-cp399-cp399-linux_x86_64.whl"),
    )
    for name in names:
        (tmp_path / name).touch()
    facts = Facts(LocalHost())
    python = facts[PYTHON]
    assert python
    requirements = ("a==1.0", "b==1.0", "c==1.0", "a==1.0; python_version < '3'", "b==3.0")
    missing = {"b==3.0": ("2.0", "1.0")}
    assert facts[offered_files(requirements, python, tmp_path)] == OfferedFiles(("a==1.0",), missing)


@pytest.mark.parametrize(
    ("manager", "path", "names"),
    [
        ("apt", "/usr/bin/python3", ["g++", "python3.14-dev"]),
        ("dnf", "/usr/bin/python3", ["gcc-c++", "python3-devel"]),
        ("dnf", "/usr/bin/python3.14", ["gcc-c++", "python3.14-devel"]),
        ("zypper", "/usr/bin/python3.14", ["gcc-c++", "python314-devel"]),
    ],
)
def test_packages_that_build(manager: str, path: str, names: list[str]) -> None:
    lacking = PythonInterpreter(path, "3.14.1", "linux-x86_64", **LACKS_ALL)
    assert build_packages(manager, lacking) == names
    with_headers = PythonInterpreter(path, "3.14.1", "linux-x86_64", headers=True, compiler=False)
    assert build_packages(manager, with_headers) == names[:1]
