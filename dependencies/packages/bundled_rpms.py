"""Fetches rpm packages, with everything that they need, for hosts of another release.

dnf itself finds what is needed, with a configuration and a root of its own. To it, the other host is a
machine of that release and architecture on which nothing is installed.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from agent.component.downloads import Download, Fetching, run_captured
from agent.core.errors import HostError, LiftedBy, host_errors
from agent.core.safe_files import make_folder, replace_text
from agent.facts import Facts, LocalHost
from agent.facts.bundle import RPMS
from agent.facts.linux import ARCHITECTURE, DISTRIBUTION
from agent.facts.package_solutions import dnf_solution
from agent.facts.repositories import repo_file
from agent.facts.rpm_offers import driver_query, publishers, repoquery
from dependencies.packages.dnf import REMEDIES, dnf_install
from dependencies.packages.given_repositories import given_repositories, warning_of
from dependencies.packages.package_lock import remedy_among

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.facts.linux import Distribution
    from agent.facts.package_solutions import PackageSolution
    from agent.facts.package_versions import PackageOffer
    from dependencies.packages.package_managers import PackageWish
    from dependencies.packages.rpm_repository import RpmRepositoryWish

_OWN_REPOSITORIES = Path("/etc/yum.repos.d")

_REMEDIES = (
    (
        r"nothing provides dkms",
        "dkms is in EPEL: add EPEL's repository with its key to the file of --repositories",
    ),
    *REMEDIES,
)

_CONF = """\
[main]
gpgcheck=1
plugins=0
best=1
reposdir={root}/repos
cachedir={root}/cache
persistdir={root}/state
logdir={root}/log
module_platform_id=platform:el{release}
"""


def rpm_downloads(
    wishes: Iterable[PackageWish],
    *,
    recommends: bool = False,
    repository: RpmRepositoryWish | None = None,
) -> tuple[Download, ...]:
    """Return the download of packages with everything that they need; none without packages.

    Args:
        wishes: the packages.
        recommends: whether weak dependencies are installed, too.
        repository: a repository that the profile adds first.
    """
    asked = tuple(wishes)
    names = tuple(map(str, asked))

    def fetch(fetching: Fetching) -> None:
        dnf = OtherDnf(fetching)
        if repository:
            dnf.add(repository)
        fetching.say(f"packages: {' '.join(names)}")
        dnf.fetch([(wish.name, wish.version) for wish in asked], recommends=recommends)

    return (Download("rpm", names, fetch),) if names else ()


class OtherDnf:
    """The dnf of another host, for one bundle.

    Args:
        fetching: the bundle; its scratch folder keeps the indexes for further packages.
    """

    def __init__(self, fetching: Fetching) -> None:
        if lacking := [name for name in ("dnf", "createrepo_c") if not shutil.which(name)]:
            raise HostError(
                f"rpm packages come by dnf and createrepo_c; this machine lacks {', '.join(lacking)}",
                remedy="install them (Debian, Ubuntu: dnf, createrepo-c; RHEL's family: createrepo_c)",
                lifted_by=LiftedBy.NOTHING,
            )
        self._fetching = fetching
        self._root = fetching.scratch / "dnf"
        self._release = fetching.facts[DISTRIBUTION].version.partition(".")[0]
        if self._root.exists():
            return
        if "dnf5" in run_captured(["dnf", "--version"], {"LC_ALL": "C"}).output:
            raise HostError(
                "the rpm packages of a bundle come by dnf 4; this machine has dnf 5, whose options differ",
                remedy="make the bundle on RHEL 9 or 10, Rocky Linux, AlmaLinux, Debian or Ubuntu",
                lifted_by=LiftedBy.NOTHING,
            )
        for folder in ("repos", "keys", "installed"):
            make_folder(self._root / folder)
        text = repositories_of(fetching.facts[DISTRIBUTION], fetching.repositories)
        replace_text(self._root / "dnf.conf", _CONF.format(root=self._root, release=self._release))
        replace_text(self._root / "repos" / "distribution.repo", text)
        if warning := warning_of(text):
            fetching.say(warning)

    def add(self, repository: RpmRepositoryWish) -> None:
        """Add a repository with its key, as the host would."""
        key = self._root / "keys" / repository.name
        if not key.exists():
            repository.key.write(key, text=True)
            replace_text(self._root / "repos" / f"{repository.name}.repo", repository.text(key))

    def fetch(self, packages: Sequence[tuple[str, str | None]], *, recommends: bool) -> None:
        """Put packages, with everything that they need, into the bundle's repository.

        Args:
            packages: names and versions.
            recommends: whether weak dependencies are fetched, too.
        """
        folder = self._fetching.folder / RPMS
        make_folder(folder)
        program, *rest = dnf_install("dnf", packages, recommends=recommends)
        # dnf compares the signatures before it ends.
        self._run([program, *self._options, "--downloadonly", f"--downloaddir={folder}", *rest])
        self._run(["createrepo_c", "--quiet", str(folder)])

    def solution(self, packages: Sequence[tuple[str, str | None]]) -> PackageSolution:
        """Return what dnf would install for packages."""
        program, *rest = dnf_install("dnf", packages)
        return Facts(LocalHost())[dnf_solution([program, *self._options, *rest])]

    def driver_offers(self) -> tuple[PackageOffer, ...]:
        """Return the packages of a GPU driver in the repositories."""
        files = sorted((self._root / "repos").glob("*.repo"))
        repositories = [
            one for file in files for one in repo_file(file.read_text(encoding="utf-8"), str(file))
        ]
        servers = publishers(repositories)
        machine = self._fetching.facts[ARCHITECTURE]
        return repoquery(self._run(driver_query(machine, servers, self._options)), servers)

    @property
    def _options(self) -> list[str]:
        return [
            f"--config={self._root / 'dnf.conf'}",
            f"--setopt=reposdir={self._root / 'repos'}",
            f"--installroot={self._root / 'installed'}",
            f"--releasever={self._release}",
            f"--forcearch={self._fetching.facts[ARCHITECTURE]}",
        ]

    def _run(self, command: Sequence[str]) -> str:
        done = run_captured(command, {"LC_ALL": "C"})
        if done.failed:
            output = f"{done.output}\n{done.errors}"
            raise HostError(
                f"dnf cannot fetch the packages for {self._fetching.facts[DISTRIBUTION].name}",
                details=tuple(line for line in done.errors.splitlines() if line.strip())[-6:],
                remedy=remedy_among(_REMEDIES, output)
                or "give that release's repositories: --repositories FILE",
                lifted_by=LiftedBy.NOTHING,
            )
        return done.output


def repositories_of(distribution: Distribution, given: Path | None) -> str:
    """Return the text of a ``.repo`` file with a distribution's repositories.

    Args:
        distribution: the distribution.
        given: a file that has them; None for those of this host.

    Raises:
        HostError: if the file cannot be read, or this host has another distribution.
    """
    if given:
        return given_repositories(given, f"a .repo file as in {_OWN_REPOSITORIES}")
    own = Facts(LocalHost())[DISTRIBUTION]
    release = distribution.version.partition(".")[0]
    if (own.id, own.version.partition(".")[0]) != (distribution.id, release):
        raise HostError(
            f"the repositories of {distribution.name} are not known on this machine",
            remedy="give a .repo file with that release's repositories and their keys: --repositories FILE",
            lifted_by=LiftedBy.NOTHING,
        )
    with host_errors(f"a file of repositories in {_OWN_REPOSITORIES}"):
        files = sorted(_OWN_REPOSITORIES.glob("*.repo"))
        return "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
