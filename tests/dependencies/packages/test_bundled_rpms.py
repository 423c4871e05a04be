"""Packages come from a bundle, with everything that they need, through the real dnf."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agent.component.downloads import Fetching
from agent.core.errors import HostError
from agent.facts import Facts, LocalHost
from agent.facts.bundle import BUNDLE, Bundle
from agent.facts.linux import DISTRIBUTION, Distribution
from agent.facts.packages import PACKAGE_MANAGER
from agent.facts.repositories import RPM_REPOSITORIES
from agent.run.bundle_opening import _dnf_options
from agent.run.bundling import platform_facts
from dependencies.docker.installation import DockerInstallation
from dependencies.nvidia.container_toolkit_installation import NvidiaContainerToolkitInstallation
from dependencies.nvidia.cuda_installation import NvidiaCudaInstallation
from dependencies.packages import bundled_rpms
from dependencies.packages.bundled_packages import package_downloads
from dependencies.packages.bundled_rpms import repositories_of, rpm_downloads
from dependencies.packages.dnf import dnf_install, run_dnf
from dependencies.packages.linux_package_installation import LinuxPackageInstallation
from dependencies.packages.package_managers import PackageWish
from dependencies.packages.rpm_repository import RpmRepositoryWish
from dependencies.packages.signing_key import SigningKey
from tests.lab.host.web.apt_repository import signing_key

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dependencies.conftest import RealHost

PROGRAMS = ("dnf", "rpm", "rpmbuild", "createrepo_c")
needs_dnf = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)) or bool(shutil.which("dnf5")),
    reason=f"needs root and {', '.join(PROGRAMS)}; dnf 4",
)
SPEC = """\
Name: {name}
Version: {version}
Release: 1
Summary: test
License: MIT
BuildArch: noarch
{relations}
%description
test
%files
"""
PACKAGES = (
    ("tiny", "1.0", "Requires: libtiny >= 2\nRecommends: tiny-doc"),
    ("tiny-doc", "1.0", ""),
    ("libtiny", "1.0", ""),
    ("libtiny", "2.0", ""),
    ("libtiny", "2.1", ""),
)
ROCKY = platform_facts("rocky-9-x64")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a repository of unsigned packages."""
    folder = tmp_path_factory.mktemp("rpms")
    defines = [f"--define=_topdir {folder}/top", f"--define=_rpmdir {folder}/rpms"]
    for name, version, relations in PACKAGES:
        spec = folder / f"{name}-{version}.spec"
        spec.write_text(SPEC.format(name=name, version=version, relations=relations))
        subprocess.run(["rpmbuild", "-bb", "--quiet", *defines, spec], check=True, capture_output=True)
    subprocess.run(["createrepo_c", "--quiet", folder / "rpms"], check=True)
    file = folder / "lab.repo"
    file.write_text(f"[lab]\nname=lab\nbaseurl=file://{folder}/rpms\nenabled=1\ngpgcheck=0\n")
    return file


def fetched(
    tmp_path: Path,
    repositories: Path,
    *names: str,
    recommends: bool = False,
    repository: RpmRepositoryWish | None = None,
) -> Path:
    folder, scratch = tmp_path / "bundle", tmp_path / "scratch"
    folder.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    fetching = Fetching(folder, scratch, Facts(None, ROCKY), repositories=repositories)
    wishes = [PackageWish.parse(name, rpm=True) for name in names]
    for download in rpm_downloads(wishes, recommends=recommends, repository=repository):
        assert download.names == names
        download.fetch(fetching)
    return folder


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "rpms").glob("*.rpm"))


