"""The real apt, on a Debian or Ubuntu host, as root; what is installed is removed again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from agent.errors import DependencyFailedError, InterruptedRunError
from agent.facts.packages import INSTALLED_PACKAGES
from dependencies.apt import apt_progress, remedy_for
from dependencies.linux_package_installation import (
    LinuxPackageInstallation,
    LinuxPackageInstallationParameters,
)
from dependencies.package_lock import wait_for_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """A tiny package that is not on this host; afterwards it is as it was."""
    installed = real_host.facts.fresh()[INSTALLED_PACKAGES]
    name = next((name for name in ("hello", "sl", "dos2unix") if name not in installed), None)
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
    deadline = time.monotonic() + 30
    while not any(f"process {holder.pid}), which holds {LOCK}" in text for text in real_host.messages.texts):
        assert time.monotonic() < deadline
        time.sleep(0.02)
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


@pytest.mark.parametrize("packages", ["--reinstall", "Upper", "a b", "x=", "git;rm", "-o", "../x"])
def test_what_is_no_package(packages: str) -> None:
    with pytest.raises(ValidationError, match="is no package"):
        installation(packages)


def test_progress_lines() -> None:
    assert apt_progress("pmstatus:hello:20.5:Installing hello (amd64)") == ("Installing hello (amd64)", 20.5)
    assert apt_progress("dlstatus:1:9.0588:Retrieving file 1 of 1") == ("Retrieving file 1 of 1", 9.0588)
    assert apt_progress("Reading package lists...") is None


def test_remedies() -> None:
    version = "E: Version '9' for 'hello' was not found"
    assert remedy_for(version, "log") == "see apt-cache madison hello for the versions that there are"
    assert "Proxy" in remedy_for("E: Temporary failure resolving 'deb.debian.org'", "log")
    assert remedy_for("something else", "log") == "all of apt's output is in log"
