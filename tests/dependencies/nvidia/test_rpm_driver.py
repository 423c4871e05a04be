"""Every field of the steps that install a driver with dnf, and its locks; packages are modelled."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import DependencyFailedError, HostError
from agent.facts.package_solutions import PackageSolution
from agent.facts.package_versions import PackageOffer
from agent.facts.packages import InstalledPackage
from dependencies.nvidia.driver import DriverWish
from dependencies.nvidia.repository import NvidiaRepository
from dependencies.nvidia.rpm_driver import RpmDriverPackages, removed_by
from dependencies.packages.version_lock import VersionLock
from tests.dependencies.nvidia.test_driver_packages import told
from tests.dependencies.nvidia.test_nvidia_driver_steps import Processes, context, facts, run, steps

if TYPE_CHECKING:
    from pathlib import Path

    from agent.facts import Facts
    from agent.host.processes import ProcessResult

KERNEL = "5.14.0-427.13.1.el9_4.x86_64"
V, NEW = "3:550.163.01-1.el9", "3:580.126.09-1.el9"
LOCK = "etc/dnf/plugins/versionlock.list"
MODULE = "kmod-nvidia-latest-dkms"
COMMON = ("nvidia-driver-cuda-libs", "nvidia-kmod-common", "libnvidia-ml")
TABLE = "Installing:\n nvidia-driver-cuda x86_64 3:550 cuda 1 k\n\nTransaction Summary\n"
REMOVING = "Removing:\n gcc x86_64 13 base 1 k\n nvidia-x x86_64 1 cuda 1 k\n make x86_64 4 base 1 k\n"
REMOVING += "\nTransaction Summary\n"
OPTIONS = ["--assumeyes", "--setopt=exit_on_lock=True", "--setopt=install_weak_deps=False"]
STREAM = "--setopt=cuda-rhel9-x86_64.module_hotfixes=1"


def install(*names: str) -> list[str]:
    erasing = ["--allowerasing", "--setopt=clean_requirements_on_remove=False"]
    return ["dnf", STREAM, *OPTIONS, "install", *erasing, *names]


WANTED = [f"{name}-{V}" for name in ("nvidia-driver-cuda", MODULE)]
WANTED += ["nvidia-fabric-manager-0:550.163.01-1", *(f"{name}-{V}" for name in COMMON)]
DRIVER = {
    **dict.fromkeys(("nvidia-driver-cuda", MODULE, *COMMON), V),
    "nvidia-fabric-manager": "550.163.01-1",
}


def locked(root: Path, *others: str, **packages: str) -> str:
    return VersionLock(root / LOCK).with_locks("".join(f"{line}\n" for line in others), packages or DRIVER)


def rocky(root: Path, **changes: Any) -> Facts:
    return facts("rocky", root, held_packages=[], **changes)


def healthy(root: Path, **changes: Any) -> Facts:
    installed = {name: [version, "ii"] for name, version in DRIVER.items()}
    there = {"installed_packages": installed, "nvidia_module": ["550.163.01", False]}
    there["gpus"] = [{"bus_id": "0000:3b:00.0", "pci_id": "0x2330", "driver": "550.163.01"}]
    there[f"text[{root}/etc/dnf/plugins/versionlock.conf]"] = "[main]"
    there["service[nvidia-fabricmanager]"] = {"active": True, "enabled": True}
    return rocky(root, **there, **changes)


WISH = DriverWish("550", KERNEL, rpm=True, open_module=False, fabric_manager=True)


def packages(wish: DriverWish = WISH, **settings: Any) -> RpmDriverPackages:
    return RpmDriverPackages(wish, **settings)


def test_every_field_of_the_steps(tmp_path: Path) -> None:
    made = steps(rocky(tmp_path), LockTimeout=7)
    assert list(made)[:3] == ["driver", "versionlock", "hold"]
    undo = {"driver": "", "before": [], "lock_timeout_s": 7}
    assert told(made["driver"]) == ("no driver is installed", shlex.join(install(*WANTED)), undo, 180, True)
    path = tmp_path / LOCK
    assert told(made["hold"]) == (
        "a driver works only in one version",
        f"write the driver's versions to {path}",
        {"versionlock": str(path)},
        None,
        True,
    )
    processes = Processes()
    run(made["versionlock"], healthy(tmp_path), tmp_path, processes)
    assert processes.commands == [f"dnf {' '.join(OPTIONS)} install dnf-command(versionlock)"]
    assert run(made["hold"], healthy(tmp_path), tmp_path, processes).message == "6 packages"
    assert path.read_text() == locked(tmp_path)
    held = healthy(tmp_path, **{f"text[{path}]": path.read_text()})
    assert made["hold"].holds
    assert [made["hold"].holds(host) for host in (rocky(tmp_path), healthy(tmp_path), held)] == [
        False,
        False,
        True,
    ]


def test_a_driver_that_is_not_locked(tmp_path: Path) -> None:
    host = healthy(tmp_path, **{f"text[{tmp_path}/{LOCK}]": locked(tmp_path, "gcc-0:13-1.*", gcc="13-1")})
    made = steps(host)
    assert list(made) == ["hold"]
    assert made["hold"].reason == "the driver is not held at its version"
    run(made["hold"], host, tmp_path, Processes())
    assert (tmp_path / LOCK).read_text() == locked(tmp_path, "gcc-0:13-1.*")
    assert not packages(hold=False).steps(host)


def test_a_lock_that_holds_now_may_not_hold_after_the_change(tmp_path: Path) -> None:
    made = steps(
        healthy(tmp_path, **{f"text[{tmp_path}/{LOCK}]": locked(tmp_path)}), LinuxDriverVersion="580"
    )
    assert made["hold"].holds is None
    assert made["hold"].reason == "a driver works only in one version"


@pytest.mark.parametrize(
    ("text", "option"), [(None, []), ("gcc-0:13-1.*\n", ["--disableplugin=versionlock"])]
)
def test_the_driver_is_solved_without_locks(tmp_path: Path, text: str | None, option: list[str]) -> None:
    host = rocky(tmp_path, **{f"text[{tmp_path}/{LOCK}]": text})
    (candidate, *_) = packages()._candidates(host, WISH)
    program, *rest = packages()._install_command(host, candidate)
    assert (
        packages()._solution(host, candidate).name
        == f"package_solution[{shlex.join([program, *option, *rest])}]"
    )
    assert packages()._solution(host, candidate).source == "dnf --assumeno"


def test_packages_without_a_version(tmp_path: Path) -> None:
    offers = [f"{name} {V} developer.download.nvidia.com" for name in ("nvidia-driver-cuda", MODULE)]
    offers.append(f"kernel-devel-{KERNEL} 0:5.14.0-427.13.1.el9_4 baseos")
    repositories = {
        "a.repo": "[a]\nbaseurl=https://example.com/a\n[b]\nbaseurl=https://developer.download.nvidia.com/x",
        "c.repo": "[c]\nbaseurl=https://example.com/c https://developer.download.nvidia.com/c",
    }
    host = rocky(tmp_path, rpm_driver_offers=[*offers, "dkms 3 epel"], rpm_repositories=repositories)
    wish = replace(WISH, headers=False, fabric_manager=False)
    (driver,) = (step for step in packages(wish).steps(host) if step.name == "driver")
    erasing = ["--allowerasing", "--setopt=clean_requirements_on_remove=False"]
    streams = [f"--setopt={name}.module_hotfixes=1" for name in ("b", "c")]
    names = [*WANTED[:2], f"kernel-devel-{KERNEL}"]
    assert driver.command == shlex.join(["dnf", *streams, *OPTIONS, "install", *erasing, *names])


class Dnf(Processes):
    """Answers a simulation with a table; the change fails on demand. Keeps the locks of each call."""

    def __init__(self, path: Path, table: str, *, fails: bool = False) -> None:
        super().__init__({f"dnf {STREAM} --assumeyes": ()} if fails else {}, output=table)
        self.path = path
        self.locks: list[str | None] = []

    def run(self, command: list[str], *, log: Path, **options: Any) -> ProcessResult:
        self.locks.append(self.path.read_text() if self.path.exists() else None)
        return super().run(command, log=log, **options)


OTHERS = "bash-0:5.1-1.*"


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("table", [TABLE, REMOVING])
@pytest.mark.parametrize("before", [None, "", f"{OTHERS}\n", "ours", "ours of dnf 5"])
def test_the_change_is_made_without_vcagents_locks(
    tmp_path: Path, before: str | None, table: str, *, fails: bool
) -> None:
    path = tmp_path / LOCK
    old = dict.fromkeys(("nvidia-driver-cuda", MODULE), "3:535.1.2-1.el9")
    text = locked(tmp_path, OTHERS, **old) if before == "ours" else before
    free = f"{OTHERS}\n" if before == "ours" else before
    if before == "ours of dnf 5":
        path = tmp_path / "etc/dnf/versionlock.toml"
        free = 'version = "1.0"\n'
        text = VersionLock(path).with_locks(free, old)
    if text is not None:
        path.parent.mkdir(parents=True)
        path.write_text(text)
    installed = {name: [version, "ii"] for name, version in old.items()}
    changes = {f"text[{path}]": text, "dnf_5": path.suffix == ".toml"}
    host = rocky(tmp_path, installed_packages=installed, **changes)
    dnf = Dnf(path, table, fails=fails)
    (driver,) = (step for step in packages(lock_timeout_s=7).steps(host) if step.name == "driver")
    asked = driver.command.replace("--assumeyes", "--assumeno")
    if table is TABLE and not fails:
        assert (
            run(driver, host, tmp_path, dnf).message == "driver 550.163.01 from developer.download.nvidia.com"
        )
        assert dnf.commands == [shlex.join(shlex.split(asked)), driver.command]
    else:
        with pytest.raises(DependencyFailedError) as error:
            run(driver, host, tmp_path, dnf)
        if table is REMOVING:
            assert error.value.message == "driver 550.163.01 would remove gcc, make"
            assert error.value.remedy == "remove it yourself if it may go, then run again"
            assert dnf.commands == [asked]
    assert set(dnf.locks) == {free}
    after = free if table is TABLE and not fails else text
    assert (path.read_text() if path.exists() else None) == after


@pytest.mark.parametrize(
    ("lines", "foreign"),
    [
        ([f"nvidia-driver-cuda-{V}.*", f"kernel-{V}.*", f"libnvidia-ml-{V}.*"], [0, 2]),
        ([f"!nvidia-driver-cuda-{NEW}.*", "# a comment"], [0]),
        (["kernel-0:5-1.*", f"nvidia-x-{V}.*", "libnvidia-cfg-3:580.126.09-1.el9.*"], []),
    ],
)
def test_locks_of_somebody_else(tmp_path: Path, lines: list[str], foreign: list[int]) -> None:
    path = tmp_path / LOCK
    host = healthy(tmp_path, **{f"text[{path}]": locked(tmp_path, *lines)})
    # One package has the new version already.
    host._modelled["installed_packages"]["libnvidia-cfg"] = InstalledPackage(NEW)
    offer = PackageOffer("libnvidia-cfg", NEW, "developer.download.nvidia.com")
    host._modelled["rpm_driver_offers"] += (offer,)
    if not foreign:
        assert "driver" in steps(host, LinuxDriverVersion="580")
        return
    with pytest.raises(HostError) as error:
        steps(host, LinuxDriverVersion="580")
    told = ", ".join(lines[index] for index in foreign)
    assert error.value.message == f"driver 580.126.09 is kept out by somebody's versionlock: {told}"
    assert error.value.remedy == f"take these lines out of {path}, or ask for the version that they allow"


@pytest.mark.parametrize("epoch", ["", "0:"])
def test_a_lock_of_the_version_that_stays_is_no_obstacle(tmp_path: Path, epoch: str) -> None:
    # The versions of packages and of locks are compared with and without the epoch 0.
    lines = [f"nvidia-driver-cuda-{V}.*", "nvidia-fabric-manager-0:550.163.01-1.*"]
    host = healthy(tmp_path, **{f"text[{tmp_path}/{LOCK}]": locked(tmp_path, *lines)})
    del host._modelled["installed_packages"]["libnvidia-ml"]
    host._modelled["installed_packages"]["nvidia-fabric-manager"] = InstalledPackage(f"{epoch}550.163.01-1")
    (candidate, *_) = (one for one in packages()._candidates(host, WISH) if one.version == "550.163.01")
    packages()._require_no_foreign_hold(host, candidate)


EPEL = "https://dl.fedoraproject.org/pub/epel"
DKMS_REMEDY = "{}, then run again; or install NVIDIA's driver with its precompiled kernel module yourself"


@pytest.mark.parametrize(
    ("offers", "settings", "command"),
    [
        (["epel-release 9 extras"], {"repository": NvidiaRepository()}, True),
        (["epel-release 9 extras"], {"repository": None}, False),
        ([], {"repository": NvidiaRepository()}, False),
    ],
)
def test_dkms_comes_from_epel(
    tmp_path: Path, offers: list[str], settings: dict[str, Any], *, command: bool
) -> None:
    host = rocky(tmp_path, rpm_driver_offers=offers, rpm_repositories={})
    found = packages(lock_timeout_s=7, **settings)
    if not command:
        with pytest.raises(HostError) as error:
            found._repository_steps(host)
        by_hand = "epel-release" if offers else f"{EPEL}/epel-release-latest-9.noarch.rpm"
        assert error.value.remedy == DKMS_REMEDY.format(f"dnf install {by_hand}")
        return
    (epel,) = found._epel_steps(host)
    assert [step.name for step in found._repository_steps(host)] == ["key", "repository", "epel"]
    assert (
        epel.reason == "the driver's module is built by dkms, which neither the distribution nor NVIDIA has"
    )
    processes = Processes()
    run(epel, host, tmp_path, processes)
    assert processes.commands == [f"dnf {' '.join(OPTIONS)} install epel-release"]
    assert packages(replace(WISH, prebuilt=True), **settings)._epel_steps(host) == []


def test_dnfs_headers_remedies_and_commands(tmp_path: Path) -> None:
    host = rocky(tmp_path)
    assert packages().headers_command(host) == ["dnf", *OPTIONS, "install", f"kernel-devel-{KERNEL}"]
    processes = Processes()
    packages(lock_timeout_s=7).run_manager(context(host, tmp_path, processes), ["dnf", "x"])
    assert processes.commands == ["dnf x"]
    (candidate, *_) = packages()._candidates(host, WISH)
    problem = PackageSolution(problem=("package x is filtered out by modular filtering",))
    host = rocky(tmp_path, rpm_driver_offers=[f"{name} {V} x" for name in ("nvidia-driver-cuda", MODULE)])
    alone = packages(replace(WISH, fabric_manager=False))
    (candidate,) = alone._candidates(host, alone.wish)
    host._modelled[alone._solution(host, candidate).name] = problem
    assert alone.refusal(host).remedy == (
        "a module stream hides it: dnf module reset nvidia-driver, or module_hotfixes=1 for its repository"
    )


def test_removed_packages_of_a_table() -> None:
    table = """\
 Package Arch Version Repository Size
Installing:
 a x86_64 1 cuda 1 k
Removing:
 b x86_64 1 cuda 1 k
   replacing c x86_64 1
 d

  x86_64 1 cuda 1 k
Removing unused dependencies:
 e x86_64 1 cuda 1 k
Not Removing:
 f x86_64 1 cuda 1 k
"""
    assert removed_by(table) == ["b", "d", "e"]
