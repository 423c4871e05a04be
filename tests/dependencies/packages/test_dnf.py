"""The real dnf, with a separate root: nothing on this host is changed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.core.errors import DependencyFailedError
from agent.facts.packages import InstalledPackage
from agent.facts.rpm_packages import RPM_QUERY, rpm_packages
from dependencies.packages.dnf import dnf_install, run_dnf
from dependencies.packages.package_managers import PackageWish

if TYPE_CHECKING:
    from tests.dependencies.conftest import RealHost

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("dnf", "rpm", "rpmbuild", "createrepo_c"))),
        reason="needs root, dnf, rpm and createrepo-c",
    ),
]

NAME = "vcagent-test"
SPEC = """\
Name: {name}
Version: {version}
Release: 1
Summary: test
License: MIT
BuildArch: noarch
Provides: vcagent-virtual
%description
test
%files
"""


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return options that make dnf use a separate root and a repository of one package in two versions."""
    folder = tmp_path_factory.mktemp("dnf")
    for version in ("1.0", "2.0"):
        spec = folder / f"{version}.spec"
        spec.write_text(SPEC.format(name=NAME, version=version))
        defines = [f"--define=_topdir {folder}/top", f"--define=_rpmdir {folder}/rpms"]
        subprocess.run(["rpmbuild", "-bb", "--quiet", *defines, spec], check=True, capture_output=True)
    subprocess.run(["createrepo_c", "--quiet", folder / "rpms"], check=True)
    repositories = folder / "root" / "etc" / "yum.repos.d"
    repositories.mkdir(parents=True)
    (repositories / "test.repo").write_text(f"[test]\nname=test\nbaseurl=file://{folder}/rpms\ngpgcheck=0\n")
    return [f"--installroot={folder}/root", f"--setopt=reposdir={repositories}", "--releasever=9"]


def install(host: RealHost, options: list[str], *wishes: tuple[str, str | None], limit_s: float = 60) -> None:
    program, *rest = dnf_install("dnf", wishes)
    run_dnf(host.context, [program, *options, *rest], limit_s)


def installed(options: list[str]) -> dict[str, InstalledPackage]:
    root = options[0].partition("=")[2]
    answer = subprocess.run(
        [RPM_QUERY[0], f"--root={root}", *RPM_QUERY[1:]], capture_output=True, text=True, check=True
    )
    return {name: InstalledPackage(package.version) for name, package in rpm_packages(answer.stdout).items()}


def test_installed_lowered_and_recognised(real_host: RealHost, options: list[str]) -> None:
    install(real_host, options, (NAME, None))
    found = installed(options)
    assert found[NAME].version == "2.0-1"
    assert PackageWish("vcagent-virtual").fulfilled(found, "dnf")
    progress = r"Installing (?:: vcagent-test-2|vcagent-test-0:2)\.0-1"  # dnf 4 or 5
    assert any(re.search(progress, text) for text in real_host.messages.texts)
    install(real_host, options, (NAME, "1.0*"))
    assert PackageWish(NAME, "1.0*").fulfilled(installed(options), "dnf")
    assert not PackageWish(NAME, "2.0*").fulfilled(installed(options), "dnf")


def test_a_package_that_nobody_has(real_host: RealHost, options: list[str]) -> None:
    with pytest.raises(DependencyFailedError) as error:
        install(real_host, options, ("no-such-package", None))
    assert "has no-such-package" in (error.value.remedy or "")


@pytest.mark.parametrize("lock", ["var/cache/dnf/metadata_lock.pid", "var/lib/dnf/rpmdb_lock.pid"])
def test_a_lock_that_is_taken_between_look_and_call(
    real_host: RealHost, options: list[str], lock: str
) -> None:
    if "dnf5" in subprocess.run(["dnf", "--version"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("dnf 5 waits for its lock, and has another one")
    install(real_host, options, (NAME, "1.0*"))
    path = Path(options[0].partition("=")[2]) / lock
    path.write_text(str(os.getpid()))
    try:
        with pytest.raises(DependencyFailedError) as error:
            install(real_host, options, (NAME, "2.0*"), limit_s=0)
    finally:
        path.unlink()
    assert "never delete the lock" in (error.value.remedy or "")
    assert installed(options)[NAME].version == "1.0-1"
