"""A bundle has the driver that each host then chooses from it, solved by the real apt."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from agent.component.downloads import Fetching
from agent.core.errors import HostError
from agent.facts import Facts, LocalHost
from agent.facts.bundle import BUNDLE, Bundle
from agent.facts.gpus import Gpu
from agent.facts.package_versions import package_offers
from agent.run.bundle_opening import _apt_environment
from agent.run.bundling import platform_facts
from dependencies.nvidia.bundled_driver import chosen_drivers
from dependencies.nvidia.cuda_installation import NvidiaCudaInstallation
from dependencies.nvidia.driver_packages import DriverPackages
from dependencies.nvidia.packages import driver_package_names, upstream
from dependencies.nvidia.wish import Choice, WishParameters, wish_of
from tests.dependencies.apt_lab import apt_host
from tests.dependencies.packages.test_bundled_debs import needs_apt, publish
from tests.dependencies.runfile_server import Site, serve

if TYPE_CHECKING:
    from pathlib import Path

    from dependencies.nvidia.candidates import Candidate

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="needs apt")
KERNEL = "6.8.0-1-generic"


def chosen(root: Path, definition: str, kernel: str = KERNEL, **asked: Any) -> list[Candidate]:
    offers = Facts(apt_host(root, definition))[package_offers("nvidia", driver_package_names(kernel))]
    return chosen_drivers(WishParameters(**asked), kernel, offers, None)


def test_both_kernel_modules_with_the_fabric_manager_and_the_headers(tmp_path: Path) -> None:
    open_one, closed_one = chosen(tmp_path, "nvidia_ubuntu_580", driver="580")
    assert (open_one.open_module, closed_one.open_module) == (True, False)
    for one in (open_one, closed_one):
        assert any("fabricmanager" in name for name in one.packages)
        assert one.unpinned == (f"linux-headers-{KERNEL}",)


def test_settings_of_the_profile_narrow_the_choice(tmp_path: Path) -> None:
    asked = {"driver": "580", "open_module": True, "fabric_manager": Choice.FALSE}
    (one,) = chosen(tmp_path, "nvidia_ubuntu_580", kernel="", **asked)
    assert one.open_module
    assert one.unpinned == ()
    assert not any("fabricmanager" in name for name in one.packages)


def test_a_driver_that_nobody_offers(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no repository has the driver 123 as a whole"):
        chosen(tmp_path, "nvidia_ubuntu_580", driver="123")


def test_a_runfile_through_a_bundle(tmp_path: Path) -> None:
    name = "cuda_12.4.0_550.54.14_linux.run"
    with serve(Site({f"/{name}": b"a runfile"})) as site:
        values = {
            "LinuxCudaVersion": "12.4",
            "LinuxLocalRunFile": f"{site.address}/{name}",
            "Checksum": f"sha256:{hashlib.sha256(b'a runfile').hexdigest()}",
        }
        component = NvidiaCudaInstallation(NvidiaCudaInstallation.Parameters.model_validate(values))
        facts = Facts(None, platform_facts("ubuntu-24.04-x64"))
        driver, runfile = component.downloads(facts)
        runfile.fetch(Fetching(tmp_path, tmp_path, facts))
    assert (driver.kind, driver.names) == ("driver", ("newest",))
    file = tmp_path / "runfiles" / name
    assert file.read_bytes() == b"a runfile"
    assert [path.name for path in file.parent.iterdir()] == [name]

    bundle = Bundle(tmp_path, "test", frozenset({("runfile", runfile.names[0])}))
    there = Facts(None, {**platform_facts("ubuntu-24.04-x64"), BUNDLE: bundle})
    wish = component._toolkit_wish(there)
    assert wish is not None
    assert wish.local(there) == file
    assert not wish.is_remote


def test_a_runfile_of_the_host_is_not_carried() -> None:
    values = {"LinuxCudaVersion": "12.4", "LinuxLocalRunFile": "/opt/cuda_12.4.0_550.54.14_linux.run"}
    component = NvidiaCudaInstallation(NvidiaCudaInstallation.Parameters.model_validate(values))
    assert [one.kind for one in component.downloads(Facts(None, platform_facts("debian-12-x64")))] == [
        "driver"
    ]


def driver_repository(folder: Path) -> Path:
    """Write a repository with one driver in NVIDIA's layout for Ubuntu; return the file that names it."""
    folder.mkdir()
    full, depends = "570.124.06-0ubuntu1", "Depends: {}"
    common = ("nvidia-kernel-common-570", "nvidia-utils-570", "libnvidia-compute-570")
    for name in (*common, "nvidia-fabricmanager-570"):
        publish(folder, name, full)
    for opening in ("", "-open"):
        publish(folder, f"nvidia-dkms-570{opening}", full, depends.format(f"{common[0]} (= {full}), dkms"))
        exact = ", ".join(f"{name} (= {full})" for name in (f"nvidia-dkms-570{opening}", *common))
        publish(folder, f"nvidia-driver-570{opening}", full, depends.format(exact))
    publish(folder, "dkms", "1:99")
    publish(folder, f"linux-headers-{KERNEL}", "1")
    (folder / "Release").write_text("Origin: NVIDIA\nLabel: NVIDIA CUDA\n")
    sources = folder.with_suffix(".list")
    sources.write_text(f"deb [trusted=yes] file:{folder} ./\n")
    return sources


@needs_apt
@pytest.mark.parametrize(("gpu", "opening"), [("0x1db6", ""), ("0x2901", "-open")], ids=["V100", "B200"])
def test_hosts_with_different_gpus_plan_their_driver_from_one_bundle(
    tmp_path: Path, gpu: str, opening: str
) -> None:
    values = {"LinuxDriverVersion": "570", "CudaRequired": False, "AddRepository": False, "Hold": False}
    component = NvidiaCudaInstallation(NvidiaCudaInstallation.Parameters.model_validate(values))
    modelled = platform_facts("ubuntu-24.04-x64", kernel=KERNEL)
    folder, scratch = tmp_path / "bundle", tmp_path / "scratch"
    scratch.mkdir()
    sources = driver_repository(tmp_path / "web")
    fetching = Fetching(folder, scratch, Facts(None, modelled), repositories=sources)
    (download,) = component.downloads(fetching.facts)
    download.fetch(fetching)
    assert len(list((folder / "debs" / "nvidia-cuda").glob("*.deb"))) == 8

    environment = _apt_environment(folder)
    there = {
        **modelled,
        "installed_packages": {},
        "kernel_headers": False,
        "gpus": (Gpu("0000:3b:00.0", gpu),),
        "gpu_count": 1,
        "gpu_processes": (),
        "nvswitch_count": 4,
        "nvswitch_bridges": 0,
        "secure_boot": False,
        "module_key_enrolled": None,
        "nvidia_module": None,
        "in_container": False,
        "apt_lists_age_s": 10,
        BUNDLE: Bundle(folder, "ubuntu-24.04-x64", frozenset({("driver", "570")}), environment),
    }
    facts = Facts(LocalHost(environment), there)
    wish, _ = wish_of(component._wish_parameters(), facts)
    chosen = DriverPackages(wish).chosen(facts)
    assert chosen is not None, DriverPackages(wish).refusal(facts).details
    assert {upstream(version) for version in chosen.packages.values()} == {"570.124.06"}
    assert f"nvidia-dkms-570{opening}" in chosen.packages
    assert "nvidia-fabricmanager-570" in chosen.packages
    assert chosen.changes[f"linux-headers-{KERNEL}"] == "1"
