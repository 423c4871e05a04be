"""Changes of dependencies are undone, and files that were changed since are left alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.component.component import Step
from agent.core.errors import ExitCode
from agent.facts import Facts, LocalHost
from agent.facts.disks import BlockDevice
from agent.facts.git import GitCheckout
from agent.facts.packages import InstalledPackage
from agent.facts.python_environments import PythonEnvironment
from agent.run.undoing import undoings
from agent.store.journal import Journal, StepRow, StepStatus
from agent.store.results import JOURNAL
from dependencies.disks.mount_disks import MountDisks
from dependencies.packages.linux_package_installation import LinuxPackageInstallation
from dependencies.python.environment_installation import PythonEnvironmentInstallation
from dependencies.sources.git_repo_clone import GitRepoClone

ROOT = Path(__file__).parents[3]


def vcagent(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agent", *arguments],
        cwd=ROOT,
        env={**os.environ, "VCAGENT_PACKAGE_DIR": str(folder / "packages"), "COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def cloned(tmp_path: Path) -> Path:
    """Make a run that cloned a repository into the package folder; return the results folder."""
    origin = tmp_path / "origin"
    git = ["git", "-C", str(origin), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "init", "-q", str(origin)], check=True)
    (origin / "file").write_text("x")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
    profile = {
        "Description": "d",
        "Dependencies": [
            {"Type": "GitRepoClone", "Parameters": {"RepoUri": str(origin), "PackageName": "code"}}
        ],
    }
    (tmp_path / "P.json").write_text(json.dumps(profile))
    results = tmp_path / "results"
    ran = vcagent(tmp_path, "-p", str(tmp_path / "P.json"), f"--results-dir={results}", "-q")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "packages/code/file").exists()
    return results


@pytest.mark.skipif(not shutil.which("git"), reason="no git")
def test_a_clone_is_removed_once_and_only_when_told(tmp_path: Path, cloned: Path) -> None:
    options = ("clean", "--dependencies", f"--results-dir={cloned}")
    shown = vcagent(tmp_path, *options)
    assert shown.returncode == ExitCode.USAGE
    assert f"rm -r {tmp_path}/packages/code" in shown.stdout
    assert "--yes" in shown.stderr
    assert (tmp_path / "packages/code/file").exists()

    done = vcagent(tmp_path, *options, "--yes")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "packages/code").exists()
    again = vcagent(tmp_path, *options, "--yes")
    assert again.returncode == 0
    assert again.stdout.strip() == "Nothing to undo."


@pytest.mark.skipif(not shutil.which("git"), reason="no git")
def test_a_clone_with_work_in_it_is_left(tmp_path: Path, cloned: Path) -> None:
    (tmp_path / "packages/code/mine").write_text("work")
    done = vcagent(tmp_path, "clean", "-d", "-y", f"--results-dir={cloned}")
    assert done.returncode == 0
    assert "has changes of its own: ?? mine" in done.stdout
    assert (tmp_path / "packages/code/mine").exists()


def test_what_is_to_be_cleaned_must_be_named(tmp_path: Path) -> None:
    said = vcagent(tmp_path, "clean", f"--results-dir={tmp_path}")
    assert said.returncode == ExitCode.USAGE
    assert "vcagent clean --dependencies" in said.stderr


def test_the_newest_step_first_and_every_attempt(tmp_path: Path) -> None:
    runs = [tmp_path / "1-run", tmp_path / "2-run"]
    for run in runs:
        run.mkdir()
        journal = Journal(run / JOURNAL)
        for name in ("a", "b", "b"):
            key = f"dependencies[0]/{name}"
            row = StepRow(key, "dependencies[0]", "MountDisks", "dependency", name, "r", "c", "l")
            journal.start_step(row, undo={"line": f"{run.name} {name}"})
            journal.end_step(key, StepStatus.DONE)
        silent = StepRow("dependencies[1]/c", "dependencies[1]", "Gone", "dependency", "c", "r", "c", "l")
        journal.start_step(silent)
        journal.end_step(silent.key, StepStatus.DONE)
        journal.start_step(StepRow("1:actions[0]/x", "1:actions[0]", "A", "action", "x", "r", "c", "l"))
        journal.close()
    found = undoings(runs, Facts(None, {"text[/etc/fstab]": "2-run b\n"}))
    assert [(item.run_dir.name, item.row.name) for item in found] == [
        (run, step) for run in ("2-run", "1-run") for step in ("b", "b", "a", "c")
    ]
    assert [bool(item.plan.steps) for item in found] == [True, True] + [False] * 6
    assert "can be undone" in found[3].plan.nothing_to_do


def test_a_type_that_is_gone_is_left(tmp_path: Path) -> None:
    with Journal(tmp_path / JOURNAL) as journal:
        journal.start_step(StepRow("d/x", "d", "Gone", "dependency", "x", "r", "c", "l"), undo={})
    (item,) = undoings([tmp_path], Facts(LocalHost()))
    assert "'Gone' is not implemented" in item.plan.nothing_to_do


CLONE = {"folder": "/p/code", "uri": "https://x/y.git"}
CHECKOUT = GitCheckout("https://x/y", "abc", "main")
ENVIRONMENT = {"folder": "/p/.environments/e-1", "link": "/p/e"}
PACKAGES = {"packages": ["jq", "curl"], "lock_timeout_s": 1}
MOUNT = {"target": "/mnt_dev_sdb", "uuid": "11"}


def disk(**values: Any) -> dict[str, Any]:
    return {"disks": (BlockDevice("/dev/sdb", "disk", 9, **values),), "signatures[/dev/sdb]": ()}


UNDO: dict[str, tuple[Any, dict[str, Any], dict[str, Any], str]] = {
    "clone gone": (GitRepoClone, CLONE, {"exists[/p/code]": False}, "/p/code is gone"),
    "another clone": (
        *(GitRepoClone, CLONE),
        {"exists[/p/code]": True, "git_checkout[/p/code]": GitCheckout("https://z", "a")},
        "is no longer a clone of https://x/y.git",
    ),
    "changed clone": (
        *(GitRepoClone, CLONE),
        {"exists[/p/code]": True, "git_checkout[/p/code]": CHECKOUT, "git_changes[/p/code]": (" M a",)},
        "has changes of its own: M a",
    ),
    "silent clone": (
        *(GitRepoClone, CLONE),
        {"exists[/p/code]": True, "git_checkout[/p/code]": CHECKOUT, "git_changes[/p/code]": None},
        "nobody can tell",
    ),
    "clone": (
        *(GitRepoClone, CLONE),
        {"exists[/p/code]": True, "git_checkout[/p/code]": CHECKOUT, "git_changes[/p/code]": ()},
        "rm -r /p/code",
    ),
    "environment gone": (
        *(PythonEnvironmentInstallation, ENVIRONMENT),
        {"python_environment[/p/.environments/e-1]": None, "exists[/p/.environments/e-1]": False},
        "is gone",
    ),
    "changed environment": (
        *(PythonEnvironmentInstallation, ENVIRONMENT),
        {
            "python_environment[/p/.environments/e-1]": PythonEnvironment("k", "3.11", ("torch",)),
            "exists[/p/.environments/e-1]": True,
        },
        "was changed: torch",
    ),
    "environment": (
        *(PythonEnvironmentInstallation, ENVIRONMENT),
        {
            "python_environment[/p/.environments/e-1]": PythonEnvironment("k", "3.11"),
            "exists[/p/.environments/e-1]": True,
            "link_target[/p/e]": Path("/p/.environments/e-1"),
        },
        "rm -r /p/e /p/.environments/e-1",
    ),
    "environment that is not linked": (
        *(PythonEnvironmentInstallation, ENVIRONMENT),
        {
            "python_environment[/p/.environments/e-1]": None,
            "exists[/p/.environments/e-1]": True,
            "link_target[/p/e]": Path("/p/.environments/e-2"),
        },
        "rm -r /p/.environments/e-1",
    ),
    "packages gone": (
        *(LinuxPackageInstallation, PACKAGES),
        {"installed_packages": {"jq": InstalledPackage("1", "rc")}},
        "not installed any more: jq curl",
    ),
    "packages": (
        *(LinuxPackageInstallation, PACKAGES),
        {"installed_packages": {"jq": InstalledPackage("1")}, "package_manager": "apt", "root": True},
        "dpkg --remove jq",
    ),
    "packages with dnf": (
        *(LinuxPackageInstallation, PACKAGES),
        {"installed_packages": {"jq": InstalledPackage("1")}, "package_manager": "dnf", "root": True},
        "rpm --erase jq",
    ),
    "not mounted": (MountDisks, MOUNT, disk(), "nothing is mounted at /mnt_dev_sdb any more"),
    "another mount": (
        MountDisks,
        MOUNT,
        disk(uuid="12", mount_points=("/mnt_dev_sdb",)),
        "another file system",
    ),
    "mount": (
        *(MountDisks, MOUNT, disk(uuid="11", mount_points=("/mnt_dev_sdb",))),
        "umount /mnt_dev_sdb && rmdir /mnt_dev_sdb",
    ),
    "line": (
        MountDisks,
        {"line": "UUID=1 /a"},
        {"text[/etc/fstab]": "x\nUUID=1 /a\n"},
        "remove from /etc/fstab",
    ),
    "line gone": (MountDisks, {"line": "UUID=1 /a"}, {"text[/etc/fstab]": "x\n"}, "no such line any more"),
}


@pytest.mark.parametrize("case", UNDO)
def test_undo(case: str) -> None:
    implementation, values, facts, expected = UNDO[case]
    plan = implementation.undo(values, Facts(None, facts))
    shown = [step.command for step in plan.steps] or [plan.nothing_to_do]
    assert len(shown) == 1
    assert expected in shown[0]


def test_a_step_notes_nothing_unless_it_says_so() -> None:
    assert Step("x", "y", lambda _: None).undo is None


@pytest.mark.skipif(not shutil.which("git"), reason="no git")
def test_a_run_is_kept_while_what_it_did_stands(tmp_path: Path, cloned: Path) -> None:
    (run,) = cloned.glob("2*")
    removed = vcagent(tmp_path, "--clean=logs", "--yes", f"--results-dir={cloned}")
    assert removed.returncode == 0
    assert "its changes are still in place (GitRepoClone: " in removed.stdout
    assert f"first: vcagent clean --dependencies {run.name}" in removed.stdout
    assert (run / JOURNAL).is_file()
    assert vcagent(tmp_path, "clean", "-d", "-y", f"--results-dir={cloned}").returncode == 0
    assert vcagent(tmp_path, "--clean=logs", "--yes", f"--results-dir={cloned}").returncode == 0
    assert not run.exists()


@pytest.mark.skipif(not shutil.which("git"), reason="no git")
def test_packages_and_the_runs_that_made_them_go_together(tmp_path: Path, cloned: Path) -> None:
    (run,) = cloned.glob("2*")
    removed = vcagent(tmp_path, "--clean", "--yes", f"--results-dir={cloned}")
    assert removed.returncode == 0, removed.stderr
    assert not (tmp_path / "packages/code").exists()
    assert not run.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.skipif(not shutil.which("git"), reason="no git")
def test_root_believes_only_journals_that_root_wrote(tmp_path: Path, cloned: Path) -> None:
    (run,) = cloned.glob("2*")
    os.chown(run / JOURNAL, 65534, 65534)
    done = vcagent(tmp_path, "clean", "-d", "-y", f"--results-dir={cloned}")
    assert "its journal was not written by root" in done.stdout
    assert "Nothing to undo." in done.stdout
    removed = vcagent(tmp_path, "--clean=logs", "--yes", f"--results-dir={cloned}")
    assert "its journal was not written by root" in removed.stdout
    assert run.exists()
    assert (tmp_path / "packages/code").exists()
    os.chown(run / JOURNAL, 0, 0)
    cloned.chmod(0o777)
    refused = vcagent(tmp_path, "resume", f"--results-dir={cloned}")
    assert refused.returncode == ExitCode.HOST_CANNOT_RUN
    assert "every account may write to" in refused.stderr
    planned = vcagent(tmp_path, "-p", "EXECUTE-COMMAND", "--pm", "Command=true", f"--results-dir={cloned}")
    assert planned.returncode == ExitCode.HOST_CANNOT_RUN
    assert "chmod go-w" in planned.stderr
