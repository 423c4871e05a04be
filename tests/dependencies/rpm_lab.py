"""A separate root for rpm, and a signed repository of stand-ins for NVIDIA's packages, for real dnf and rpm.

Names, versions and relations are those of developer.download.nvidia.com/compute/cuda/repos/rhel9; the
packages are empty. As in the original, a driver's packages belong to module streams; one is the default. The
repositories for Fedora have the same packages and no streams.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.facts import LocalHost

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent.host.processes import ProcessResult, ProcessRunner
    from tests.lab.host.web.apt_repository import SigningKey

__all__ = [
    "DRIVERS",
    "NvidiaRpms",
    "RootedHost",
    "RootedProcesses",
    "publish_rpms",
    "repository_file",
]

DRIVERS = ("550.90.07", "550.163.01", "580.126.09")

_SPEC = """\
Name: nvidia-driver
Epoch: 3
Version: {version}
Release: 1.el9
Summary: stand-in
License: none
BuildArch: noarch
%description
stand-in
"""
_PART = """
%package -n {name}
Summary: stand-in
{relations}
%description -n {name}
stand-in
%files -n {name}
"""
_OTHERS = """
%package -n python3-dnf-plugin-versionlock
Summary: stand-in
Provides: dnf-command(versionlock)
%description -n python3-dnf-plugin-versionlock
stand-in
%install
mkdir -p %{buildroot}/etc/dnf/plugins
echo '[main]' >%{buildroot}/etc/dnf/plugins/versionlock.conf
%files -n python3-dnf-plugin-versionlock
/etc/dnf/plugins/versionlock.conf

%package -n company-desktop
Summary: needs the closed kernel module
Requires: kmod-nvidia-latest-dkms
%description -n company-desktop
stand-in
%files -n company-desktop
"""


def _parts(version: str) -> dict[str, tuple[str, ...]]:
    """Return a driver's packages with their relations."""
    same = f"= 3:{version}"
    modules = {
        "kmod-nvidia-latest-dkms": "kmod-nvidia-open-dkms",
        "kmod-nvidia-open-dkms": "kmod-nvidia-latest-dkms",
    }
    fabric = {
        "nvidia-fabric-manager": ("Epoch: 0", "Release: 1"),
        "nvidia-fabricmanager": ("Epoch: 0", "Release: 1", "Obsoletes: nvidia-fabric-manager"),
    }
    manager = "nvidia-fabricmanager" if version.startswith("580") else "nvidia-fabric-manager"
    parts = {
        "libnvidia-ml": (),
        "libnvidia-cfg": (),
        "nvidia-modprobe": (),
        "nvidia-persistenced": (f"Requires: libnvidia-cfg >= 3:{version}",),
        "nvidia-driver-cuda-libs": (f"Requires: libnvidia-ml {same}", f"Requires: libnvidia-cfg {same}"),
        "nvidia-driver-cuda": (
            f"Requires: nvidia-driver-cuda-libs {same}",
            f"Requires: nvidia-kmod-common {same}",
            f"Requires: nvidia-persistenced {same}",
            "Requires: opencl-filesystem",
            "Requires: ocl-icd",
        ),
        "nvidia-kmod-common": (
            f"Requires: nvidia-kmod {same}",
            "Requires: nvidia-modprobe",
            "Requires: linux-firmware",
        ),
        **{
            name: (
                f"Provides: nvidia-kmod {same}",
                f"Conflicts: {other}",
                f"Requires: nvidia-kmod-common {same}",
                "Requires: dkms",
            )
            for name, other in modules.items()
        },
        manager: fabric[manager],
    }
    if version.startswith("580"):
        parts["libnvidia-gpucomp"] = ()
        parts["nvidia-driver-cuda-libs"] += (f"Requires: libnvidia-gpucomp {same}",)
    return parts


@dataclass(frozen=True)
class NvidiaRpms:
    """The repository of stand-ins.

    Args:
        uri: the address above the distributions' folders.
        key: the address of its public key.
        base: the distribution's own repository: firmware, and the package that adds EPEL.
        epel: EPEL's repository, the only one with dkms.
    """

    uri: str
    key: str
    base: str
    epel: str


def publish_rpms(
    folder: Path, key: SigningKey, user: str, distribution: str = "rhel9", tag: str = "el9"
) -> NvidiaRpms:
    """Build, sign and index the packages below ``folder/repos/<distribution>/x86_64``."""
    repository = folder / "repos" / distribution / "x86_64"
    defines = [f"--define=_topdir {folder}/top", f"--define=_rpmdir {repository}"]
    for version in DRIVERS:
        parts = [
            _PART.format(name=name, relations="\n".join(lines)) for name, lines in _parts(version).items()
        ]
        others = [_OTHERS] if version == DRIVERS[0] else []
        spec = folder / f"{version}.spec"
        text = _SPEC.format(version=version).replace("1.el9", f"1.{tag}")
        spec.write_text(text + "".join([*parts, *others]))
        subprocess.run(["rpmbuild", "-bb", "--quiet", *defines, spec], check=True, capture_output=True)
    # Debian's rpm looks for gpg under an old name from Fedora.
    program = shutil.which("gpg")
    signing = [f"--define=_gpg_path {key.home}", f"--define=_gpg_name {user}", f"--define=__gpg {program}"]
    packages = sorted(repository.rglob("*.rpm"))
    subprocess.run(["rpmsign", *signing, "--addsign", *packages], check=True, capture_output=True)
    subprocess.run(["createrepo_c", "--quiet", repository], check=True)
    if distribution.startswith("rhel"):
        modules = folder / "modules.yaml"
        modules.write_text("".join(map(_stream, DRIVERS)) + _DEFAULTS)
        index = repository / "repodata"
        subprocess.run(["modifyrepo_c", "--mdtype=modules", modules, index], check=True, capture_output=True)
    for name in ("base", "epel"):
        _publish_others(folder, name)
    public = folder / "key.pub"
    public.write_bytes(key.public())
    base, epel = ((folder / name).as_uri() for name in ("base", "epel"))
    return NvidiaRpms((folder / "repos").as_uri(), public.as_uri(), base, epel)


