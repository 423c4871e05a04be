"""The real apt, on a Debian or Ubuntu host, as root; installed packages are removed again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from agent.core.errors import DependencyFailedError, InterruptedRunError
from agent.facts import Facts
from agent.facts.linux import Distribution
from agent.facts.packages import INSTALLED_PACKAGES, PACKAGE_LOCK, InstalledPackage
from dependencies.packages.apt import APT_UPDATE, apt_progress, remedy_for, run_apt
from dependencies.packages.linux_package_installation import (
    LinuxPackageInstallation,
    LinuxPackageInstallationParameters,
)
from dependencies.packages.package_lock import wait_for_lock
from tests.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.dependencies.conftest import RealHost

LOCK = "/var/lib/dpkg/lock-frontend"

real_apt = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("apt-get") is None, reason="needs root and apt"
)

HOLDER = f"""
import fcntl, sys
with open({LOCK!r}, "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def installation(packages: str, lock_timeout: float = 120) -> LinuxPackageInstallation:
    values = {"Packages": packages, "LockTimeout": lock_timeout}
    return LinuxPackageInstallation(LinuxPackageInstallationParameters.model_validate(values))


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture
def absent(real_host: RealHost) -> Iterator[str]:
    """Return a tiny package that is not on this host, and restore the host's state afterwards.

    The packages have no manual pages: for any of those, man-db updates its index, which takes seconds.
    """
    installed = real_host.facts.fresh()[INSTALLED_PACKAGES]
    name = next((name for name in ("publicsuffix", "usb.ids", "hello") if name not in installed), None)
    if name is None:
        pytest.skip("every tiny package is on this host")
    yield name
    subprocess.run(["apt-get", "purge", "-y", "-qq", name], check=True, stdout=subprocess.DEVNULL)


@real_apt
@pytest.mark.root
def test_a_package_is_installed_once(real_host: RealHost, absent: str) -> None:
    names = real_host.apply(installation(absent))
    assert names[-1] == "install"
    assert real_host.apply(installation(absent)) == []
    assert real_host.facts.fresh()[INSTALLED_PACKAGES][absent].status == "ii"
    assert any("nstalling" in text or "Preparing" in text for text in real_host.messages.texts)


@real_apt
@pytest.mark.root
def test_a_held_lock_is_waited_for_and_its_holder_named(
    real_host: RealHost, absent: str, holder: subprocess.Popen[str]
) -> None:
    done = threading.Event()

    def install() -> None:
        real_host.apply(installation(absent))
        done.set()

    thread = threading.Thread(target=install)
    thread.start()
    told = f"process {holder.pid}), which holds {LOCK}"
    wait_for(lambda: any(told in text for text in real_host.messages.texts), limit_s=120)
    assert not done.is_set()
    assert not real_host.context.log.exists() or "install" not in real_host.context.log.read_text()
    assert holder.stdin
    holder.stdin.close()
    thread.join(60)
    assert done.is_set()


@real_apt
@pytest.mark.root
@pytest.mark.usefixtures("holder")
def test_waiting_for_a_lock_has_an_end(real_host: RealHost) -> None:
    with pytest.raises(DependencyFailedError, match="has held /var/lib/dpkg/lock-frontend") as error:
        wait_for_lock(real_host.context, 0.1, poll_s=0.02)
    assert "never delete the lock" in (error.value.remedy or "")
    assert os.path.lexists(LOCK)
    real_host.context.stop.set()
    with pytest.raises(InterruptedRunError):
        wait_for_lock(real_host.context, 60)


@real_apt
@pytest.mark.root
def test_a_package_that_nobody_has(real_host: RealHost) -> None:
    (*_, install) = installation("no-such-package-anywhere").plan(real_host.facts.fresh()).steps
    with pytest.raises(DependencyFailedError) as error:
        install.run(real_host.context)
    assert "no repository of this host has no-such-package-anywhere" in (error.value.remedy or "")


@real_apt
@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "near"),
    [("gcc-1.", "gcc-1"), ("hello+", "hello"), ("libstdc+", ""), ("build-esential", "build-essential")],
)
def test_a_name_that_apt_would_take_for_something_else(real_host: RealHost, name: str, near: str) -> None:
    (*_, install) = installation(name).plan(real_host.facts.fresh()).steps
    with pytest.raises(DependencyFailedError, match="apt knows no package") as error:
        install.run(real_host.context)
    assert near in (error.value.remedy or "")
    assert not real_host.context.log.exists(), "apt was not asked"


