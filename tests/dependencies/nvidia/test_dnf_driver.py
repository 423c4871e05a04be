"""NVIDIA's driver by the real dnf: repository, exact version of any stream, locks, and nothing left to do.

Everything goes into a separate root. The packages are stand-ins; the module is not loaded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from agent.component.component import StepContext
from agent.component.downloads import Fetching, lacking
from agent.core.errors import DependencyFailedError, HostError
from agent.facts import Facts
from agent.facts.bundle import BUNDLE, Bundle
from agent.facts.linux import Distribution
from agent.facts.services import ServiceState
from agent.host.processes import LocalProcesses
from agent.run.bundle_opening import _dnf_options
from agent.run.bundling import platform_facts
from dependencies.nvidia.cuda_installation import NvidiaCudaInstallation
from dependencies.nvidia.rpm_driver import removed_by
from dependencies.nvidia.undo import undo_plan
from dependencies.packages import rpm_repository
from tests.dependencies.conftest import Messages
from tests.dependencies.rpm_lab import (
    NvidiaRpms,
    RootedHost,
    RootedProcesses,
    publish_rpms,
    repository_file,
)
from tests.lab.host.web.apt_repository import signing_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.component.component import Plan

PROGRAMS = ("dnf", "rpm", "rpmbuild", "rpmsign", "createrepo_c", "modifyrepo_c", "gpg")
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)),
        reason="needs root, dnf, rpm, createrepo-c and gpg",
    ),
]

USER = "Lab <lab@example.com>"
LOCKS = "etc/dnf/plugins/versionlock.list"


@pytest.fixture(scope="module")
def rpms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NvidiaRpms]:
    with signing_key(USER) as key:
        yield publish_rpms(tmp_path_factory.mktemp("rpms"), key, USER)


@dataclass(frozen=True)
class RpmHost:
    """A host of RHEL's family: its root, and the context in which plans are carried out."""

    root: Path
    facts: Facts
    context: StepContext
    rpms: NvidiaRpms

    def plan(self, version: str, **parameters: Any) -> Plan:
        values = {
            "LinuxDriverVersion": version,
            "CudaRequired": False,
            "RequireGpu": False,
            "RepositoryUri": self.rpms.uri,
            "KeyUri": self.rpms.key,
            **parameters,
        }
        component = NvidiaCudaInstallation(NvidiaCudaInstallation.Parameters.model_validate(values))
        return component.plan(self.facts.fresh())

    def apply(self, version: str, **parameters: Any) -> list[str]:
        """Carry out a plan, check the effects of its steps, and return their names."""
        plan = self.plan(version, **parameters)
        for step in plan.steps:
            if step.name == "fabric-manager":  # a root has no systemd
                continue
            step.run(self.context)
            assert step.holds is None or step.holds(self.facts.fresh()), step.name
        return [step.name for step in plan.steps]

    def installed(self) -> set[str]:
        command = ["rpm", f"--root={self.root}", "-qa", "--qf", "%{NAME} %{VERSION}\\n"]
        return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines())

    def dnf(self, *words: str) -> str:
        return self.context.processes.run(["dnf", *words], log=self.context.log).stdout


@pytest.fixture
def rpm_host(tmp_path: Path, rpms: NvidiaRpms, monkeypatch: pytest.MonkeyPatch) -> RpmHost:
    root = tmp_path / "root"
    for folder in ("usr/bin", "etc/yum.repos.d", "etc/dnf/plugins"):
        (root / folder).mkdir(parents=True)
    (root / "usr/bin/dnf").touch()
    for name, uri in (("base", rpms.base), ("epel", rpms.epel)):
        (root / f"etc/yum.repos.d/{name}.repo").write_text(repository_file(name, uri))
    monkeypatch.setattr(rpm_repository, "_FOLDER", root / "etc/yum.repos.d")
    monkeypatch.setattr(rpm_repository, "_KEYS", root / "etc/pki/rpm-gpg")
    modelled = {
        "system_root": root,
        "root": True,
        "distribution": Distribution("rocky", "9.4", like=("rhel",), name="Rocky Linux 9.4"),
        "architecture": "x86_64",
        "kernel": "5.14.0-427.el9.x86_64",
        "kernel_headers": True,
        "gpus": (),
        "gpu_count": 0,
        "gpu_processes": (),
        "nvswitch_count": 4,
        "nvswitch_bridges": 0,
        "secure_boot": False,
        "module_key_enrolled": None,
        "nvidia_module": None,
        "in_container": False,
        "service[nvidia-fabricmanager]": ServiceState(active=True, enabled=True),
    }
    facts = Facts(RootedHost(root), modelled)
    stop = threading.Event()
    real = LocalProcesses(f"test-{os.getpid()}", stop=stop)
    context = StepContext(
        facts=facts,
        processes=RootedProcesses(root, real),
        progress=Messages(),
        stop=stop,
        run_dir=tmp_path / "run",
        package_dir=tmp_path,
        log=tmp_path / "run" / "logs" / "step.log",
    )
    return RpmHost(root, facts, context, rpms)