def repository_file(name: str, uri: str) -> str:
    """Return a ``.repo`` file for an unsigned repository."""
    return f"[{name}]\nname={name}\nbaseurl={uri}\nenabled=1\ngpgcheck=0\n"


def _publish_others(folder: Path, name: str) -> None:
    """Publish the packages that do not come from NVIDIA; ``epel-release`` brings the address of EPEL."""
    names = {"base": ("linux-firmware", "epel-release"), "epel": ("dkms", "opencl-filesystem", "ocl-icd")}
    spec = folder / f"{name}.spec"
    text = _SPEC.format(version="3.1.8").replace("Name: nvidia-driver", f"Name: {name}-others")
    text += "".join(_PART.format(name=one, relations="") for one in names[name])
    if name == "base":
        content = repository_file("epel", (folder / "epel").as_uri()).replace("\n", "\\n")
        written = "%install\nmkdir -p %{buildroot}/etc/yum.repos.d\n"
        written += f"printf '{content}' >%{{buildroot}}/etc/yum.repos.d/epel.repo\n"
        listed = "%files -n epel-release\n/etc/yum.repos.d/epel.repo\n"
        text = text.replace("%files -n epel-release\n", listed) + written
    spec.write_text(text)
    defines = [f"--define=_topdir {folder}/top", f"--define=_rpmdir {folder / name}"]
    subprocess.run(["rpmbuild", "-bb", "--quiet", *defines, spec], check=True, capture_output=True)
    subprocess.run(["createrepo_c", "--quiet", folder / name], check=True)


def _stream(version: str) -> str:
    """Return one version as a stream; dnf hides packages that are in no enabled stream."""
    ends = {name: f"0:{version}-1" if "fabric" in name else f"3:{version}-1.el9" for name in _parts(version)}
    lines = [f"    - {name}-{end}.noarch" for name, end in ends.items()]
    head = (
        f"---\ndocument: modulemd\nversion: 2\ndata:\n  name: nvidia-driver\n  stream: '{version}'\n"
        f"  version: 1\n  context: '{version.replace('.', '')}'\n  arch: x86_64\n  summary: stand-in\n"
        "  description: stand-in\n  license:\n    module: [none]\n  artifacts:\n    rpms:\n"
    )
    return head + "\n".join(lines) + "\n...\n"


_DEFAULTS = (
    "---\ndocument: modulemd-defaults\nversion: 1\ndata:\n  module: nvidia-driver\n"
    f"  stream: '{DRIVERS[-1]}'\n...\n"
)


def _rooted(root: Path, command: Sequence[str]) -> list[str]:
    program, *rest = command
    if program == "sh" and "dnf" in rest:  # sh -c SCRIPT dnf COMMAND
        start = rest.index("dnf") + 1
        return [program, *rest[:start], *_rooted(root, rest[start:])]
    if program == "dnf":
        return [
            program, f"--installroot={root}", f"--setopt=reposdir={root}/etc/yum.repos.d", "--releasever=9",
            "--setopt=module_platform_id=platform:el9", *rest,
        ]  # fmt: skip
    return [program, f"--root={root}", *rest] if program == "rpm" else [program, *rest]


@dataclass(frozen=True)
class RootedHost:
    """A host whose packages are in a separate root; see ``agent.facts.Host``."""

    root: Path

    def output(self, command: Sequence[str], **options: Any) -> str | None:
        return LocalHost().output(_rooted(self.root, command), **options)

    def text(self, path: str) -> str | None:
        return LocalHost().text(self._in(path))

    def names(self, folder: str) -> list[str]:
        return LocalHost().names(self._in(folder))

    def lock_holder(self, path: str) -> int | None:
        return LocalHost().lock_holder(self._in(path))

    def _in(self, path: str) -> str:
        outside = path.startswith((str(self.root), "/proc", "/sys"))
        return path if outside else f"{self.root}{path}"


@dataclass(frozen=True)
class RootedProcesses:
    """Runs dnf and rpm as that host would, and nothing else; see ``agent.host.processes.ProcessRunner``."""

    root: Path
    real: ProcessRunner

    def run(self, command: Sequence[str], **options: Any) -> ProcessResult:
        assert command[0] in ("dnf", "rpm"), f"this would change the real host: {command}"
        return self.real.run(_rooted(self.root, command), **options)

    def start(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is started")