@real_apt
@pytest.mark.root
@pytest.mark.parametrize("name", ["dpkg", "dpkg:native", "dpkg:any", "adduser:all", "awk"])
def test_every_spelling_of_what_is_there(real_host: RealHost, name: str) -> None:
    assert installation(name).plan(real_host.facts.fresh()).nothing_to_do


@real_apt
@pytest.mark.root
@pytest.mark.usefixtures("holder")
def test_the_real_lock_is_told_as_held(real_host: RealHost, holder: subprocess.Popen[str]) -> None:
    found = real_host.facts.fresh()[PACKAGE_LOCK]
    assert found
    assert (found.pid, found.path) == (holder.pid, LOCK)


@real_apt
def test_without_a_network_the_update_fails(tmp_path: Path) -> None:
    (tmp_path / "lists" / "partial").mkdir(parents=True)
    (tmp_path / "sources.list").write_text("deb [trusted=yes] http://127.0.0.1:9/debian stable main\n")
    options = {
        "Dir::Etc::SourceList": tmp_path / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": tmp_path / "lists",
        "Acquire::Retries": 0,
    }
    command = [*APT_UPDATE, *(f"--option={name}={value}" for name, value in options.items())]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode != 0
    assert "network, DNS, proxy" in remedy_for(result.stderr, "log")


def test_nothing_is_removed_and_configuration_stays() -> None:
    host = {
        "package_manager": "apt",
        "distribution": Distribution("debian"),
        "root": True,
        "apt_lists_age_s": 1,
        "available_packages": frozenset({"hello"}),
        "installed_packages": {"x": InstalledPackage("1", "iF")},
    }
    repair, install = installation("hello").plan(Facts(None, host)).steps
    assert "--no-remove" in install.command
    for step in (repair, install):
        assert "--force-confdef" in step.command
        assert "--force-confold" in step.command


@pytest.mark.parametrize(
    "packages",
    [
        "--reinstall", "Upper", "a b", "x=", "git;rm", "-o", "../x", "git-", "git=1-", "git:amd64-", "git*",
        "git:", "^git$", "a",
    ],
)  # fmt: skip
def test_what_is_no_package(packages: str) -> None:
    with pytest.raises(ValidationError, match="is not a package"):
        installation(packages)


def test_progress_lines() -> None:
    assert apt_progress("pmstatus:hello:20.5:Installing hello (amd64)") == ("Installing hello (amd64)", 20.5)
    assert apt_progress("dlstatus:1:9.0588:Retrieving file 1 of 1") == ("Retrieving file 1 of 1", 9.0588)
    assert apt_progress("Reading package lists...") is None


def test_remedies() -> None:
    version = "E: Version '9' for 'hello' was not found"
    assert remedy_for(version, "log") == "see apt-cache madison hello for the versions that there are"
    assert "dpkg --add-architecture" in remedy_for("E: Unable to locate package libgomp1:i386", "log")
    assert "it excludes a package" in remedy_for(
        "E: Packages need to be removed but remove is disabled.", "log"
    )
    assert "Proxy" in remedy_for("E: Temporary failure resolving 'deb.debian.org'", "log")
    assert remedy_for("something else", "log") == "all of apt's output is in log"


@pytest.mark.parametrize(("command", "to_its_end"), [("install", True), ("update", False)])
def test_an_installation_is_not_cut_short(
    real_host: RealHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, *, to_its_end: bool
) -> None:
    (tmp_path / "apt-get").write_text("#!/bin/sh\necho begun\nsleep 2\ntouch ended\n")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dependencies.packages.apt.wait_for_lock", lambda *_: None)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            run_apt(real_host.context, ["apt-get", command], 1)
        except InterruptedRunError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    log = real_host.context.log
    wait_for(lambda: log.exists() and "begun" in log.read_text())
    real_host.context.stop.set()
    thread.join(20)
    assert len(errors) == 1
    assert (tmp_path / "ended").exists() == to_its_end
