"""A bundle on the host without a network: its manifest, its fitness for the host, and apt's view of it."""

from __future__ import annotations

import atexit
import errno
import shutil
import stat
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agent.component.downloads import run_captured
from agent.core.errors import HostError, LiftedBy, UsageError
from agent.core.file_hash import sha256_of
from agent.core.safe_files import distrust_tree, make_folder, remedy_for, replace_text
from agent.facts.bundle import DEBS, RPMS, WHEELS, Bundle
from agent.facts.linux import DISTRIBUTION, PLATFORM
from agent.facts.packages import PACKAGE_MANAGER
from agent.facts.python import PYTHON
from agent.store.bundle_parts import BundledContent, BundledFile

if TYPE_CHECKING:
    from agent.facts import Facts

MANIFEST = "vcagent-bundle.json"
"""The file of a bundle that lists everything else."""

_APT_CONF = """\
Dir::Etc::sourcelist "{state}/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "{state}/lists";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Acquire::Languages "none";
APT::Sandbox::User "root";
Acquire::Check-Date "false";
"""


class ManifestFile(BundledFile):
    """A file of a bundle, as its manifest lists it."""

    @field_validator("path")
    @classmethod
    def _inside(cls, value: str) -> str:
        parts = PurePosixPath(value).parts
        if not parts or value.startswith("/") or ".." in parts:
            raise ValueError("it must lie in the bundle")
        return value


class Manifest(BaseModel):
    """Everything that a bundle has, with checksums."""

    model_config = ConfigDict(extra="allow")

    vcagent: str = Field(description="The version that made it.")
    platform: str = Field(description="The hosts that it is for, such as ubuntu-24.04-x64.")
    python: str = Field(description="The version of Python that its wheels are for, such as 3.12.")
    profiles: list[str] = Field(description="The profiles that it was made from.")
    contents: list[BundledContent]
    files: list[ManifestFile]

    @classmethod
    def of(cls, folder: Path) -> Manifest:
        """Read the manifest of a bundle.

        Raises:
            UsageError: if the folder is not a bundle.
        """
        path = folder / MANIFEST
        try:
            if not path.is_file() and path.exists():  # reading a pipe would wait for its writer
                raise OSError(errno.EINVAL, "not an ordinary file", str(path))
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise UsageError(
                f"{folder} is not a bundle: it has no {MANIFEST}",
                remedy="make one on a host with a network: vcagent bundle --profile … --platform …",
            ) from error
        except (OSError, ValidationError, ValueError) as error:
            reason = "; ".join(str(error).splitlines()[:2])
            raise UsageError(
                f"the manifest of the bundle {folder} cannot be read: {reason}",
                remedy="copy the bundle again, or make it again",
            ) from error


def host_platform(facts: Facts) -> str:
    """Return the name of a host's platform, such as ``debian-12-x64``."""
    distribution = facts[DISTRIBUTION]
    # The minor releases of RHEL's family share their repositories.
    version = distribution.version.partition(".")[0] if distribution.is_like("rhel") else distribution.version
    return f"{distribution.id}-{version}-{facts[PLATFORM].partition('-')[2]}"


def open_bundle(folder: Path, facts: Facts) -> Bundle:
    """Return the bundle in a folder.

    Args:
        folder: the folder.
        facts: the host.

    Raises:
        UsageError: if it is not a bundle.
        HostError: if it is for other hosts, or incomplete.
    """
    folder = folder.expanduser().absolute()
    if folder.is_file():
        raise UsageError(
            f"{folder} is an archive", remedy=f"unpack it (tar -xf {folder.name}), and give the folder"
        )
    manifest = Manifest.of(folder)
    if reason := distrust_tree(folder):
        raise HostError(
            f"root takes nothing from the bundle {folder}: {reason}",
            remedy=f"unpack it again as root: tar --no-same-owner --no-same-permissions -xf …; or "
            f"{remedy_for(folder, '--bundle')}",
        )
    _check_platform(folder, manifest, facts)
    _check_sizes(folder, manifest)
    contents = frozenset((one.kind, one.name) for one in manifest.contents)
    apt = _apt_environment(folder) if facts[PACKAGE_MANAGER] == "apt" else {}
    return Bundle(folder, manifest.platform, contents, apt, _dnf_options(folder))


