"""A bundle has ROCm with its driver, from AMD's repositories, solved by the real apt."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest

from agent.component.component import StepContext
from agent.component.downloads import Fetching, lacking
from agent.core.errors import HostError, LiftedBy
from agent.facts import Facts, LocalHost
from agent.facts.bundle import BUNDLE, Bundle
from agent.facts.linux import Distribution
from agent.facts.package_solutions import apt_preferences, apt_solution
from agent.facts.packages import InstalledPackage
from agent.host.processes import LocalProcesses
from agent.run.bundle_opening import _apt_environment, _dnf_options
from agent.run.bundling import platform_facts
from dependencies.amd.packages import _PIN
from dependencies.amd.releases import NEWEST, RocmRelease
from dependencies.amd.rocm_installation import AmdRocmInstallation
from tests.dependencies.conftest import Messages
from tests.dependencies.packages.test_bundled_debs import publish as build
from tests.dependencies.rpm_lab import RootedHost, RootedProcesses, repository_file
from tests.lab.host.web.apt_repository import publish, signing_key

if TYPE_CHECKING:
    from pathlib import Path

needs_apt = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-get", "apt-ftparchive", "dpkg-deb", "gpg"))),
    reason="needs apt, apt-utils and gpg",
)
PROGRAMS = ("dnf", "rpm", "rpmbuild", "rpmsign", "createrepo_c", "gpg")
RELEASE = RocmRelease.of("7.0.2")
KERNEL = "6.8.0-1-generic"
NOBLE = platform_facts("ubuntu-24.04-x64", kernel=KERNEL)
DRIVER = f"1:6.14.14.{RELEASE.driver_code}-2226257.24.04"
ROCM = f"7.0.2.{RELEASE.code}-56~24.04"


def component(**parameters: Any) -> AmdRocmInstallation:
    values = {"Version": "7.0.2", "RequireGpu": False, **parameters}
    return AmdRocmInstallation(AmdRocmInstallation.Parameters.model_validate(values))


def packages(root: Path, contents: dict[str, tuple[str, ...]]) -> None:
    """Build the packages of a repository: names with versions, and their relations."""
    (root / "pool").mkdir(parents=True)
    for name, lines in contents.items():
        build(root / "pool", *name.split(" "), *lines)
    (root / "pool" / "Packages").unlink()


@pytest.fixture
def sites(tmp_path: Path) -> tuple[str, Path]:
    """Return AMD's address, and the file with Ubuntu's repository, which has a newer rocminfo."""
    base = tmp_path / "radeon"
    folders = RELEASE.apt_folders(NOBLE["distribution"])
    with signing_key("AMD <amd@example.com>") as key:
        for name, folder in folders.items():
            contents: dict[str, tuple[str, ...]] = {"libdrm-amdgpu-common 1.0": ()}
            if name == "amdgpu":
                contents = {f"amdgpu-dkms {DRIVER}": ("Depends: dkms",)}
            elif name == "rocm":
                contents = {
                    f"rocm {ROCM}": ("Depends: rocminfo, rocm-core",),
                    f"rocminfo 1.0.0.{RELEASE.code}-56~24.04": (),
                    f"rocm-core {ROCM}": (),
                }
            packages(base / folder, contents)
            publish(base / folder, "noble", "main", "repo.radeon.com", key)
        (base / "key").write_bytes(key.public())
    ubuntu = tmp_path / "ubuntu"
    headers = f"linux-headers-{KERNEL} 1"
    packages(ubuntu, {"rocminfo 99.0": (), "dkms 3.0": (), headers: (), "linux-headers-other 1": ()})
    publish(ubuntu, "noble", "main", "Ubuntu", None)
    file = tmp_path / "ubuntu.list"
    file.write_text(f"deb [trusted=yes] file:{ubuntu} noble main\n")
    return base.as_uri(), file


@needs_apt
def test_rocm_comes_with_its_driver_and_the_headers(tmp_path: Path, sites: tuple[str, Path]) -> None:
    base, sources = sites
    wish = component(RepositoryUri=base, KeyUri=f"{base}/key")
    folder, scratch = tmp_path / "bundle", tmp_path / "scratch"
    scratch.mkdir()
    fetching = Fetching(folder, scratch, Facts(None, NOBLE), repositories=sources)
    (download,) = wish.downloads(fetching.facts)
    download.fetch(fetching)
    assert (download.kind, download.names) == ("ROCm", (f"7.0.2 (rocm), driver {RELEASE.driver}",))
    names = sorted(path.name.partition("_")[0] for path in (folder / "debs").rglob("*.deb"))
    assert names == ["amdgpu-dkms", "dkms", f"linux-headers-{KERNEL}", "rocm", "rocm-core", "rocminfo"]

    # On the host apt knows the bundle alone, and takes the packages that the plan names.
    shutil.rmtree(tmp_path / "radeon")
    shutil.rmtree(tmp_path / "ubuntu")
    contents = frozenset((download.kind, name) for name in download.names)
    environment = _apt_environment(folder)
    bundle = Bundle(folder, "ubuntu-24.04-x64", contents, environment)
    there = Facts(LocalHost(environment), {**NOBLE, BUNDLE: bundle})
    assert lacking(wish.downloads(there), there) is None
    ours = wish._packages(there, RELEASE)
    assert ours._repository_steps(there) == []
    asked = [*ours.driver_wishes(), *ours.rocm_wishes(("rocm",))]
    command = ["apt-get", "install", *map(str, asked)]
    state = tmp_path / "status"
    state.touch()
    solution = there[apt_solution([*command, f"--option=Dir::State::status={state}"], {})]
    assert not solution.problem
    assert solution.changes["rocminfo"] == f"1.0.0.{RELEASE.code}-56~24.04"
    assert solution.changes["amdgpu-dkms"] == DRIVER
    policy = ["apt-cache", f"--option=Dir::Etc::Preferences={tmp_path / 'pin'}", "policy", "rocminfo"]
    (tmp_path / "pin").write_text(f"{apt_preferences({})}\n{_PIN}")
    told = subprocess.run(
        policy, check=True, capture_output=True, text=True, env={"PATH": os.environ["PATH"], **environment}
    ).stdout
    assert " 600" in told, "the pin of AMD's packages does not match the bundle's"


def test_parts_of_it() -> None:
    facts = Facts(None, NOBLE)
    (monitoring,) = component(UserSpace="monitoring").downloads(facts)
    assert monitoring.names == (f"7.0.2 (monitoring), driver {RELEASE.driver}",)
    zypper = {**NOBLE, "package_manager": "zypper"}
    with pytest.raises(HostError, match="a bundle cannot carry ROCm as packages of zypper yet"):
        component().downloads(Facts(None, zypper))
    with pytest.raises(HostError, match="another driver for each minor release of rocky-9") as caught:
        component().downloads(Facts(None, platform_facts("rocky-9-x64")))
    assert "--platform rocky-9.6-x64" in str(caught.value.remedy)
    (rocky,) = component().downloads(Facts(None, platform_facts("rocky-9.6-x64")))
    assert rocky.names == (f"7.0.2 (rocm), driver {RELEASE.driver}, for 9.6",)
    (newer,) = component().downloads(Facts(None, platform_facts("rocky-10-x64")))
    assert newer.names == (f"7.0.2 (rocm), driver {RELEASE.driver}, for 10",)
    with pytest.raises(HostError, match="AMD has no ROCm 5"):
        component(Version="5.6", DriverRelease="5.6").downloads(facts)


SPEC = """\
Name: {name}
Version: {version}
Release: {release}
Summary: stand-in
License: none
BuildArch: noarch
{relations}
%description
stand-in
{content}
"""
LOCKING = """\
%install
mkdir -p %{buildroot}/etc/dnf/plugins
echo '[main]' >%{buildroot}/etc/dnf/plugins/versionlock.conf
%files
/etc/dnf/plugins/versionlock.conf
"""
ROCM_RPM, KERNEL_RPM = f"7.0.2.{RELEASE.code} 56.el9", "5.14.0-570.12.1.el9_6.x86_64"
AMDGPU = {"amdgpu-dkms 1:6.14.14 2226257.el9": ("Requires: dkms",)}
ROCM_RPMS = {
    f"rocm {ROCM_RPM}": ("Requires: rocm-core",),
    f"rocm-core {ROCM_RPM}": (),
    "rocm 6.4.1.60401 83.el9": (),
}
BASE = {
    "dkms 3.1 1": (),
    "kernel-devel 5.14.0 570.12.1.el9_6": (),
    "python3-dnf-plugin-versionlock 4 1": ("Provides: dnf-command(versionlock)",),
}


def rpms(folder: Path, contents: dict[str, tuple[str, ...]], sign: list[str]) -> None:
    """Build and index the packages of a repository: name, version and release, and their relations."""
    folder.mkdir(parents=True)
    for whole, lines in contents.items():
        name, version, release = whole.split(" ")
        epoch, _, plain = version.rpartition(":")
        relations = "\n".join([*lines, *([f"Epoch: {epoch}"] if epoch else [])])
        content = LOCKING if name.endswith("versionlock") else "%files"
        text = SPEC.format(name=name, version=plain, release=release, relations=relations, content=content)
        spec = folder / "one.spec"
        spec.write_text(text.replace("BuildArch: noarch\n", "") if name == "kernel-devel" else text)
        defines = [f"--define=_topdir {folder}/top", f"--define=_rpmdir {folder}"]
        command = ["rpmbuild", "-bb", "--quiet", "--target=x86_64", *defines, spec]
        subprocess.run(command, check=True, capture_output=True)
    subprocess.run(["rpmsign", *sign, "--addsign", *folder.rglob("*.rpm")], check=True, capture_output=True)
    subprocess.run(["createrepo_c", "--quiet", folder], check=True)


@pytest.fixture
def rpm_sites(tmp_path: Path) -> tuple[str, Path]:
    """Return AMD's address, and the file with the distribution's repository, which also has dkms."""
    base, user = tmp_path / "radeon", "AMD <amd@example.com>"
    folders = RELEASE.rpm_folders(platform_facts("rocky-9.6-x64")["distribution"])
    with signing_key(user) as key:
        sign = [f"--define=_gpg_path {key.home}", f"--define=_gpg_name {user}"]
        sign.append(f"--define=__gpg {shutil.which('gpg')}")
        for name, folder in folders.items():
            contents = {"amdgpu": AMDGPU, "rocm": ROCM_RPMS}.get(name, {"libdrm-amdgpu 1 1": ()})
            rpms(base / folder, contents, sign)
        rpms(tmp_path / "rocky", BASE, sign)
        (base / "key").write_bytes(key.public())
    file = tmp_path / "rocky.repo"
    file.write_text(repository_file("rocky", (tmp_path / "rocky").as_uri()))
    return base.as_uri(), file


@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)) or bool(shutil.which("dnf5")),
    reason=f"needs root and {', '.join(PROGRAMS)}; dnf 4",
)
def test_rocm_comes_as_rpms_and_is_installed_from_the_bundle_alone(
    tmp_path: Path, rpm_sites: tuple[str, Path]
) -> None:
    base, repositories = rpm_sites
    wish = component(RepositoryUri=base, KeyUri=f"{base}/key")
    folder, scratch = tmp_path / "bundle", tmp_path / "scratch"
    scratch.mkdir()
    facts = Facts(None, platform_facts("rocky-9.6-x64", kernel=KERNEL_RPM))
    (download,) = wish.downloads(facts)
    download.fetch(Fetching(folder, scratch, facts, repositories=repositories))
    names = sorted(path.name.rpartition("-")[0].rpartition("-")[0] for path in folder.rglob("*.rpm"))
    assert names == [
        "amdgpu-dkms", "dkms", "kernel-devel", "python3-dnf-plugin-versionlock", "rocm", "rocm-core"
    ]  # fmt: skip

    # The host has no repository: dnf sees the bundle alone.
    shutil.rmtree(tmp_path / "radeon")
    shutil.rmtree(tmp_path / "rocky")
    root = tmp_path / "root"
    for place in ("usr/bin", "etc/yum.repos.d", "etc/dnf/plugins", "var/lib/dnf"):
        (root / place).mkdir(parents=True)
    (root / "usr/bin/dnf").touch()
    (root / "etc/yum.repos.d/rocky.repo").write_text(repository_file("rocky", "http://127.0.0.1:9/"))
    contents = frozenset((download.kind, name) for name in download.names)
    given = {
        "system_root": root, "root": True, "architecture": "x86_64", "in_container": False,
        "distribution": Distribution("rocky", "9.6", like=("rhel",), name="Rocky Linux 9.6"),
        "kernel": KERNEL_RPM, "kernel_headers": False, "amd_gpus": (), "amd_gpu_processes": (),
        "secure_boot": False, "module_key_enrolled": None, "amdgpu_module": None, "dkms_builds": (),
        BUNDLE: Bundle(folder, "rocky-9-x64", contents, dnf_options=_dnf_options(folder)),
    }  # fmt: skip
    there = Facts(RootedHost(root), given)
    stop = threading.Event()
    context = StepContext(
        facts=there,
        processes=RootedProcesses(root, LocalProcesses(f"test-{os.getpid()}", stop=stop)),
        progress=Messages(),
        stop=stop,
        run_dir=tmp_path / "run",
        package_dir=tmp_path,
        log=tmp_path / "run" / "logs" / "step.log",
    )
    assert lacking(wish.downloads(there), there) is None
    other = Facts(
        None,
        {**given, "package_manager": "dnf", "distribution": Distribution("rocky", "9.4", like=("rhel",))},
    )
    refusal = lacking(wish.downloads(other), other)
    assert refusal is not None
    assert f"lacks ROCm 7.0.2 (rocm), driver {RELEASE.driver}, for 9.4" in refusal.message
    steps = wish.plan(there).steps
    assert [step.name for step in steps] == ["headers", "install", "versionlock", "hold"]
    for step in steps:
        step.run(context)
    command = ["rpm", f"--root={root}", "-qa", "--qf", "%{NAME} %{VERSION}\\n"]
    installed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert {"amdgpu-dkms 6.14.14", f"rocm 7.0.2.{RELEASE.code}", "kernel-devel 5.14.0"} <= set(installed)
    assert wish.plan(there.fresh()).nothing_to_do


def test_an_installed_rocm_is_not_completed_from_a_bundle_with_another(tmp_path: Path) -> None:
    """Version is open: the bundle has the newest ROCm, and the host has, and keeps, an older one."""
    newest, driver = RocmRelease.of(NEWEST), RocmRelease.of("6.4.1")
    contents = frozenset({("ROCm", f"{newest.version} (rocm), driver {newest.driver}")})
    core = InstalledPackage(f"6.4.1.{driver.code}-83~24.04")
    given = {
        **NOBLE, "root": True, "in_container": False, "amd_gpus": (), "amd_gpu_processes": (),
        "secure_boot": False, "module_key_enrolled": None, "amdgpu_module": None, "rocm_version": "6.4.1",
        "installed_packages": {"rocm-core": core, "rocm": core}, "held_packages": frozenset(),
        "text[/etc/apt/apt.conf.d/52vcagent-amdgpu]": None, "members[render]": (), "members[video]": (),
        BUNDLE: Bundle(tmp_path, "ubuntu-24.04-x64", contents),
    }  # fmt: skip
    open_version = component(Version="", hold=False)
    facts = Facts(None, given)
    assert lacking(open_version.downloads(facts), facts) is None
    with pytest.raises(HostError, match=r"this host has ROCm 6\.4\.1 and lacks amdgpu-dkms") as caught:
        open_version.plan(facts)
    assert caught.value.lifted_by is LiftedBy.NOTHING
    assert "make the bundle again with Version: 6.4.1" in str(caught.value.remedy)
    # With its driver the host is complete: nothing of the bundle is needed.
    module = InstalledPackage(f"1:6.12.12.{driver.driver_code}-2164967.24.04")
    whole = {**given["installed_packages"], "amdgpu-dkms": module}
    assert open_version.plan(Facts(None, {**given, "installed_packages": whole})).nothing_to_do
