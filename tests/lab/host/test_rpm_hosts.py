"""A driver on hosts with the real dnf 4 and the real dnf 5, and their versionlocks (``make lab``).

The hosts are roots of Debian, which has both, without apt and under the name of another distribution. The
packages are stand-ins with the relations of NVIDIA's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.dependencies.rpm_lab import publish_rpms, repository_file
from tests.lab.conftest import require_tools, unavailable
from tests.lab.host.agent_wheels import agent_wheel, dependency_wheels
from tests.lab.host.debian_root import DebianRoot
from tests.lab.host.web.apt_repository import signing_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.environ.get("VCAGENT_LAB") != "all", reason="takes minutes: make lab runs it"),
]
PROGRAMS = {
    "createrepo_c": "createrepo-c",
    "gpg": "gnupg",
    "mmdebstrap": "mmdebstrap",
    "modifyrepo_c": "createrepo-c",
    "rpmbuild": "rpm",
    "rpmsign": "rpm",
}
USER = "Lab <lab@example.com>"
ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\nPRETTY_NAME="Rocky Linux 9.6"\n'
FEDORA = 'ID=fedora\nVERSION_ID=44\nPRETTY_NAME="Fedora Linux 44 (Server Edition)"\n'


@dataclass(frozen=True)
class Kind:
    """A kind of host.

    Args:
        suite: the release of Debian.
        packages: what it needs beside rpm and Python.
        release: its ``/etc/os-release``.
        folder: NVIDIA's folder for it.
        tag: the end of the packages' releases.
        locks: the file of dnf's locks.
    """

    suite: str
    packages: str
    release: str
    folder: str
    tag: str
    locks: str


KINDS = {
    "dnf 4": Kind(
        "bookworm", "dnf,dnf-plugins-core", ROCKY, "rhel9", "el9", "etc/dnf/plugins/versionlock.list"
    ),
    "dnf 5": Kind("sid", "dnf5", FEDORA, "fedora44", "fc44", "etc/dnf/versionlock.toml"),
}


@dataclass(frozen=True)
class RpmRoot:
    """A host with rpm packages.

    Args:
        root: the root.
        locks: the file of dnf's locks.
    """

    root: DebianRoot
    locks: Path

    def vcagent(self, version: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run or plan a profile that requests a driver."""
        values: dict[str, Any] = {
            "Scenario": "cuda", "LinuxDriverVersion": version, "CudaRequired": False, "RequireGpu": False,
            "RepositoryUri": "file:///srv/rpms/repos", "KeyUri": "file:///srv/rpms/key.pub",
        }  # fmt: skip
        content = {"Dependencies": [{"Type": "NvidiaCudaInstallation", "Parameters": values}]}
        profile = self.root.path / "root/profile.json"
        profile.write_text(json.dumps({"Description": "A test.", **content}))
        options = [] if command else ["--yes", "--results-dir", "/root/results"]
        return self.root.run("vcagent", *command, "--profile", "/root/profile.json", *options, check=False)

    def install(self, version: str) -> str:
        """Install a driver, check that a second run has nothing to do, and return what the first said."""
        first = self.vcagent(version)
        assert first.returncode == 0, first.stdout + first.stderr
        second = self.vcagent(version)
        assert "nothing to do" in second.stderr, second.stdout + second.stderr
        return first.stdout

    def driver(self) -> dict[str, str]:
        """Return the versions of the driver's packages."""
        shown = self.root.run("rpm", "-qa", "--qf", "%{NAME} %{VERSION}\\n").stdout
        return dict(line.split() for line in shown.splitlines() if re.match("kmod|nvidia|libnvidia", line))

    def upgrade(self) -> str:
        """Return what an upgrade of everything would do."""
        result = self.root.run("dnf", "--assumeno", "upgrade", check=False)
        return result.stdout + result.stderr


