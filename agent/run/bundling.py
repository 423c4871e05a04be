"""Makes bundles: everything that a profile's plan downloads, fetched for a host without a network."""

from __future__ import annotations

import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from agent import __version__
from agent.component.downloads import Fetching, not_carried
from agent.core.errors import HostError, UsageError, VcagentError, host_errors, masking
from agent.core.file_hash import sha256_of
from agent.core.names import did_you_mean
from agent.core.safe_files import make_folder, replacing
from agent.facts.agent_paths import PACKAGE_DIR
from agent.facts.boot import REBOOTS
from agent.facts.linux import ARCHITECTURE, DISTRIBUTION, GLIBC, KERNEL, PLATFORM, Distribution, platform_of
from agent.facts.packages import PACKAGE_MANAGER
from agent.facts.python import PYTHON, PythonInterpreter
from agent.facts.system_paths import SYSTEM_ROOT
from agent.facts.users import ROOT
from agent.planning.planner import leaves
from agent.run.bundle_opening import MANIFEST, Manifest, ManifestFile, host_platform
from agent.run.session import check
from agent.store.bundle_parts import BundledContent
from agent.store.results import write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.component.downloads import Download
    from agent.profile import Element
    from agent.run.request import RunRequest
    from agent.run.session import Session

_MACHINES = {"x64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class _Release:
    """A release of a distribution: its codename, and the versions of its Python and of its glibc."""

    codename: str
    python: str
    glibc: str
    manager: str = "apt"


_RELEASES = {
    ("debian", "12"): _Release("bookworm", "3.11", "2.36"),
    ("debian", "13"): _Release("trixie", "3.13", "2.41"),
    ("ubuntu", "22.04"): _Release("jammy", "3.10", "2.35"),
    ("ubuntu", "24.04"): _Release("noble", "3.12", "2.39"),
    **{
        (name, version): _Release("", "3.12", glibc, "dnf")
        for name in ("almalinux", "rhel", "rocky")
        for version, glibc in (("9", "2.34"), ("10", "2.39"))
    },
}
"""Python and glibc as packages.debian.org and packages.ubuntu.com list them, and the release notes of RHEL.

The Python of RHEL 9 itself, 3.9, is too old for the agent; 3.12 is in its AppStream repository.
"""


def platform_facts(platform: str, python: str = "", kernel: str = "") -> dict[str, Any]:
    """Return what is known in advance of the hosts of a platform, as values for ``Facts``.

    Args:
        platform: such as ``ubuntu-24.04-x64``.
        python: the version of the Python that runs the agent there; by default the distribution's.
        kernel: the kernel of the hosts, as ``uname -r`` prints it; empty if it is unknown.

    Raises:
        UsageError: if bundles do not support the platform.
    """
    names = [f"{name}-{version}-{machine}" for name, version in _RELEASES for machine in _MACHINES]
    # The minor release of RHEL's family matters to a few packages; repositories have the major one.
    found = re.fullmatch(r"((?:almalinux|rhel|rocky)-\d+)\.\d+(-.*)", platform)
    if (f"{found[1]}{found[2]}" if found else platform) not in names:
        raise UsageError(
            f"bundles are not made for {platform} yet",
            remedy=did_you_mean(platform, names),
        )
    if python and not re.fullmatch(r"3\.\d+(\.\d+)?", python):
        raise UsageError(f"--python {python} is not a version of Python", remedy="write it as 3.12")
    name, version, machine = platform.split("-")
    release = _RELEASES[name, version.partition(".")[0] if found else version]
    processor = _MACHINES[machine]
    like = ("debian",) if name == "ubuntu" else () if name == "debian" else ("rhel", "fedora")
    version_of_python = python or release.python
    return {
        DISTRIBUTION.name: Distribution(name, version, release.codename, like, f"{name} {version}"),
        ARCHITECTURE.name: processor,
        PLATFORM.name: platform_of(processor),
        GLIBC.name: release.glibc,
        PACKAGE_MANAGER.name: release.manager,
        PYTHON.name: PythonInterpreter("python3", version_of_python, f"linux-{processor}"),
        ROOT.name: True,
        REBOOTS.name: (),
        PACKAGE_DIR.name: Path("/var/cache/vcagent/packages"),
        SYSTEM_ROOT.name: Path("/"),
        **({KERNEL.name: kernel} if kernel else {}),
    }


def make_bundle(
    request: RunRequest,
    platform: str,
    folder: Path,
    *,
    python: str = "",
    kernel: str = "",
    wheels: Path | None = None,
    repositories: Path | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> Manifest:
    """Fetch everything that the plan of a profile would download on a host of a platform.

    Args:
        request: the profile, its parameters and scenarios.
        platform: the platform of the hosts.
        folder: the folder of the bundle; it must be new or empty.
        python: the Python that runs the agent there; by default the distribution's.
        kernel: the kernel of the hosts, for the headers that the driver's module is built with.
        wheels: a folder of wheels that replaces the package index.
        repositories: a file with that release's repositories; by default this host's, or the publisher's.
        say: shows what happens.

    Returns:
        The manifest of the bundle, which is written last.

    Raises:
        ProfileError: if the profile cannot be used.
        UsageError: if the folder has content, or bundles do not support the platform.
        HostError: if a bundle cannot carry something, or it cannot be fetched.
    """
    modelled = platform_facts(platform, python, kernel)
    try:
        session = check(request, modelled=modelled)
    except KeyError as error:
        raise not_carried(f"this profile, because it depends on the host: {error.args[0]}") from error
    with masking(session.secrets.mask):
        downloads = _downloads(session)
        folder = folder.expanduser().absolute()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(
                f"{folder} has content; a bundle needs a folder of its own",
                remedy="name a new folder: --output FOLDER",
            )
        with host_errors(f"the folder {folder}"):
            make_folder(folder)
        # On the same file system: large files are moved.
        with TemporaryDirectory(prefix=".vcagent-bundle-", dir=folder.parent) as scratch:
            fetching = Fetching(folder, Path(scratch), session.facts, wheels, repositories, say)
            for download in downloads:
                download.fetch(fetching)
        version = ".".join(modelled[PYTHON.name].version.split(".")[:2])
        manifest = Manifest(
            vcagent=__version__,
            platform=host_platform(session.facts),
            python=version,
            profiles=[source.name for source in session.sources],
            contents=_contents(downloads, session.secrets.mask),
            files=_files(folder),
        )
        write_json(folder / MANIFEST, manifest.model_dump(mode="json"))
    return manifest


def make_archive(archive: Path, make: Callable[[Path], Manifest]) -> Manifest:
    """Pack a bundle into a tar archive, in which its folder has the archive's name.

    Args:
        archive: the file, which must be new.
        make: makes the bundle in a folder.

    Raises:
        UsageError: if the file exists.
    """
    archive = archive.expanduser().absolute()
    if archive.exists():
        raise UsageError(
            f"{archive} is there already", remedy="remove it, or name another: --output FILE.tar"
        )
    with host_errors(f"the folder {archive.parent}"):
        make_folder(archive.parent)
    with TemporaryDirectory(prefix=".vcagent-archive-", dir=archive.parent) as work:
        folder = Path(work) / archive.stem
        manifest = make(folder)
        with replacing(archive) as file, tarfile.TarFile(fileobj=file, mode="w") as packed:
            packed.add(folder, arcname=folder.name)
    return manifest


def _downloads(session: Session) -> list[Download]:
    """Return the downloads of all elements of a profile.

    Raises:
        HostError: if a bundle cannot carry something; with all such elements.
    """
    profile = session.planner.profile
    elements = [*leaves(profile.dependencies)]
    if not session.options.only_dependencies:
        elements += leaves(profile.actions)
    downloads: list[Download] = []
    refused: list[HostError] = []
    for element in elements:
        if session.planner.skipped(element, session.facts):
            continue
        try:
            downloads += _downloads_of(session, element)
        except HostError as error:
            refused.append(error)
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise HostError(
            f"a bundle cannot carry what {len(refused)} elements of the profile download",
            details=tuple(error.message for error in refused),
            remedy=refused[0].remedy,
        )
    return downloads


def _downloads_of(session: Session, element: Element) -> tuple[Download, ...]:
    try:
        return session.planner.build(element).downloads(session.facts)
    except KeyError as error:  # the facts of a host that is not there
        raise not_carried(
            f"what {element.type} downloads, because it depends on the host: {error.args[0]}"
        ) from error
    except VcagentError as error:
        error.where = error.where or f"{element.location}: {element.key}"
        raise


def _contents(downloads: Iterable[Download], mask: Callable[[str], str]) -> list[BundledContent]:
    pairs = dict.fromkeys((one.kind, mask(name)) for one in downloads for name in one.names)
    return [BundledContent(kind=kind, name=name) for kind, name in pairs]


def _files(folder: Path) -> list[ManifestFile]:
    return [
        ManifestFile(
            path=path.relative_to(folder).as_posix(), size_bytes=path.stat().st_size, sha256=sha256_of(path)
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
