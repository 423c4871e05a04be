"""Packages come from a bundle, with everything that they need, through the real apt."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from agent.component.downloads import Fetching
from agent.core.errors import HostError
from agent.facts import Facts, LocalHost
from agent.facts.linux import Distribution
from agent.facts.package_versions import package_offers
from agent.run.bundle_opening import _apt_environment
from agent.run.bundling import platform_facts
from dependencies.packages.bundled_debs import deb_downloads, sources_of
from dependencies.packages.package_managers import PackageWish

if TYPE_CHECKING:
    from pathlib import Path

needs_apt = pytest.mark.skipif(
    not (shutil.which("apt-get") and shutil.which("dpkg-deb") and os.uname().machine == "x86_64"),
    reason="needs apt and dpkg of x86-64",
)


def publish(repository: Path, name: str, version: str, *lines: str, architecture: str = "amd64") -> None:
    """Add a package without files to a flat repository."""
    root = repository / "root"
    (root / "DEBIAN").mkdir(parents=True)
    control = [f"Package: {name}", f"Version: {version}", f"Architecture: {architecture}", *lines]
    control += ["Maintainer: nobody", "Description: a package of a test"]
    (root / "DEBIAN" / "control").write_text("\n".join(control) + "\n")
    file = repository / f"{name}_{version.partition(':')[2] or version}_{architecture}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, file], check=True, capture_output=True)
    shutil.rmtree(root)
    digest = subprocess.run(["sha256sum", file], check=True, capture_output=True, text=True).stdout[:64]
    entry = [*control, f"Filename: ./{file.name}", f"Size: {file.stat().st_size}"]
    with (repository / "Packages").open("a") as index:
        index.write("\n".join([*entry, f"SHA256: {digest}"]) + "\n\n")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Return a file with two repositories; the second has newer packages of another publisher."""
    lines = []
    for label in ("Debian", "Lab Works"):
        repository = tmp_path / label.replace(" ", "-")
        repository.mkdir()
        if label == "Debian":
            publish(repository, "tiny", "1:1.0+b1", "Depends: libtiny (>= 2)", "Recommends: tiny-doc")
            publish(repository, "libtiny", "1.0")
            publish(repository, "tiny-doc", "1.0")
        else:
            publish(repository, "libtiny", "2.0~rc1+x")
            publish(repository, "libtiny", "2.1")
        (repository / "Release").write_text(f"Origin: {label}\nLabel: {label}\n")
        lines.append(f"deb [trusted=yes] file:{repository} ./\n")
    file = tmp_path / "lab.list"
    file.write_text("".join(lines))
    return file


def fetched(tmp_path: Path, sources: Path, *names: str, recommends: bool = False) -> Path:
    folder, scratch = tmp_path / "bundle", tmp_path / "scratch"
    folder.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    facts = Facts(None, platform_facts("debian-12-x64"))
    fetching = Fetching(folder, scratch, facts, repositories=sources)
    for download in deb_downloads(map(PackageWish.parse, names), recommends=recommends):
        download.fetch(fetching)
    return folder


@needs_apt
def test_packages_come_with_what_they_need_in_repositories_of_their_publishers(
    tmp_path: Path, sources: Path
) -> None:
    folder = fetched(tmp_path, sources, "tiny")
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.deb"))
    assert files == ["debs/debian/tiny_1_1.0+b1_amd64.deb", "debs/lab-works/libtiny_2.1_amd64.deb"]

    environment = _apt_environment(folder)
    offers = Facts(LocalHost(environment))[package_offers("test", "tiny|libtiny")]
    assert [(one.name, one.version, one.origin) for one in offers] == [
        ("libtiny", "2.1", "Lab Works"),
        ("tiny", "1:1.0+b1", "Debian"),
    ]
    # The bundle's repositories are the only ones, and apt accepts its files.
    there = tmp_path / "there"
    there.mkdir()
    said = subprocess.run(
        ["apt-get", "download", "tiny:amd64", "libtiny:amd64"],
        cwd=there,
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    assert len(list(there.glob("*.deb"))) == 2
    policy = LocalHost(environment).output(["apt-cache", "policy"]) or ""
    assert set(re.findall(r"^ *\d+ (?:file:)?(\S+)", policy, re.MULTILINE)) == {
        "/var/lib/dpkg/status",
        *(str(index.parent) for index in folder.rglob("Packages")),
    }


@needs_apt
def test_recommended_packages_and_versions_are_as_the_profile_asks(tmp_path: Path, sources: Path) -> None:
    folder = fetched(tmp_path, sources, "tiny", recommends=True)
    assert list(folder.rglob("tiny-doc_*.deb"))
    fetched(tmp_path, sources, "libtiny=2.0~rc1+x")
    versions = (folder / "debs" / "lab-works" / "Packages").read_text()
    assert "Version: 2.1\n" in versions
    assert "Version: 2.0~rc1+x\n" in versions
    assert versions.count("Package: ") == 2


@needs_apt
def test_an_unknown_package_is_refused(tmp_path: Path, sources: Path) -> None:
    with pytest.raises(HostError, match="apt cannot fetch the packages for debian 12") as caught:
        fetched(tmp_path, sources, "tiny-absent")
    assert "Unable to locate package tiny-absent" in caught.value.details[-1]


def test_repositories_of_a_release(tmp_path: Path) -> None:
    other = Distribution("ubuntu", "99.04", "zesty", name="ubuntu 99.04")
    with pytest.raises(HostError, match="cannot be read"):
        sources_of(other, "amd64", tmp_path / "absent.list")
    given = tmp_path / "given"
    given.write_text("Types: deb\nURIs: http://example.com\nSuites: zesty\nComponents: main\n")
    assert sources_of(other, "amd64", given) == ("given.sources", given.read_text())
