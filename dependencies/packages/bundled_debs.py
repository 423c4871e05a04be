"""Fetches Debian packages, with everything that they need, for hosts of another release.

apt itself finds what is needed, with a configuration, lists and a status file of its own. To it, the other
host is a machine of that release and architecture on which nothing is installed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from agent.component.downloads import Download, Fetching, run_captured
from agent.core.errors import HostError, LiftedBy
from agent.core.file_hash import sha256_of
from agent.core.safe_files import append_text, copy_file, make_folder, replace_text, touch
from agent.facts import Facts, LocalHost
from agent.facts.bundle import DEBS
from agent.facts.linux import ARCHITECTURE, DISTRIBUTION
from agent.facts.package_solutions import apt_preferences
from agent.facts.repositories import APT_REPOSITORIES
from dependencies.packages.apt import known_remedy
from dependencies.packages.apt_repository import AptRepositoryWish, deb_architecture
from dependencies.packages.given_repositories import given_repositories, warning_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.facts.linux import Distribution
    from dependencies.packages.package_managers import PackageWish

_CONF = """\
Dir "{root}/";
Dir::State::status "{root}/status";
Dir::Etc::sourcelist "{root}/sources.list";
Dir::Etc::sourceparts "{root}/sources.list.d";
Dir::Etc::trusted "/etc/apt/trusted.gpg";
Dir::Etc::trustedparts "/etc/apt/trusted.gpg.d";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Debug::NoLocking "true";
"""
"""apt reads it before anything else, so that ``Dir`` also keeps it from this host's configuration files."""

_FOLDERS = ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial")
"""Folders that apt warns about if they are not there."""

_KEYRINGS = {
    "debian": ("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"),
    "ubuntu": ("/usr/share/keyrings/ubuntu-archive-keyring.gpg", "ubuntu-keyring"),
}
"""The keys of the distributions, and the packages that have them."""


def deb_downloads(
    wishes: Iterable[PackageWish],
    *,
    recommends: bool = False,
    repository: AptRepositoryWish | None = None,
) -> tuple[Download, ...]:
    """Return the download of packages with everything that they need; none without packages.

    Args:
        wishes: the packages.
        recommends: whether recommended packages are installed, too.
        repository: a repository that the profile adds first.
    """
    names = tuple(map(str, wishes))

    def fetch(fetching: Fetching) -> None:
        apt = OtherApt(fetching)
        if repository:
            apt.add(repository)
        fetching.say(f"packages: {' '.join(names)}")
        apt.fetch(names, recommends=recommends)

    return (Download("deb", names, fetch),) if names else ()


class OtherApt:
    """The apt of another host, for one bundle.

    Args:
        fetching: the bundle; its scratch folder keeps the lists for further packages.
    """

    def __init__(self, fetching: Fetching) -> None:
        self._fetching = fetching
        self._root = fetching.scratch / "apt"
        self.host = LocalHost({"APT_CONFIG": str(self._root / "apt.conf")})
        """Facts read from it are those of this apt."""
        if self._root.exists():
            return
        facts = fetching.facts
        architecture = deb_architecture(facts[ARCHITECTURE])
        for folder in (*_FOLDERS, "sources.list.d", "keyrings"):
            make_folder(self._root / folder)
        make_folder(self._archives / "partial")
        touch(self._root / "status")
        touch(self._root / "sources.list")
        proxies = LocalHost().output(["apt-config", "dump", "Acquire"]) or ""
        configuration = _CONF.format(root=self._root, architecture=architecture)
        replace_text(self._root / "apt.conf", proxies + configuration, mode=0o600)
        name, text = sources_of(facts[DISTRIBUTION], architecture, fetching.repositories)
        replace_text(self._root / "sources.list.d" / name, text)
        if warning := warning_of(text):
            fetching.say(warning)
        self._update()

    @property
    def _archives(self) -> Path:
        return self._root / "var/cache/apt/archives"

    def add(self, repository: AptRepositoryWish) -> None:
        """Add a repository with its key, as the host would."""
        mine = replace(repository, folder=self._root)
        if mine.file.exists():
            return
        if mine.key:
            mine.key.write(mine.keyring, text=False)
        replace_text(mine.file, mine.text(None if mine.key else ""))
        self._update()

    def fetch(
        self,
        names: Sequence[str],
        *,
        recommends: bool,
        pins: Mapping[str, str] | None = None,
        preferences: str = "",
    ) -> None:
        """Put packages, with everything that they need, into the bundle's repositories.

        Args:
            names: the packages, with versions if these matter.
            recommends: whether recommended packages are fetched, too.
            pins: versions of packages that these may need.
            preferences: further preferences (apt_preferences(5)).
        """
        replace_text(self._root / "etc/apt/preferences", f"{apt_preferences(pins or {})}\n{preferences}")
        option = f"--{'' if recommends else 'no-'}install-recommends"
        command = ["apt-get", "--yes", option, "--allow-downgrades", "install", *names]
        listed = re.findall(r"^'(\S+)' (\S+) \d+", self._run([*command, "--print-uris"]), re.MULTILINE)
        self._run([*command, "--download-only"])
        publishers = self._publishers()
        for uri, file in listed:
            origin, label = next((value for start, value in publishers if uri.startswith(start)), ("", ""))
            folder = self._fetching.folder / DEBS / (re.sub(r"\W+", "-", label.lower()).strip("-") or "other")
            target = folder / file.replace("%3a", "_")
            if target.exists():
                continue
            make_folder(folder)
            if (self._archives / file).exists():
                (self._archives / file).replace(target)
            else:  # apt does not copy packages of a folder
                copy_file(Path(unquote(uri.removeprefix("file:"))), target)
            name, version = unquote(file).split("_")[:2]
            stanza = self._run(["apt-cache", "show", f"{name}={version}"]).strip().split("\n\n")[0]
            stanza = re.sub(r"^Filename: .*$", f"Filename: ./{target.name}", stanza, flags=re.MULTILINE)
            append_text(folder / "Packages", f"{stanza}\n\n")
            replace_text(folder / "Release", self._release(folder, origin, label))

    def _publishers(self) -> list[tuple[str, tuple[str, str]]]:
        """Return origin and label of every repository by the beginning of its addresses, longest first."""
        form = "$(REPO_URI)|$(ORIGIN)|$(LABEL)"
        told = self._run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"])
        lines = [line.split("|") for line in told.splitlines() if line.count("|") == 2]  # noqa: PLR2004
        found = {uri: (origin, label or origin) for uri, origin, label in lines}
        return sorted(found.items(), key=lambda one: -len(one[0]))

    def _release(self, folder: Path, origin: str, label: str) -> str:
        index = folder / "Packages"
        distribution = self._fetching.facts[DISTRIBUTION]
        return (
            f"Origin: {origin}\nLabel: {label}\nSuite: {distribution.codename}\n"
            f"Codename: {distribution.codename}\n"
            f"Architectures: {deb_architecture(self._fetching.facts[ARCHITECTURE])}\n"
            f"SHA256:\n {sha256_of(index)} {index.stat().st_size} Packages\n"
        )

    def _update(self) -> None:
        self._run(["apt-get", "--quiet", "--quiet", "update"])

    def _run(self, command: Sequence[str]) -> str:
        done = run_captured(command, {"LC_ALL": "C", "APT_CONFIG": str(self._root / "apt.conf")})
        if done.failed:
            lines = [line for line in done.errors.splitlines() if line.strip()]
            raise HostError(
                f"apt cannot fetch the packages for {self._fetching.facts[DISTRIBUTION].name}",
                details=tuple(lines[-6:]),
                remedy=known_remedy(done.errors) or "give that release's repositories: --repositories FILE",
                lifted_by=LiftedBy.NOTHING,
            )
        return done.output