def make_root(kind: Kind, folder: Path) -> DebianRoot:
    """Make a root with dnf and the agent, and take apt out of its PATH."""
    mirror = "http://deb.debian.org/debian"
    command = ["mmdebstrap", "--quiet", "--variant=apt", '--aptopt=Acquire::Check-Valid-Until "false"']
    included = f"--include=ca-certificates,python3,python3-venv,rpm,gpg,{kind.packages}"
    source = f"deb [trusted=yes] {mirror} {kind.suite} main"
    subprocess.run([*command, included, kind.suite, folder, source], check=True)
    root = DebianRoot(folder, "")
    version = root.run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").stdout.strip()
    shutil.copytree(dependency_wheels(version), folder / "opt/wheels")
    shutil.copy(agent_wheel(), folder / "opt/wheels")
    root.run("python3", "-m", "venv", "/opt/vcagent")
    root.run("sh", "-c", "/opt/vcagent/bin/pip install --quiet --no-index /opt/wheels/*.whl")
    root.run("ln", "-s", "/opt/vcagent/bin/vcagent", "/usr/local/bin/vcagent")
    # Debian enables a plugin that adds a repository of installed packages. dnf 4 refuses it, as it
    # has no key; in dnf 5 the plugin fails without createrepo_c, after the packages are installed.
    for plugins in ("plugins", "libdnf5-plugins"):
        if (local := folder / f"etc/dnf/{plugins}/local.conf").exists():
            local.write_text("[main]\nname = local\nenabled = false\n[createrepo]\nenabled = false\n")
    for name in ("apt-get", "apt", "dpkg"):
        (folder / "usr/bin" / name).rename(folder / "opt" / name)
    if not (folder / "usr/bin/dnf").exists():
        (folder / "usr/bin/dnf").symlink_to("dnf5")
    (folder / "etc/os-release").unlink()
    (folder / "etc/os-release").write_text(kind.release)
    return root


@pytest.fixture(scope="module", params=KINDS)
def rpm_root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RpmRoot]:
    kind = KINDS[request.param]
    if os.geteuid() != 0:
        unavailable("needs root")
    require_tools(PROGRAMS)
    root = make_root(kind, tmp_path_factory.mktemp("root") / "root")
    served = root.path / "srv/rpms"
    served.mkdir(parents=True)
    with signing_key(USER) as key:
        publish_rpms(served, key, USER, kind.folder, kind.tag)
    repositories = root.path / "etc/yum.repos.d"
    repositories.mkdir(parents=True, exist_ok=True)
    for name in ("base", "epel"):
        (repositories / f"{name}.repo").write_text(repository_file(name, f"file:///srv/rpms/{name}"))
    yield RpmRoot(root, root.path / kind.locks)
    shutil.rmtree(root.path)


def test_exact_versions_both_ways_each_held(rpm_root: RpmRoot) -> None:
    """Change the version under vcagent's own locks, which dnf heeds in every other command."""
    rpm_root.install("550.90.07")
    assert set(rpm_root.driver().values()) == {"550.90.07"}
    assert "580.126.09" not in rpm_root.upgrade()
    locks = rpm_root.locks.read_text()
    rpm_root.locks.write_text("")
    assert "580.126.09" in rpm_root.upgrade(), "without the locks, an upgrade changes the driver"
    rpm_root.locks.write_text(locks)

    rpm_root.install("580")
    assert set(rpm_root.driver().values()) == {"580.126.09"}
    rpm_root.install("550.163.01")
    driver = rpm_root.driver()
    assert driver.pop("libnvidia-gpucomp") == "580.126.09", "550 has no such package, and it disturbs nobody"
    assert set(driver.values()) == {"550.163.01"}
    assert "580.126.09" not in rpm_root.upgrade()


def test_the_lock_of_somebody_else_is_a_refusal(rpm_root: RpmRoot) -> None:
    rpm_root.install("550.163.01")
    before = rpm_root.locks.read_text()
    rpm_root.locks.write_text("")  # dnf 4 adds nothing without the file
    rpm_root.root.run("dnf", "versionlock", "add", "nvidia-driver-cuda")
    foreign = rpm_root.locks.read_text()
    try:
        result = rpm_root.vcagent("580", "plan")
        assert result.returncode == 4, result.stdout + result.stderr
        assert "is kept out by somebody's versionlock: nvidia-driver-cuda" in result.stdout + result.stderr
        rpm_root.install("550.163.01")
        assert foreign.strip() in rpm_root.locks.read_text(), "others' entries stay as they are"
    finally:
        rpm_root.locks.write_text(before)
