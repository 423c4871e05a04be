"""The source of Docker for each distribution: Docker's own repository, or the distribution's packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.errors import HostError
from agent.facts.packages import RPM_MANAGERS
from dependencies.packages.apt_repository import AptRepositoryWish, deb_architecture
from dependencies.packages.package_managers import PackageWish
from dependencies.packages.rpm_repository import RpmRepositoryWish
from dependencies.packages.signing_key import SigningKey

if TYPE_CHECKING:
    from agent.facts.linux import Distribution

DOWNLOADS = "https://download.docker.com/linux"
"""Docker's repositories (docs.docker.com/engine/install)."""

DEB_FINGERPRINT = "9DC8 5822 9FC7 DD38 854A  E2D8 8D81 803C 0EBF CD88"
"""Docker Release (CE deb), as given in docs.docker.com/engine/install/debian until the step was removed."""

RPM_FINGERPRINT = "060A 61C5 1B55 8A7F 742B  77AA C52F EB6B 621E 9F35"
"""Docker Release (CE rpm), docs.docker.com/engine/install/rhel."""

_REPOSITORY_OF = {
    "ubuntu": "ubuntu",
    "debian": "debian",
    "rhel": "rhel",
    "fedora": "fedora",
    "centos": "centos",
    # Rebuilds of RHEL; Docker tests CentOS Stream, and its packages can be installed on them.
    "rocky": "centos",
    "almalinux": "centos",
    "ol": "centos",
}

_CE_PACKAGES = (
    "docker-ce",
    "docker-ce-cli",
    "containerd.io",
    "docker-buildx-plugin",
    "docker-compose-plugin",
)

_OWN_PACKAGES = {
    "azurelinux": ("moby-engine", "docker-cli"),
    "mariner": ("moby-engine", "moby-cli"),
    "amzn": ("docker",),
    "fedora": ("moby-engine",),
}
"""Distributions with their own engine package, in addition to Debian's and SUSE's families."""

_CLIENT_APART = 13
"""The Debian release since which the client is in docker-cli and not in docker.io."""


@dataclass(frozen=True)
class DockerSource:
    """The packages to install, and their repository.

    Args:
        kind: the package that contains the engine, as in the fact ``docker_engine``.
        wishes: the packages.
        repository: the repository to add first; None for the distribution's own.
    """

    kind: str
    wishes: tuple[PackageWish, ...]
    repository: AptRepositoryWish | RpmRepositoryWish | None = None


def docker_source(
    choice: str,
    distribution: Distribution,
    *,
    machine: str,
    manager: str,
    downloads: str,
    key: SigningKey | None,
) -> DockerSource:
    """Choose packages and repository for a host.

    Args:
        choice: ``docker-ce``, ``distro``, or ``auto``: Docker's own if it has a repository for the
            distribution, otherwise the distribution's.
        distribution: the host's distribution.
        machine: the host's architecture, as ``uname -m`` prints it.
        manager: the host's package manager.
        downloads: the address of Docker's repositories.
        key: their signing key; None for Docker's own.

    Raises:
        HostError: if no Docker is available for this distribution.
    """
    name = distribution.name or distribution.id
    own = _own_packages(distribution)
    path = _REPOSITORY_OF.get(distribution.id)
    if choice == "distro" or (choice == "auto" and not path):
        if not own:
            raise HostError(
                f"{name} has no Docker of its own that is known here",
                remedy="install Docker yourself, or set Packages: docker-ce where Docker supports it: "
                + ", ".join(sorted(_REPOSITORY_OF)),
            )
        return DockerSource(own[0], tuple(map(PackageWish, own)))
    if not path:
        raise HostError(
            f"Docker has no repository for {name}; it has them for {', '.join(sorted(_REPOSITORY_OF))}",
            remedy="set Packages: distro for the distribution's own engine"
            if own
            else "install Docker yourself",
        )
    base = f"{downloads.rstrip('/')}/{path}"
    wishes = tuple(map(PackageWish, _CE_PACKAGES))
    if manager in RPM_MANAGERS:
        release = distribution.version.partition(".")[0]
        repository: AptRepositoryWish | RpmRepositoryWish = RpmRepositoryWish(
            "vcagent-docker",
            f"{base}/{release}/{machine}/stable",
            key or SigningKey.of(f"{base}/gpg", RPM_FINGERPRINT),
            signed_packages=True,
            signed_index=False,
            manager=manager,
        )
    else:
        if not distribution.codename:
            raise HostError(
                f"{name} tells no codename (VERSION_CODENAME in /etc/os-release)",
                remedy="set Packages: distro for the distribution's own engine",
            )
        repository = AptRepositoryWish(
            "vcagent-docker",
            base,
            distribution.codename,
            ("stable",),
            deb_architecture(machine),
            key or SigningKey.of(f"{base}/gpg", DEB_FINGERPRINT),
        )
    return DockerSource("docker-ce", wishes, repository)


def _own_packages(distribution: Distribution) -> tuple[str, ...]:
    if distribution.id in _OWN_PACKAGES:
        return _OWN_PACKAGES[distribution.id]
    if distribution.is_like("suse") or distribution.is_like("opensuse") or distribution.id.startswith("sle"):
        return ("docker",)
    if distribution.id == "debian":
        release = distribution.version.partition(".")[0]
        apart = not release.isdigit() or int(release) >= _CLIENT_APART
        return ("docker.io", "docker-cli") if apart else ("docker.io",)
    return ("docker.io",) if distribution.is_like("debian") else ()


def pinned(kind: str, version: str, manager: str) -> tuple[PackageWish, ...]:
    """Return the wishes for one version of an engine's packages.

    A version without the package's own parts, such as ``27.3.1`` or ``27.3``, matches any build of it, as in
    VirtualClient, which searches the repository for it.

    Args:
        kind: the package that contains the engine.
        version: a version such as ``27.3.1``, or a package version such as ``5:27.3.1-1~ubuntu.24.04~noble``.
        manager: the package manager.
    """
    names = (kind, "docker-ce-cli") if kind == "docker-ce" else (kind,)
    if any(sign in version for sign in "-:*") or manager == "zypper":
        wanted = version
    else:
        complete = version.count(".") >= 2  # noqa: PLR2004 - such as 27.3.1
        epoch = "5:" if kind == "docker-ce" and manager not in RPM_MANAGERS else ""
        wanted = (
            f"{epoch}{version}{_BUILD[manager in RPM_MANAGERS, kind == 'docker-ce'] if complete else '.*'}"
        )
    return tuple(PackageWish(name, wanted) for name in names)


_BUILD = {
    (False, True): "-*",  # 5:27.3.1-1~ubuntu.24.04~noble
    (False, False): "*",  # 26.1.5+dfsg1-9, 28.2.2-0ubuntu1
    (True, True): "-*",  # 3:27.3.1-1.el9
    (True, False): "-*",  # 25.0.3-13.azl3
}
"""The pattern after a complete version in a package version: for rpm or not, built by Docker or not."""
