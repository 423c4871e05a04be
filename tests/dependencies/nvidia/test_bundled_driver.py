"""A bundle has the driver that each host then chooses from it, solved by the real apt."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import HostError
from agent.facts import Facts
from agent.facts.package_versions import package_offers
from dependencies.nvidia.bundled_driver import chosen_drivers
from dependencies.nvidia.cuda_installation import NvidiaCudaInstallation
from dependencies.nvidia.packages import driver_package_names
from dependencies.nvidia.wish import Choice, WishParameters
from tests.dependencies.apt_lab import apt_host

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


@pytest.mark.parametrize(
    ("runfile", "carried"), [("https://example.com/cuda_12.4.0_550.54.14_linux.run", False), ("/a.run", True)]
)
def test_the_runfile_must_be_a_file_of_the_host(runfile: str, *, carried: bool) -> None:
    values = {"LinuxCudaVersion": "12.4", "LinuxLocalRunFile": runfile}
    component = NvidiaCudaInstallation(NvidiaCudaInstallation.Parameters.model_validate(values))
    facts = Facts(None, {"package_manager": "apt"})
    if carried:
        assert [one.kind for one in component.downloads(facts)] == ["driver"]
    else:
        with pytest.raises(HostError, match="cannot carry the runfile of the CUDA toolkit yet"):
            component.downloads(facts)