def test_what_a_transaction_would_remove() -> None:
    table = """\
 Package                     Arch    Version            Repository         Size
Upgrading:
 nvidia-kmod-common          noarch  3:580.126.09-1.el9 vcagent-nvidia-cuda 5.5 k
     replacing  nvidia-old.noarch 3:1-1
Removing dependent packages:
 company-desktop             noarch  3:550.90.07-1.el9  @vcagent-nvidia-cuda  0
 a-package-whose-name-is-too-long-for-its-column
                             noarch  1.0-1              @base               0

Transaction Summary
Remove   2 Packages
"""
    names = ["company-desktop", "a-package-whose-name-is-too-long-for-its-column"]
    assert removed_by(table) == names


def test_a_fresh_root_gets_the_driver_and_is_then_left_alone(rpm_host: RpmHost) -> None:
    plan = rpm_host.plan("550", LockTimeout=0.2)
    assert [step.name for step in plan.steps] == [
        *("key", "repository", "driver", "versionlock", "hold", "fabric-manager")
    ]
    lock = rpm_host.root / "var/lib/dnf/rpmdb_lock.pid"
    lock.parent.mkdir(parents=True)
    with subprocess.Popen(["bash", "-c", "exec -a dnf sleep 600"]) as holder:
        lock.write_text(str(holder.pid))
        for step in plan.steps[:2]:
            step.run(rpm_host.context)
        with pytest.raises(DependencyFailedError, match=r"has held .*rpmdb_lock\.pid") as error:
            plan.steps[2].run(rpm_host.context)
        assert "never delete the lock" in (error.value.remedy or "")
        holder.kill()
    assert rpm_host.apply("550") == ["driver", "versionlock", "hold", "fabric-manager"]
    installed = rpm_host.installed()
    assert {"nvidia-driver-cuda 550.163.01", "nvidia-fabric-manager 550.163.01"} <= installed
    assert "kmod-nvidia-latest-dkms 550.163.01" in installed
    assert not any("580" in package or "-open-" in package for package in installed)
    assert rpm_host.plan("550").nothing_to_do
    assert "nvidia-driver-cuda-3:550.163.01-1.el9.*" in (rpm_host.root / LOCKS).read_text()

    # Packages of streams that are not enabled are hidden, unless the repository says otherwise.
    hidden = rpm_host.dnf("--quiet", "--setopt=*.module_hotfixes=0", "repoquery", "nvidia-driver-cuda")
    assert hidden.split() == ["nvidia-driver-cuda-3:580.126.09-1.el9.noarch"]
    named = "--setopt=vcagent-nvidia-cuda.module_hotfixes=1"
    assert len(rpm_host.dnf("--quiet", named, "repoquery", "nvidia-driver-cuda").split()) == 3

    for step in reversed(plan.steps):
        if step.undo is not None:
            for undoing in undo_plan(step.undo, rpm_host.facts.fresh()).steps:
                undoing.run(rpm_host.context)
    assert not any("nvidia" in package for package in rpm_host.installed())
    assert (rpm_host.root / LOCKS).read_text() == ""
    left = {path.name for path in (rpm_host.root / "etc/yum.repos.d").iterdir()}
    assert left == {"base.repo", "epel.repo"}


def test_dkms_comes_from_epel(rpm_host: RpmHost) -> None:
    """Report and add a missing EPEL, because NVIDIA's repository has no dkms."""
    (rpm_host.root / "etc/yum.repos.d/epel.repo").unlink()
    steps = rpm_host.plan("550").steps
    assert [step.name for step in steps[:4]] == ["key", "repository", "epel", "driver"]
    assert "dkms" in steps[2].reason
    rpm_host.apply("550")
    assert "dkms 3.1.8" in rpm_host.installed()
    assert rpm_host.plan("550").nothing_to_do


def test_dkms_is_nowhere(rpm_host: RpmHost) -> None:
    for name in ("base", "epel"):
        (rpm_host.root / f"etc/yum.repos.d/{name}.repo").unlink()
    with pytest.raises(HostError, match="dkms") as error:
        rpm_host.plan("550")
    assert "epel-release" in (error.value.remedy or "")