def sources_of(distribution: Distribution, architecture: str, given: Path | None) -> tuple[str, str]:
    """Return name and text of the file with a distribution's repositories.

    Args:
        distribution: the distribution.
        architecture: Debian's name of the architecture.
        given: a file that has them; None for those of this host, or else the distribution's own servers.

    Raises:
        HostError: if the file cannot be read, or the keys of the distribution are not on this host.
    """
    if given:
        text = given_repositories(given, "a .sources or .list file as in /etc/apt/sources.list.d")
        return f"given{'.sources' if re.search(r'^Types:', text, re.MULTILINE) else '.list'}", text
    here = Facts(LocalHost())
    own = here[DISTRIBUTION]
    if (own.id, own.version) == (distribution.id, distribution.version):
        entries = [
            _stanza(one.uri, [one.suite], one.components, one.signed_by)
            for one in here[APT_REPOSITORIES]
            if one.kind == "deb" and one.enabled and one.signed_by != "inline"
            # Repositories of others, which may be added to the profile's, are left out.
            if "main" in one.components and one.suite.partition("-")[0] == distribution.codename
        ]
        if entries:
            return "host.sources", "\n".join(entries)
    return "distribution.sources", _servers(distribution, architecture)


def _servers(distribution: Distribution, architecture: str) -> str:
    """Return the repositories of a distribution at its own servers."""
    keyring, package = _KEYRINGS[distribution.id]
    if not Path(keyring).exists():
        raise HostError(
            f"the keys of {distribution.name} are not on this host: {keyring}",
            remedy=f"install the package {package}, or give repositories with keys: --repositories FILE",
            lifted_by=LiftedBy.NOTHING,
        )
    name = distribution.codename
    if distribution.id == "debian":
        return "\n".join(
            (
                _stanza("http://deb.debian.org/debian", [name, f"{name}-updates"], ("main",), keyring),
                _stanza("http://deb.debian.org/debian-security", [f"{name}-security"], ("main",), keyring),
            )
        )
    server = "http://archive.ubuntu.com/ubuntu" if architecture == "amd64" else "http://ports.ubuntu.com"
    suites = [name, f"{name}-updates", f"{name}-security"]
    return _stanza(server, suites, ("main", "restricted", "universe", "multiverse"), keyring)


def _stanza(uri: str, suites: Sequence[str], components: Sequence[str], signed_by: str) -> str:
    key = f"Signed-By: {signed_by}\n" if signed_by else ""
    return f"Types: deb\nURIs: {uri}\nSuites: {' '.join(suites)}\nComponents: {' '.join(components)}\n{key}"
