"""The driver's installation with Debian's real NVIDIA packages: versions, branches, drifts and builds.

Every run includes one installation with a real build by DKMS, of the module ``nvidia`` alone; ``make lab``
builds all modules and runs the other tests as well.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.lab.conftest import require_tools, unavailable
from tests.lab.host.debian_root import BOOKWORM, TRIXIE, debian_root

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.host.debian_root import DebianRoot, Release

pytestmark = pytest.mark.lab
WHOLE_LAB = os.environ.get("VCAGENT_LAB") == "all"
in_the_whole_lab = pytest.mark.skipif(not WHOLE_LAB, reason="takes minutes: make lab runs it")
FURTHER_MODULES = ("drm", "modeset", "peermem", "uvm")


def root_of(release: Release, tmp_path: Path) -> DebianRoot:
    if os.geteuid() != 0:
        unavailable("needs root")
    require_tools({"mmdebstrap": "mmdebstrap"})
    folder = tmp_path / "root"
    folder.mkdir()
    return debian_root(release, folder)


def older_release(host: DebianRoot) -> str:
    """Return a release offered next to a newer one of its branch: 535.216.03 of backports, in late 2026."""
    offered = host.offered("nvidia-kernel-dkms")
    if len(offered) < 2:
        pytest.skip(f"Debian has one release alone: {offered}")
    return offered[-1].partition("-")[0]


def test_an_older_release_of_the_branch_is_built_and_held(tmp_path: Path) -> None:
    """Install all parts of the driver in the requested version, although a newer release is available."""
    host = root_of(BOOKWORM, tmp_path)
    older = older_release(host)
    further = FURTHER_MODULES if WHOLE_LAB else ()
    if not WHOLE_LAB:
        host.build_core_module_alone()
    assert host.planned(older) == ["driver", "exclude", "hold"]
    result = host.vcagent(older)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"nvidia-current/{older}, {host.kernel}, x86_64: installed" in host.run("dkms", "status").stdout
    assert host.modules() == {"nvidia-current.ko", *(f"nvidia-current-{name}.ko" for name in further)}
    versions = host.versions()
    own = {"nvidia-modprobe", "nvidia-persistenced"}  # Debian gives these their own versions
    assert {full.partition("-")[0] for name, full in versions.items() if name not in own} == {older}
    assert set(versions) <= set(host.run("apt-mark", "showhold").stdout.split())
    assert not [name for name in versions if name.startswith("xserver")]
    assert host.planned(older) == []


@in_the_whole_lab
def test_a_build_that_fails_is_told_and_ended_later(tmp_path: Path) -> None:
    """Break the compiler, then repair it: the second run finishes what dpkg left half configured."""
    host = root_of(BOOKWORM, tmp_path)
    older = older_release(host)
    compiler = host.path / "usr/bin/x86_64-linux-gnu-gcc-12"  # gcc, cc and gcc-12 are links to it
    whole = compiler.rename(compiler.with_name("gcc.whole"))
    compiler.write_text("#!/bin/sh\necho 'gcc: error: unrecognized command-line option -fnew' >&2; exit 1\n")
    compiler.chmod(0o755)
    result = host.vcagent(older)
    assert result.returncode == 5
    assert f"the kernel module nvidia-current/{older} could not be built" in result.stdout + result.stderr
    assert "built the kernel" in result.stdout + result.stderr
    assert "nvidia-kernel-dkms" in host.run("dpkg", "--audit").stdout
    whole.replace(compiler)
    result = host.vcagent(older)
    assert result.returncode == 0, result.stdout + result.stderr
    assert host.run("dpkg", "--audit").stdout == ""
    assert host.planned(older) == []


@in_the_whole_lab
def test_from_branch_to_branch_and_back_and_a_drift_repaired(tmp_path: Path) -> None:
    host = root_of(TRIXIE, tmp_path)
    for version in ("550", "535", "550"):
        result = host.vcagent(version)
        assert result.returncode == 0, result.stdout + result.stderr
        own = {"nvidia-modprobe", "nvidia-persistenced"}
        driver = {full for name, full in host.versions().items() if name not in own}
        assert {full.partition(".")[0] for full in driver} == {version}
        assert host.planned(version) == []
    other = next(one for one in host.offered("libnvidia-ml1") if not one.startswith("550."))
    host.run("sh", "-c", f"cd /tmp && apt-get download -qq libnvidia-ml1={other}")
    host.run("sh", "-c", "dpkg --force-all --install /tmp/libnvidia-ml1_*.deb")
    assert host.versions()["libnvidia-ml1"].startswith(other)
    assert host.planned("550")[0] == "driver"
    result = host.vcagent("550")
    assert result.returncode == 0, result.stdout + result.stderr
    assert host.versions()["libnvidia-ml1"].startswith("550.")
    assert host.planned("550") == []


@in_the_whole_lab
def test_a_kernel_without_headers_is_refused(tmp_path: Path) -> None:
    host = root_of(BOOKWORM, tmp_path)
    kernel = "6.1.0-1-custom"
    (host.path / f"usr/lib/modules/{kernel}/kernel").mkdir(parents=True)
    uname = host.path / "usr/local/bin/uname"
    uname.write_text(uname.read_text().replace(host.kernel, kernel))
    result = host.vcagent("535", "plan")
    assert result.returncode == 4
    assert (
        f"driver 535 needs the headers of the kernel {kernel}, which no repository has"
        in result.stdout + result.stderr
    )
    assert host.versions() == {}