def test_upgraded_brought_back_and_nothing_else_goes_for_it(rpm_host: RpmHost) -> None:
    rpm_host.apply("550.90.07")
    locks = rpm_host.root / LOCKS
    locks.write_text(locks.read_text() + "bash-0:5.1.8-9.el9.*\n")
    rpm_host.dnf("--assumeyes", "install", "company-desktop")
    before, held = rpm_host.installed(), locks.read_text()
    with pytest.raises(DependencyFailedError, match="would remove company-desktop"):
        rpm_host.apply("580")
    assert (rpm_host.installed(), locks.read_text()) == (before, held), "nothing was done"

    rpm_host.dnf("--assumeyes", "remove", "company-desktop")
    assert rpm_host.apply("580") == ["driver", "hold", "fabric-manager"]
    driver = {package for package in rpm_host.installed() if re.match("kmod|nvidia|libnvidia", package)}
    assert {"kmod-nvidia-open-dkms 580.126.09", "nvidia-fabricmanager 580.126.09"} <= driver
    assert all(package.endswith(" 580.126.09") for package in driver)
    assert rpm_host.plan("580").nothing_to_do

    rpm_host.dnf("--assumeyes", "install", "--allowerasing", "nvidia-fabric-manager-0:550.163.01")
    assert rpm_host.apply("580") == ["driver", "hold", "fabric-manager"], "it had drifted"
    assert "nvidia-fabricmanager 580.126.09" in rpm_host.installed()
    assert "550" not in locks.read_text()
    assert "bash-0:5.1.8-9.el9.*" in locks.read_text()


def test_packages_of_another_key_are_refused(rpm_host: RpmHost, tmp_path: Path) -> None:
    with signing_key("Somebody <else@example.com>") as other:
        (tmp_path / "other.pub").write_bytes(other.public())
    with pytest.raises(DependencyFailedError) as error:
        rpm_host.apply("550", KeyUri=(tmp_path / "other.pub").as_uri())
    assert "key of that repository" in (error.value.remedy or "")
    assert not any("nvidia" in package for package in rpm_host.installed())


@pytest.mark.parametrize("version", ["550.90.07", "580"])
def test_a_driver_comes_from_a_bundle_without_any_repository(
    tmp_path: Path, rpm_host: RpmHost, version: str
) -> None:
    values = {
        "LinuxDriverVersion": version,
        "CudaRequired": False,
        "RepositoryUri": rpm_host.rpms.uri,
        "KeyUri": rpm_host.rpms.key,
    }
    component = NvidiaCudaInstallation(NvidiaCudaInstallation.Parameters.model_validate(values))
    folder, scratch = tmp_path / "bundle", tmp_path / "scratch"
    scratch.mkdir()
    given = tmp_path / "given.repo"
    given.write_text(
        repository_file("base", rpm_host.rpms.base) + repository_file("epel", rpm_host.rpms.epel)
    )
    there = Facts(None, platform_facts("rocky-9-x64"))
    said: list[str] = []
    (download,) = component.downloads(there)
    download.fetch(Fetching(folder, scratch, there, repositories=given, say=said.append))
    assert (download.kind, download.names) == ("driver", (version,))
    assert [line.partition(" (")[2] for line in said if line.startswith("driver")] == [
        "rpm packages, open kernel module)",
        "rpm packages, closed kernel module)",
    ]
    files = [path.name for path in (folder / "rpms").glob("*.rpm")]
    assert any(name.startswith("dkms-") for name in files)
    versions = {
        name.split("-")[-2] for name in files if name.startswith(("libnvidia-ml", "nvidia-driver-cuda"))
    }
    assert len(versions) == 1, "packages of other drivers are in the bundle"

    for file in (rpm_host.root / "etc/yum.repos.d").glob("*.repo"):
        file.write_text(repository_file(file.stem, "http://127.0.0.1:9/"))
    contents = frozenset({("driver", version)})
    bundle = Bundle(folder, "rocky-9-x64", contents, dnf_options=_dnf_options(folder))
    facts = Facts(RootedHost(rpm_host.root), {**rpm_host.facts._modelled, BUNDLE: bundle})
    offline = replace(rpm_host, facts=facts, context=replace(rpm_host.context, facts=facts))
    assert lacking(component.downloads(facts), facts) is None
    assert offline.apply(version) == ["driver", "versionlock", "hold", "fabric-manager"]
    assert f"libnvidia-ml {next(iter(versions))}" in offline.installed()
    assert offline.plan(version).nothing_to_do
