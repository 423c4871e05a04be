"""A bundle has ROCm with its driver, from AMD's repositories, solved by the real apt."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from agent.component.downloads import Fetching, lacking
from agent.core.errors import HostError
from agent.facts import Facts, LocalHost
from agent.facts.bundle import BUNDLE, Bundle
from agent.facts.package_solutions import apt_preferences, apt_solution
from agent.run.bundle_opening import _apt_environment
from agent.run.bundling import platform_facts
from dependencies.amd.packages import _PIN
from dependencies.amd.releases import RocmRelease
from dependencies.amd.rocm_installation import AmdRocmInstallation
from tests.dependencies.packages.test_bundled_debs import publish as build
from tests.lab.host.web.apt_repository import publish, signing_key

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-get", "apt-ftparchive", "dpkg-deb", "gpg"))),
    reason="needs apt, apt-utils and gpg",
)
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
    with pytest.raises(HostError, match="a bundle cannot carry ROCm as packages of dnf yet"):
        component().downloads(Facts(None, platform_facts("rocky-9-x64")))
    with pytest.raises(HostError, match="AMD has no ROCm 5"):
        component(Version="5.6", DriverRelease="5.6").downloads(facts)
