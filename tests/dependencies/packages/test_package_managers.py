"""dnf and zypper: their locks, their progress and their errors, with stand-ins for the programs."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from agent.core.errors import DependencyFailedError, HostError, InterruptedRunError
from agent.facts import Facts, LocalHost
from agent.facts.packages import INSTALLED_PACKAGES, PACKAGE_LOCK, InstalledPackage
from agent.facts.rpm_packages import PID_FILES, RpmPackage, pid_file_holder, rpm_packages
from dependencies.packages.dnf import dnf_progress, run_dnf
from dependencies.packages.package_lock import remedy_among
from dependencies.packages.package_managers import PackageWish, removal_plan
from dependencies.packages.zypper import REMEDIES as ZYPPER_REMEDIES
from dependencies.packages.zypper import run_zypper, zypper_progress
from tests.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.dependencies.conftest import RealHost

RPM_LIST = """\
bash\t5.1.8-9.el9\tx86_64\tbash config(bash) /bin/sh
docker-ce\t3:27.3.1-1.el9\tx86_64\tdocker-ce docker-ce(x86-64) docker docker-engine
kernel-devel\t5.14.0-427.el9\tx86_64\tkernel-devel installonlypkg(kernel)
kernel-devel\t5.14.0-503.el9\tx86_64\tkernel-devel
gpg-pubkey\t621e9f35-58adea78\t(none)\tgpg(Docker)
"""


def test_rpm_packages() -> None:
    packages = rpm_packages(RPM_LIST)
    assert packages["docker-ce"] == packages["docker-ce.x86_64"] == RpmPackage("3:27.3.1-1.el9")
    assert packages["docker"] == RpmPackage("")
    assert "gpg-pubkey" not in packages
    assert "gpg-pubkey-621e9f35" in packages
    assert "config(bash)" not in packages
    assert {name for name in packages if name.startswith("kernel-devel-")} == {
        "kernel-devel-5.14.0-427.el9",
        "kernel-devel-5.14.0-503.el9",
    }


def test_a_plain_name_is_of_this_architecture() -> None:
    text = (
        "glibc\t2.34-100.el9\ti686\tglibc libc-of-old\n"
        "bash\t5.1-9.el9\tx86_64\tbash\n"
        "font\t1-1\tnoarch\tfont\n"
    )
    assert rpm_packages(text)["glibc"].version
    packages = rpm_packages(text, "x86_64")
    assert set(packages) == {"glibc.i686", "bash", "bash.x86_64", "font", "font.noarch"}


@pytest.mark.parametrize(
    "text", ["git-", "git=1-", "-git", "!git", "~git", "git*", "@tools", "/bin/git", "a b"]
)
def test_what_is_no_package_to_rpm(text: str) -> None:
    with pytest.raises(ValueError, match="is not a package"):
        PackageWish.parse(text, rpm=True)


@pytest.mark.parametrize(
    "text", ["R", "gcc-c++", "libstdc++=14.2.1-1*", "glibc.i686", "ImageMagick=1:6.9~rc1^2"]
)
def test_what_is_one(text: str) -> None:
    assert str(PackageWish.parse(text, rpm=True)) == text


APT = {
    "git": InstalledPackage("1", "ii", "amd64"),
    "git:amd64": InstalledPackage("1", "ii", "amd64"),
    "lib:i386": InstalledPackage("1", "ii", "i386"),
    "awk": InstalledPackage(""),
}


@pytest.mark.parametrize(
    ("asked", "removed"),
    [
        ("git", "git"),
        ("git:any", "git"),
        ("git:native", "git"),
        ("lib:i386", "lib:i386"),
        ("lib:any", "lib:i386"),
    ],
)
def test_dpkg_knows_no_any(asked: str, removed: str) -> None:
    facts = Facts(None, {"installed_packages": APT, "package_manager": "apt", "root": True})
    (step,) = removal_plan({"packages": [asked, "lib", "awk"], "lock_timeout_s": 1}, facts).steps
    assert step.command == f"dpkg --remove {removed}"


@pytest.mark.parametrize("version", ["3:27.3.1-1.el9", "27.3.1-1.el9", "27.3.1", "3:27.3.1", "27.3.*"])
def test_spellings_of_an_rpm_version(version: str) -> None:
    installed = {"docker-ce": InstalledPackage("3:27.3.1-1.el9")}
    assert PackageWish("docker-ce", version).fulfilled(installed, "dnf")
    assert not PackageWish("docker-ce", "27.3").fulfilled(installed, "dnf")
    # With apt, a version is the full version.
    assert PackageWish("docker-ce", version).fulfilled(installed) is (version == "3:27.3.1-1.el9")


def test_the_lock_file_of_zypper_stays_behind() -> None:
    files = {"/run/zypp.pid": "4711\n"}
    assert pid_file_holder(files, {4711: "zypper\0update"}) == (4711, "/run/zypp.pid")
    assert pid_file_holder(files, {4711: "sleep\0600"}) is None  # another process got its number
    assert pid_file_holder(files, {}) is None
    assert pid_file_holder({"/run/yum.pid": ""}, {0: "yum"}) is None
    tdnf = "/run/.tdnf-instance-lockfile"
    assert tdnf in PID_FILES
    assert pid_file_holder({tdnf: "7\n"}, {7: "tdnf\0install\0git"}) == (7, tdnf)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "  Installing       : git-2.43.5-1.el9.x86_64        3/7 ",
            ("Installing : git-2.43.5-1.el9.x86_64", 3, 7),
        ),
        ("Upgraded 3/7 packages", None),
        (
            "[3/4] Installing git-0:2.43.5-1.fc44.x86_64 100% |   8.6 KiB/s | 124.0   B |  00m00s",
            ("Installing git-0:2.43.5-1.fc44.x86_64", 3, 4),
        ),
        ("[1/1] Total                             100% |   5.3 MiB/s |   5.4 KiB |  00m00s", None),
        ("Dependencies resolved.", None),
    ],
)
def test_progress_of_dnf(line: str, expected: tuple[str, float, float] | None) -> None:
    assert dnf_progress(line) == expected


def test_progress_of_zypper() -> None:
    assert zypper_progress("( 3/17) Installing: git-2.43.0-1.x86_64 [...done]") == (
        "Installing: git-2.43.0-1.x86_64",
        3,
        17,
    )
    assert zypper_progress("Loading repository data...") is None


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\ncd {folder}\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_dnf_is_run_again_when_somebody_was_faster(real_host: RealHost, programs: Path) -> None:
    program(
        programs, "dnf",
        "echo call >> calls; test $(wc -l < calls) -ge 2 && exit 0;"
        "echo 'Error: Failed to obtain the transaction lock (logged in as: root).' >&2; exit 200",
    )  # fmt: skip
    run_dnf(real_host.context, ["dnf", "install", "git"], 30)
    assert (programs / "calls").read_text() == "call\ncall\n"
    assert any("was faster" in text for text in real_host.messages.texts)


def test_dnf_does_not_wait_for_ever(real_host: RealHost, programs: Path) -> None:
    program(programs, "dnf", "echo 'Error: Failed to obtain the transaction lock'; exit 200")
    with pytest.raises(DependencyFailedError) as error:
        run_dnf(real_host.context, ["dnf", "install", "git"], 0)
    assert "never delete the lock" in (error.value.remedy or "")
    real_host.context.stop.set()
    with pytest.raises(InterruptedRunError):
        run_dnf(real_host.context, ["dnf", "install", "git"], 30)


def test_dnf_does_not_know_it(real_host: RealHost, programs: Path) -> None:
    program(programs, "dnf", "echo 'Error: Unable to find a match: nosuch' >&2; exit 1")
    with pytest.raises(DependencyFailedError) as error:
        run_dnf(real_host.context, ["dnf", "install", "nosuch"], 1)
    assert "has nosuch" in (error.value.remedy or "")


@pytest.mark.parametrize(("name", "run"), [("dnf", run_dnf), ("zypper", run_zypper)])
def test_an_installation_is_not_cut_short(
    real_host: RealHost, programs: Path, name: str, run: Callable[..., object]
) -> None:
    program(programs, name, "touch begun; sleep 1; touch ended")
    stopper = threading.Thread(target=stop_when_begun, args=(real_host, programs / "begun"))
    stopper.start()
    with pytest.raises(InterruptedRunError):
        run(real_host.context, [name, "install", "git"], 1)
    stopper.join()
    assert (programs / "ended").exists()


def stop_when_begun(host: RealHost, begun: Path) -> None:
    try:
        wait_for(begun.exists)
    finally:
        host.context.stop.set()


def test_an_rpm_that_hangs_is_not_an_empty_host(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs, "rpm", "sleep 60")
    program(programs, "uname", "echo x86_64")
    monkeypatch.setattr("agent.facts.packages._manager", lambda _: "dnf")
    monkeypatch.setattr("agent.facts.packages._QUERY_TIMEOUT_S", 0.3)
    with pytest.raises(HostError, match="rpm gave no answer"):
        _ = Facts(LocalHost())[INSTALLED_PACKAGES]


def test_zypper_waits_by_itself(real_host: RealHost, programs: Path) -> None:
    program(programs, "zypper", "echo $ZYPP_LOCK_TIMEOUT $ZYPPER_NONINTERACTIVE > seen")
    run_zypper(real_host.context, ["zypper", "install", "git"], 45)
    assert (programs / "seen").read_text() == "45 1\n"


def test_a_modelled_lock_of_dnf() -> None:
    class Host:
        files = {  # noqa: RUF012 - a test's table
            "/var/lib/dnf/rpmdb_lock.pid": "812",
            "/proc/812/cmdline": "/usr/libexec/platform-python\0/usr/bin/dnf\0upgrade",
            "/proc/812/comm": "dnf\n",
        }

        def output(self, command: object, **_: object) -> str | None:
            return None

        def text(self, path: str) -> str | None:
            return self.files.get(path)

        def names(self, folder: str) -> list[str]:
            return []

        def lock_holder(self, path: str) -> int | None:
            return None

    lock = Facts(Host())[PACKAGE_LOCK]
    assert lock
    assert (lock.pid, lock.name, lock.path) == (812, "dnf", "/var/lib/dnf/rpmdb_lock.pid")


def test_a_remedy_without_its_word() -> None:
    told = remedy_among(ZYPPER_REMEDIES, "No provider of 'docker' found.")
    assert told
    assert "SUSEConnect" in told
    assert remedy_among((("a(b)?", "see {0}"),), "a") == "see it"
