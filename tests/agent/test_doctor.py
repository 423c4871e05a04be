from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from agent.cli.doctor import doctor
from agent.cli.facts import facts as facts_command
from agent.doctor import Check, Status, check_host, check_plan, writable
from agent.errors import HostError, UsageError
from agent.facts import Facts
from agent.facts.linux import Distribution
from agent.facts.memory import Memory
from agent.facts.packages import InstalledPackage, PackageLock
from agent.facts.python import PythonInterpreter
from agent.facts.storage import Mount
from agent.facts.users import User

GIB = 1024**3


def _mounts(total: int, free: int) -> dict[str, Any]:
    return {"mounts": (Mount(Path("/"), "ext4", total, free),)}


def healthy(folder: Path, **changes: Any) -> Facts:
    values = {
        "package_dir": folder / "packages",
        "mounts": (Mount(Path("/"), "ext4", 100 * GIB, 50 * GIB),),
        "memory": Memory(16 * GIB, 8 * GIB),
        "user": User("root", 0),
        "python": PythonInterpreter("/usr/bin/python3", "3.11.2", "linux-x86_64"),
        "distribution": Distribution("ubuntu", like=("debian",)),
        "package_manager": "apt",
        "package_lock": None,
        "installed_packages": {"git": InstalledPackage("1")},
    }
    return Facts(None, {**values, **changes})


def checks(folder: Path, **changes: Any) -> dict[str, Check]:
    return {check.name: check for check in check_host(healthy(folder, **changes), folder / "results", folder)}


def test_a_healthy_host(tmp_path: Path) -> None:
    found = checks(tmp_path)
    assert {check.status for check in found.values()} == {Status.OK}
    assert found["space for results"].message == f"50.0 GiB free below {tmp_path}/results"


WRONG: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    "full": (_mounts(GIB, 10), "space for results", "problem", "0.0 GiB", "free some"),
    "narrow": (_mounts(GIB, GIB), "space for packages", "warning", "1.0 GiB", "4.0 GiB"),
    "unknown": ({"mounts": ()}, "space for results", "warning", "nobody can tell", "df"),
    "memory": ({"memory": Memory(4 * GIB, GIB)}, "memory", "warning", "1.0 of 4.0 GiB", "smaller model"),
    "user": ({"user": User("ann", 1000)}, "user", "warning", "ann is not root", "run as root"),
    "ensurepip": (
        {"python": PythonInterpreter("/p", "3.11.2", "x", ensurepip=False)},
        *("python environments", "problem", "/p cannot", "apt-get install python3.11-venv"),
    ),
    "python": ({"python": None}, "python environments", "problem", "does not answer", "anew"),
    "lock": (
        {"package_lock": PackageLock(42, "unattended-upgr", "/var/lib/dpkg/lock")},
        *("package lock", "warning", "unattended-upgr (process 42)", "never delete"),
    ),
    "manager": ({"package_manager": None}, "package lock", "warning", "no package manager", "yourself"),
    "packages": (
        {"installed_packages": {"x:amd64": InstalledPackage("1", "iF")}},
        *("packages", "warning", "half installed: x", "dpkg --configure"),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_with_a_remedy(tmp_path: Path, case: str) -> None:
    changes, name, status, message, remedy = WRONG[case]
    check = checks(tmp_path, **changes)[name]
    assert check.status.value == status
    assert message in check.message
    assert remedy in check.remedy


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert writable(tmp_path / "not" / "yet")
    assert not writable(tmp_path / "file" / "below")
    assert not writable(Path("/proc/1/none"))
    found = checks(tmp_path, package_dir=tmp_path / "file")
    assert found["packages folder"].status is Status.PROBLEM


def test_a_refused_plan_is_a_problem() -> None:
    def planned(**values: Any) -> Any:
        element = SimpleNamespace(key="dependencies[0]", type="X")
        return SimpleNamespace(element=element, **{"error": None, "plan": None, "note": "", **values})

    step = SimpleNamespace(name="install")
    refused, quiet, busy = check_plan(
        [
            planned(error=HostError("no disk", remedy="buy one")),
            planned(note="installed"),
            planned(plan=SimpleNamespace(steps=(step, step))),
        ]
    )
    assert refused == Check("dependencies[0] X", Status.PROBLEM, "no disk", "buy one")
    assert (quiet.status, quiet.message) == (Status.OK, "installed")
    assert busy.message == "install, install"


def command_line(command: Any, *arguments: str) -> Any:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(arguments))


def test_the_commands(tmp_path: Path) -> None:
    folder = f"--package-dir={tmp_path}"
    result = command_line(doctor, "--json", folder, f"--results-dir={tmp_path}")
    names = {check["name"] for check in json.loads(result.stdout)}
    assert {"results folder", "memory", "package lock"} <= names
    table = command_line(doctor, folder, f"--results-dir={tmp_path}")
    assert table.exit_code == result.exit_code
    assert "what to do" in table.stdout


def test_facts_as_table_and_json() -> None:
    shown = command_line(facts_command, "platform", "Package-Dir", "--json")
    assert set(json.loads(shown.stdout)) == {"platform", "package_dir"}
    everything = command_line(facts_command)
    assert everything.exit_code == 0
    for text in ("linux-", "/etc/os-release", "entries", "—"):
        assert text in everything.stdout
    wrong = command_line(facts_command, "plattform")
    assert isinstance(wrong.exception, UsageError)
    assert "platform" in str(wrong.exception)
