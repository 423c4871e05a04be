"""A root of Debian with access to real NVIDIA packages: real apt, dpkg and DKMS, but no GPU and no systemd.

It tests NVIDIA's own software as packaged by Debian: dependencies, scripts, the build of the module. The
module cannot be loaded. Every command has its own mounts, which end with it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.lab.host.agent_wheels import agent_wheel, dependency_wheels
from tests.lab.host.cache import cached_folder, fingerprint

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BOOKWORM", "TRIXIE", "DebianRoot", "Release", "debian_root"]

_MIRROR = "http://deb.debian.org/debian"
_COMPONENTS = "main contrib non-free non-free-firmware"
_PACKAGES = ("ca-certificates", "systemd", "dkms", "kmod", "pciutils", "python3", "python3-venv")
_MOUNTS = """\
mount -t proc proc "$0/proc" && mount -t sysfs -o ro sysfs "$0/sys" || exit
mount -t devpts -o newinstance,ptmxmode=666,gid=5,mode=620 devpts "$0/dev/pts" || exit
mount -t tmpfs tmpfs "$0/run" || exit
exec chroot "$0" "$@"
"""
_CORE_MODULE_ALONE = """\
path-exclude=/usr/src/nvidia-current-*/nvidia-[dmpu]*
post-invoke=sed --in-place '/[[][1-4][]]=/d' /usr/src/nvidia-current-*/dkms.conf 2>/dev/null || true
post-invoke=sed -i '/^NV_CONFTEST_CFLAGS = /s/=/:=/' /usr/src/nvidia-current-*/Kbuild 2>/dev/null || true
"""
"""Settings of dpkg that leave out the modules other than ``nvidia``, three quarters of the build's files.

