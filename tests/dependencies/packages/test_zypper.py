"""The real zypper, from Debian, into a root of its own: versions, refusals, and its words.

The packages are stand-ins from a local repository; zypper is unpacked, not installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agent.core.errors import DependencyFailedError
from agent.facts import Facts, LocalHost
from dependencies.packages.zypper import run_zypper, zypper_install
from tests.lab.debian_packages import unpack
from tests.lab.host.cache import cached_folder, fingerprint

if TYPE_CHECKING:
    from pathlib import Path

    from agent.component.component import StepContext
    from tests.dependencies.conftest import RealHost

PROGRAMS = ("apt-get", "dpkg-deb", "rpm", "rpmbuild", "createrepo_c")
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)),
        reason="needs root, apt, rpm and createrepo-c",
    ),
]
SUITE = "bookworm"
PACKAGES = (
    "zypper", "zypper-common", "libzypp1722", "libzypp-common", "libsolv1", "libsolvext1", "libsolv-tools",
    "libaugeas0", "libproxy1v5", "libyaml-cpp0.7", "libboost-thread1.74.0", "libsigc++-2.0-0v5",
)  # fmt: skip
SPEC = """\
Name: {name}
Version: {version}
Release: 1
Summary: stand-in
License: none
BuildArch: noarch
AutoReqProv: no
{more}
%description
stand-in
%files
"""
OFFERED = (
    ("gcc", "13", ""),
    ("gcc", "14", ""),
    ("kernel-default-devel", "6.4", ""),
    ("needs-13", "1", "Requires: gcc = 13"),
    ("broken", "1", '%pre -p <lua>\nerror("no")'),
)


@pytest.fixture(scope="module")
def program() -> Path:
    """Return the folder with zypper's programs and libraries."""
    try:
        folder = cached_folder(
            "zypper", fingerprint(SUITE, PACKAGES), lambda folder: unpack(folder, SUITE, PACKAGES)
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"zypper cannot be fetched: {error}")
    return folder / "usr"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rpms")
    defines = [f"--define=_topdir {folder}/top", f"--define=_rpmdir {folder}/repository"]
    for name, version, more in OFFERED:
        spec = folder / f"{name}-{version}.spec"
        spec.write_text(SPEC.format(name=name, version=version, more=more))
        subprocess.run(["rpmbuild", "-bb", "--quiet", *defines, spec], check=True, capture_output=True)
    subprocess.run(["createrepo_c", "--quiet", folder / "repository"], check=True)
    return folder / "repository"


@pytest.fixture
def context(
    program: Path, repository: Path, tmp_path: Path, real_host: RealHost, monkeypatch: pytest.MonkeyPatch
) -> StepContext:
    """Return a context in which ``zypper`` works on a root with the repository."""
    programs, root = tmp_path / "programs", tmp_path / "root"
    programs.mkdir()
    root.mkdir()
    # Debian names it without the suffix that libzypp calls.
    (programs / "repo2solv.sh").symlink_to(program / "bin/repo2solv")
    libraries = next((program / "lib").glob("*/libzypp.so.*")).parent
    (programs / "zypper").write_text(
        f"#!/bin/sh\nexport LD_LIBRARY_PATH={libraries} PATH={programs}:{program}/bin:$PATH\n"
        f'exec {program}/bin/zypper --root {root} "$@"\n'
    )
    (programs / "zypper").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    add = ["zypper", "--non-interactive", "addrepo", "--no-gpgcheck", repository.as_uri(), "local"]
    added = subprocess.run(add, capture_output=True, text=True, check=False)
    if added.returncode:
        pytest.skip(f"this host cannot run Debian's zypper: {added.stdout}{added.stderr}")
    return replace(real_host.context, facts=Facts(LocalHost(), {"package_lock": None}))


def install(context: StepContext, *packages: tuple[str, str | None]) -> set[str]:
    """Install packages; return all that are installed then."""
    run_zypper(context, zypper_install(packages), 60)
    return installed(context)


def installed(context: StepContext) -> set[str]:
    root = context.package_dir.parent / "root"
    return set(subprocess.run(["rpm", f"--root={root}", "-qa", "--qf", "%{NAME}-%{VERSION} "],
                              check=True, capture_output=True, text=True).stdout.split())  # fmt: skip


def test_versions_go_up_and_down(context: StepContext) -> None:
    assert install(context, ("kernel-default-devel", None), ("gcc", "13-1")) == {
        "kernel-default-devel-6.4", "gcc-13"
    }  # fmt: skip
    assert install(context, ("gcc", "14-1")) == {"kernel-default-devel-6.4", "gcc-14"}
    assert install(context, ("gcc", "13-1")) == {"kernel-default-devel-6.4", "gcc-13"}


def test_another_package_is_never_changed_for_one(context: StepContext) -> None:
    install(context, ("gcc", "14-1"))
    with pytest.raises(DependencyFailedError) as refusal:
        install(context, ("needs-13", None))
    assert "exclude each other" in (refusal.value.remedy or "")
    assert installed(context) == {"gcc-14"}


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("no-such-package", "no repository of this host has it"),
        ("broken", "the package broken-1-1.noarch could not be installed"),
    ],
)
def test_what_fails_has_a_remedy(context: StepContext, name: str, remedy: str) -> None:
    with pytest.raises(DependencyFailedError) as failure:
        install(context, (name, None))
    assert remedy in (failure.value.remedy or "")
    assert installed(context) == set()