@needs_dnf
@pytest.mark.root
def test_packages_come_with_what_they_need_and_dnf_installs_them_from_there(
    tmp_path: Path, published: Path, real_host: RealHost
) -> None:
    folder = fetched(tmp_path, published, "tiny")
    assert files(folder) == ["libtiny-2.1-1.noarch.rpm", "tiny-1.0-1.noarch.rpm"]
    # A host with a repository that nobody reaches: dnf must not ask it.
    repositories = tmp_path / "there" / "etc" / "yum.repos.d"
    repositories.mkdir(parents=True)
    (repositories / "gone.repo").write_text("[gone]\nname=gone\nbaseurl=http://127.0.0.1:9/\ngpgcheck=1\n")
    there = Bundle(folder, "rocky-9-x64", frozenset(), dnf_options=_dnf_options(folder))
    context = replace(real_host.context, facts=Facts(LocalHost(), {BUNDLE: there}))
    root = [f"--installroot={tmp_path}/there", f"--setopt=reposdir={repositories}", "--releasever=9"]
    program, *rest = dnf_install("dnf", [("tiny", None)])
    run_dnf(context, [program, *root, *rest], 60)
    listed = subprocess.run(
        ["rpm", f"--root={tmp_path}/there", "-qa", "--queryformat=%{name}-%{version}\n"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert sorted(listed.stdout.split()) == ["libtiny-2.1", "tiny-1.0"]


@needs_dnf
@pytest.mark.root
def test_weak_dependencies_and_versions_are_as_the_profile_asks(tmp_path: Path, published: Path) -> None:
    folder = fetched(tmp_path, published, "tiny", recommends=True)
    assert "tiny-doc-1.0-1.noarch.rpm" in files(folder)
    fetched(tmp_path, published, "libtiny=2.0*")
    assert [name for name in files(folder) if name.startswith("libtiny")] == [
        "libtiny-2.0-1.noarch.rpm",
        "libtiny-2.1-1.noarch.rpm",
    ]


@needs_dnf
@pytest.mark.root
def test_an_unknown_package_is_refused(tmp_path: Path, published: Path) -> None:
    with pytest.raises(HostError, match="dnf cannot fetch the packages for rocky 9") as caught:
        fetched(tmp_path, published, "tiny-absent")
    assert "no repository of this host has tiny-absent" in str(caught.value.remedy)


@needs_dnf
@pytest.mark.root
@pytest.mark.skipif(not shutil.which("gpg"), reason="needs gpg")
def test_a_package_without_its_publishers_signature_is_refused(tmp_path: Path, published: Path) -> None:
    key = tmp_path / "key.asc"
    with signing_key("Lab <lab@example.com>") as publisher:
        key.write_bytes(publisher.public())
    wish = RpmRepositoryWish(
        "signed",
        (published.parent / "rpms").as_uri(),
        SigningKey.of(key.as_uri(), ""),
        signed_packages=True,
        signed_index=False,
        manager="dnf",
    )
    (tmp_path / "none.repo").write_text("")
    with pytest.raises(HostError, match="dnf cannot fetch the packages") as caught:
        fetched(tmp_path, tmp_path / "none.repo", "libtiny", repository=wish)
    assert any("tiny" in line and "not signed" in line for line in caught.value.details), caught.value.details


def test_a_machine_without_dnf_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="this machine lacks dnf, createrepo_c") as caught:
        fetched(tmp_path, tmp_path / "lab.repo", "tiny")
    assert "createrepo-c" in str(caught.value.remedy)


def test_a_machine_with_dnf_5_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dnf", "createrepo_c"):
        (tmp_path / name).write_text("#!/bin/sh\necho dnf5 version 5.4.6\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="come by dnf 4; this machine has dnf 5"):
        fetched(tmp_path, tmp_path / "lab.repo", "tiny")


def test_repositories_of_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rocky = ROCKY[DISTRIBUTION.name]
    with pytest.raises(HostError, match="cannot be read"):
        repositories_of(rocky, tmp_path / "absent.repo")
    (tmp_path / "given.repo").write_text("[lab]\n")
    assert repositories_of(rocky, tmp_path / "given.repo") == "[lab]\n"
    other = {DISTRIBUTION.name: Distribution("rocky", "8.10", "", name="Rocky Linux 8.10")}
    monkeypatch.setattr(bundled_rpms, "Facts", lambda host: Facts(host, other))
    with pytest.raises(HostError, match="the repositories of rocky 9 are not known on this machine"):
        repositories_of(rocky, None)
    # A host of the same release, whatever its minor release, has them.
    monkeypatch.setattr(bundled_rpms, "_OWN_REPOSITORIES", tmp_path)
    own = {DISTRIBUTION.name: Distribution("rocky", "9.4", "", name="Rocky Linux 9.4")}
    monkeypatch.setattr(bundled_rpms, "Facts", lambda host: Facts(host, own))
    assert repositories_of(rocky, None) == "[lab]\n"
    (tmp_path / "unreadable.repo").mkdir()
    with pytest.raises(HostError, match="a file of repositories in "):
        repositories_of(rocky, None)


def test_a_bundle_without_rpms_hides_all_repositories(tmp_path: Path) -> None:
    assert _dnf_options(tmp_path) == ("--disablerepo=*",)
    (tmp_path / "rpms" / "repodata").mkdir(parents=True)
    assert _dnf_options(tmp_path)[:2] == (
        f"--repofrompath=vcagent-bundle,file://{tmp_path}/rpms",
        "--repo=vcagent-bundle",
    )


def test_components_name_their_rpms() -> None:
    facts = Facts(None, ROCKY)
    tools = LinuxPackageInstallation.Parameters.model_validate({"packages": "git", "packages-dnf": "dkms"})
    assert [(one.kind, one.names) for one in LinuxPackageInstallation(tools).downloads(facts)] == [
        ("rpm", ("git", "dkms"))
    ]
    docker = DockerInstallation(DockerInstallation.Parameters()).downloads(facts)
    assert docker[0].kind == "rpm"
    assert docker[0].names[0] == "docker-ce"
    toolkit = NvidiaContainerToolkitInstallation(NvidiaContainerToolkitInstallation.Parameters())
    assert [one.kind for one in toolkit.downloads(facts)] == ["rpm", "image"]
    driver = NvidiaCudaInstallation(NvidiaCudaInstallation.Parameters())
    assert [one.kind for one in driver.downloads(facts)] == ["driver"]
    with pytest.raises(HostError, match="a bundle cannot carry packages of zypper yet"):
        driver.downloads(Facts(None, {**ROCKY, PACKAGE_MANAGER.name: "zypper"}))
    assert package_downloads("zypper", ()) == ()
    with pytest.raises(HostError, match="a bundle cannot carry packages of zypper yet"):
        package_downloads("zypper", [PackageWish("git")])


def test_no_repository_is_added_where_a_bundle_takes_its_place(tmp_path: Path) -> None:
    key = SigningKey.of("https://example.com/key", "")
    wish = RpmRepositoryWish(
        "lab", "https://example.com", key, signed_packages=True, signed_index=False, manager="dnf"
    )
    there = Bundle(tmp_path, "rocky-9-x64", frozenset())
    assert wish.steps(Facts(None, {BUNDLE: there, RPM_REPOSITORIES.name: ()}), {}) == []