def check_bundle(bundle: Bundle) -> None:
    """Compare every file of a bundle with its checksum.

    Raises:
        HostError: if a file has another content.
    """
    damaged = [
        one.path
        for one in Manifest.of(bundle.folder).files
        if sha256_of(bundle.folder / one.path) != one.sha256
    ]
    if damaged:
        raise _incomplete(bundle.folder, "is damaged", damaged)


def _check_platform(folder: Path, manifest: Manifest, facts: Facts) -> None:
    here = host_platform(facts)
    if manifest.platform != here:
        raise HostError(
            f"the bundle {folder} is for {manifest.platform}, and this host is {here}",
            remedy=f"make it for this host: vcagent bundle --profile … --platform {here}",
            lifted_by=LiftedBy.NOTHING,
        )
    python = facts[PYTHON]
    version = ".".join(python.version.split(".")[:2]) if python else ""
    if any(one.path.startswith(f"{WHEELS}/") for one in manifest.files) and version != manifest.python:
        raise HostError(
            f"the wheels of the bundle {folder} are for Python {manifest.python}, and the agent runs with "
            f"{version or 'none that answers'}",
            remedy=f"make it for this Python: vcagent bundle --platform {here} --python {version}",
            lifted_by=LiftedBy.NOTHING,
        )


def _check_sizes(folder: Path, manifest: Manifest) -> None:
    def size(path: str) -> int | None:
        try:
            found = (folder / path).stat()
        except OSError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    if absent := [one.path for one in manifest.files if size(one.path) != one.size_bytes]:
        raise _incomplete(folder, "is incomplete", absent)


def _incomplete(folder: Path, how: str, paths: list[str]) -> HostError:
    return HostError(
        f"the bundle {folder} {how}: {len(paths)} of its files are not as its manifest has them",
        details=tuple(paths[:10]),
        remedy="copy the bundle again, or make it again",
        lifted_by=LiftedBy.NOTHING,
    )


def _dnf_options(folder: Path) -> tuple[str, ...]:
    """Return the options with which dnf knows the packages of a bundle, and no others."""
    rpms, name = folder / RPMS, "vcagent-bundle"
    if not (rpms / "repodata").is_dir():
        return ("--disablerepo=*",)
    return (
        f"--repofrompath={name},file://{quote(str(rpms))}",
        f"--repo={name}",
        # The signatures were checked when the bundle was made, if the repository's file asked for it.
        f"--setopt={name}.gpgcheck=0",
        # The streams of modules are not in the bundle's index.
        f"--setopt={name}.module_hotfixes=1",
    )


def _apt_environment(folder: Path) -> dict[str, str]:
    """Return the variables with which apt knows the packages of a bundle, and no others.

    apt keeps its lists in a temporary folder of its own: those of the host are not changed.

    Raises:
        HostError: if apt cannot read the bundle.
    """
    state = Path(tempfile.mkdtemp(prefix="vcagent-apt-"))
    atexit.register(shutil.rmtree, state, ignore_errors=True)
    repositories = sorted(index.parent for index in (folder / DEBS).glob("*/Packages"))
    # The files were compared with the signed lists of their publishers when the bundle was made.
    sources = [f"deb [trusted=yes] file:{quote(str(one))} ./\n" for one in repositories]
    replace_text(state / "sources.list", "".join(sources))
    replace_text(state / "apt.conf", _APT_CONF.format(state=state))
    make_folder(state / "lists" / "partial")
    variables = {"APT_CONFIG": str(state / "apt.conf")}
    done = run_captured(["apt-get", "--quiet", "--quiet", "update"], {"LC_ALL": "C", **variables})
    if done.failed:
        raise HostError(
            f"apt cannot read the packages of the bundle {folder}",
            details=tuple(done.errors.strip().splitlines()[-6:]),
            remedy="copy the bundle again, or make it again",
            lifted_by=LiftedBy.NOTHING,
        )
    return variables