NVIDIA's Kbuild tries seven options of the compiler for each of its 255 tests of the kernel. With ``:=``, it
tries them once, with the same result.
"""
_UNAME = '#!/bin/sh\nif [ "$1" = -r ]; then echo {kernel}; else exec /bin/uname "$@"; fi\n'


@dataclass(frozen=True)
class Release:
    """A release of Debian, and a second suite with another driver.

    Args:
        suite: such as ``bookworm``.
        beside: such as ``bookworm-backports``.
        python: the version of its Python.
        headers: whether the headers of its cloud kernel are included, for which modules are built.
    """

    suite: str
    beside: str
    python: str
    headers: bool = True


BOOKWORM = Release("bookworm", "bookworm-backports", "3.11")
"""Has 535.261.03, and 535.216.03 in backports."""
TRIXIE = Release("trixie", "bookworm", "3.13", headers=False)
"""Has 550.163.01, and 535.261.03 of the previous release; no module is built."""


@dataclass(frozen=True)
class DebianRoot:
    """A root that a test may change.

    Args:
        path: its folder.
        kernel: the kernel release that it reports; empty for this machine's.
    """

    path: Path
    kernel: str

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in the root.

        Raises:
            AssertionError: if it fails and ``check`` is set; with the output.
        """
        words = ["unshare", "--mount", "sh", "-c", _MOUNTS, str(self.path), *command]
        env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "COLUMNS": "500",
            "DEBIAN_FRONTEND": "noninteractive",
            "KCFLAGS": "-g0",
        }  # fmt: skip - DKMS strips debug information from the modules
        result = subprocess.run(
            words, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        assert result.returncode == 0 or not check, result.stdout + result.stderr
        return result

    def build_core_module_alone(self) -> None:
        """Let the driver's packages install the source of the module ``nvidia`` without the other four."""
        (self.path / "etc/dpkg/dpkg.cfg.d/core-module-alone").write_text(_CORE_MODULE_ALONE)

    def modules(self) -> set[str]:
        """Return the names of the files that DKMS installed for the kernel."""
        return {path.name for path in (self.path / "usr/lib/modules" / self.kernel / "updates").rglob("*.ko")}

    def vcagent(self, version: str, command: str = "", **parameters: Any) -> subprocess.CompletedProcess[str]:
        """Run or plan a profile that requests a driver."""
        values = {
            "Scenario": "cuda",
            "LinuxDriverVersion": version,
            "CudaRequired": False,
            "RequireGpu": False,
            "AddRepository": False,
            **parameters,
        }
        content = {"Dependencies": [{"Type": "NvidiaCudaInstallation", "Parameters": values}]}
        (self.path / "root/profile.json").write_text(json.dumps({"Description": "A test.", **content}))
        words = ["plan"] if command == "plan" else []
        options = ["--json"] if command == "plan" else ["--yes", "--results-dir", "/root/results"]
        return self.run("vcagent", *words, "--profile", "/root/profile.json", *options, check=False)

    def planned(self, version: str) -> list[str]:
        """Return the names of the steps of a plan."""
        result = self.vcagent(version, "plan")
        assert result.returncode == 0, result.stdout + result.stderr
        plan = json.loads(result.stdout)
        return [step["name"] for part in plan["components"] for step in part["steps"]]

    def offered(self, package: str) -> list[str]:
        """Return the versions of a package in the repositories, newest first."""
        lines = self.run("apt-cache", "madison", package).stdout.splitlines()
        return list(dict.fromkeys(line.split("|")[1].strip() for line in lines if line.endswith("Packages")))

    def versions(self) -> dict[str, str]:
        """Return the installed packages with a driver's version, by name."""
        shown = self.run("dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\\n").stdout
        found = re.findall(r"^(\S+) (\d{3}\.\S+) .i $", shown, re.MULTILINE)
        return {name: version for name, version in found if re.search("nvidia|libcuda|libnv", name)}


def debian_root(release: Release, folder: Path) -> DebianRoot:
    """Unpack a root into an empty folder and install the agent in it."""
    packages = (*_PACKAGES, *(("linux-headers-cloud-amd64",) if release.headers else ()))
    cached = cached_folder(
        f"debian-{release.suite}",
        fingerprint(release, packages, dependency_wheels(release.python).name),
        lambda part: _make(part, release, packages),
    )
    subprocess.run(["tar", "--extract", f"--directory={folder}", f"--file={cached / 'root.tar'}"], check=True)
    shutil.copy(agent_wheel(), folder / "opt")
    names = sorted(path.name for path in (folder / "usr/lib/modules").glob("*")) if release.headers else []
    kernel = names[0] if names else ""
    if kernel:
        _write_program(folder / "usr/local/bin/uname", _UNAME.format(kernel=kernel))
    root = DebianRoot(folder, kernel)
    wheel = next((folder / "opt").glob("vcagent-*.whl")).name
    root.run("/opt/vcagent/bin/pip", "install", "--quiet", "--no-index", "--no-deps", f"/opt/{wheel}")
    root.run("ln", "-s", "/opt/vcagent/bin/vcagent", "/usr/local/bin/vcagent")
    root.run("apt-get", "update", "-qq")  # the cached lists may be old
    return root


def _make(folder: Path, release: Release, packages: tuple[str, ...]) -> None:
    """Make the base, and the wheels that the agent needs; takes two minutes."""
    tree = folder / "tree"
    options = ["--quiet", "--variant=apt", f"--components={_COMPONENTS.replace(' ', ',')}"]
    subprocess.run(
        ["mmdebstrap", *options, f"--include={','.join(packages)}", release.suite, tree], check=True
    )
    lines = (f"deb {_MIRROR} {suite} {_COMPONENTS}\n" for suite in (release.suite, release.beside))
    (tree / "etc/apt/sources.list").write_text("".join(lines))
    shutil.copy("/etc/resolv.conf", tree / "etc/resolv.conf")
    shutil.copy("/etc/hosts", tree / "etc/hosts")
    _write_program(tree / "usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")
    shutil.copytree(dependency_wheels(release.python), tree / "opt/wheels")
    root = DebianRoot(tree, "")
    root.run("apt-get", "update", "-qq")
    root.run("python3", "-m", "venv", "/opt/vcagent")
    root.run("sh", "-c", "/opt/vcagent/bin/pip install --quiet --no-index /opt/wheels/*.whl")
    subprocess.run(
        ["tar", "--create", f"--directory={tree}", f"--file={folder / 'root.tar'}", "."], check=True
    )
    shutil.rmtree(tree)


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
