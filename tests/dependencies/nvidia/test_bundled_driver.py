"""A bundle has the driver that each host then chooses from it, solved by the real apt."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from agent.component.downloads import Fetching
from agent.core.errors import HostError
from agent.facts import Facts
from agent.facts.bundle import BUNDLE, Bundle
from agent.facts.package_versions import package_offers
from agent.run.bundling import platform_facts
from dependencies.nvidia.bundled_driver import chosen_drivers
from dependencies.nvidia.cuda_installation import NvidiaCudaInstallation
from dependencies.nvidia.packages import driver_package_names
from dependencies.nvidia.wish import Choice, WishParameters
from tests.dependencies.apt_lab import apt_host
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
