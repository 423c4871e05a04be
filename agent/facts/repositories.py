"""The package repositories of the host: apt's in both formats, and those of dnf and zypper."""

from __future__ import annotations

import configparser
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_APT = "/etc/apt"
_RPM_FOLDERS = ("/etc/yum.repos.d", "/etc/zypp/repos.d")
_YES = frozenset({"yes", "true", "with", "on", "enable", "1"})
"""Texts that apt reads as yes (sources.list(5), apt.conf(5))."""


@dataclass(frozen=True)
class AptRepository:
    """One repository of apt (sources.list(5)).

    Args:
        uri: its address as written.
        suite: such as ``noble``; ends with ``/`` for a flat one (``deb … /``).
        components: such as ``main``; none for a flat one.
        kind: ``deb`` or ``deb-src``.
        architectures: the architectures that it is limited to; empty for all of the host's.
        signed_by: the keyring for its signatures, a fingerprint, or ``inline`` for a key in the file itself;
            empty if apt's global keyrings are used.
        trusted: True if its signature is not checked.
        enabled: True if apt uses it.
        file: the file that defines it.
    """

    uri: str
    suite: str
    components: tuple[str, ...] = ()
    kind: str = "deb"
    architectures: tuple[str, ...] = ()
    signed_by: str = ""
    trusted: bool = False
    enabled: bool = True
    file: str = ""

    def offers(self, uri: str, suite: str, component: str | None, architecture: str) -> bool:
        """Return True if it is the repository at an address, for an architecture, with any options."""
        return (
            self.kind == "deb"
            and self.is_of(uri, suite, architecture)
            and (component is None or component in self.components)
            and (not self.architectures or architecture in self.architectures)
        )

    def is_of(self, uri: str, suite: str, architecture: str) -> bool:
        """Return True if it is at an address, for sources, other components or another architecture, too.

        apt requires the same ``Signed-By`` for all entries of one address and suite.
        """
        return same_address(self.uri, uri, architecture) and self.suite.strip("./") == suite.strip("./")


@dataclass(frozen=True)
class RpmRepository:
    """One section of a ``.repo`` file (dnf.conf(5), zypper(8)).

    Args:
        identifier: the section's name.
        addresses: its baseurl, mirrorlist or metalink.
        enabled: True if it is used.
        file: the file that defines it.
    """

    identifier: str
    addresses: tuple[str, ...] = ()
    enabled: bool = True
    file: str = ""

    def offers(self, uri: str, variables: Mapping[str, str] | None = None) -> bool:
        """Return True if it is the repository at an address, with ``$releasever`` and the like filled in."""
        filled = [
            re.sub(
                r"\$\{?(\w+)\}?", lambda match: (variables or {}).get(match.group(1), match.group()), address
            )
            for address in self.addresses
        ]
        return any(same_address(address, uri) for address in filled)


def conflicting_keys(
    repositories: Iterable[AptRepository], architecture: str = ""
) -> tuple[AptRepository, AptRepository] | None:
    """Return two entries of one address with different ``Signed-By``, which break all sources of apt.

    apt reads the files by name; an entry without a key after one with a key differs, too.

    Keys that are written into the files themselves are not compared.
    """
    first: dict[tuple[str, str], AptRepository] = {}
    for one in repositories:
        if not one.enabled or one.signed_by == "inline":
            continue
        key = (one.uri.replace("$(ARCH)", architecture).rstrip("/"), one.suite.strip("./"))
        other = first.setdefault(key, one)
        if not other.signed_by:  # apt uses the first key
            first[key] = one
        elif other.signed_by != one.signed_by:
            return other, one
    return None


def same_address(one: str, other: str, architecture: str = "") -> bool:
    """Return True if two addresses are one place, ignoring scheme, password and last slash."""

    def plain(uri: str) -> str:
        uri = re.sub(r"^\w+://(?:[^/@]*@)?", "", uri)
        return uri.replace("$(ARCH)", architecture).rstrip("/")

    return plain(one) == plain(other)


def one_line_repositories(text: str, file: str) -> tuple[AptRepository, ...]:
    """Read a ``.list`` file: ``deb [options] uri suite components…``; comments are ignored."""
    repositories = []
    for line in text.splitlines():
        match = re.match(r"\s*(deb|deb-src)\s+(?:\[([^\]]*)\]\s*)?([^#]*)", line)
        words = match.group(3).split() if match else []
        if not match or len(words) < 2:  # noqa: PLR2004 - an address and a suite
            continue
        pairs = re.findall(r"([\w-]+)[+-]?=(\S+)", match.group(2) or "")
        options = {name.lower(): value for name, value in pairs}
        repositories.append(
            AptRepository(
                uri=words[0],
                suite=words[1],
                components=tuple(words[2:]),
                kind=match.group(1),
                architectures=tuple(options.get("arch", "").replace(",", " ").split()),
                signed_by=options.get("signed-by", ""),
                trusted=options.get("trusted", "") in _YES,
                file=file,
            )
        )
    return tuple(repositories)


def deb822_repositories(text: str, file: str) -> tuple[AptRepository, ...]:
    """Read a ``.sources`` file: a stanza for each, with every pair of its addresses and suites."""
    return tuple(repository for stanza in _stanzas(text) for repository in _of_stanza(stanza, file))


def _stanzas(text: str) -> Iterator[Mapping[str, str]]:
    values: dict[str, str] = {}
    last = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):  # also between the lines of a field (deb822(5))
            continue
        if not line.strip():
            if values:
                yield values
            values, last = {}, ""
        elif line[0] in " \t" and last:
            values[last] += f"\n{line.strip()}"
        else:
            name, _, value = line.partition(":")
            last = name.strip().lower()
            values[last] = value.strip()


def _of_stanza(stanza: Mapping[str, str], file: str) -> Iterator[AptRepository]:
    signed_by = stanza.get("signed-by", "").strip()
    for kind in stanza.get("types", "").split():
        for uri in stanza.get("uris", "").split():
            for suite in stanza.get("suites", "").split():
                yield AptRepository(
                    uri=uri,
                    suite=suite,
                    components=tuple(stanza.get("components", "").split()),
                    kind=kind,
                    architectures=tuple(stanza.get("architectures", "").split()),
                    signed_by="inline" if "BEGIN PGP" in signed_by else signed_by,
                    trusted=stanza.get("trusted", "").lower() in _YES,
                    enabled=stanza.get("enabled", "yes").lower() in _YES,
                    file=file,
                )


def repo_file(text: str, file: str) -> tuple[RpmRepository, ...]:
    """Read a ``.repo`` file; a malformed file has no repository that dnf or zypper would use."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return ()
    repositories = []
    for name in parser.sections():
        section = parser[name]
        addresses = " ".join(section.get(key, "") for key in ("baseurl", "mirrorlist", "metalink"))
        repositories.append(
            RpmRepository(
                name,
                tuple(addresses.replace(",", " ").split()),
                enabled=section.get("enabled", "1").strip().lower() in _YES,
                file=file,
            )
        )
    return tuple(repositories)


def _apt(host: Host) -> tuple[AptRepository, ...]:
    found = list(one_line_repositories(host.text(f"{_APT}/sources.list") or "", f"{_APT}/sources.list"))
    for name in host.names(f"{_APT}/sources.list.d"):
        path = f"{_APT}/sources.list.d/{name}"
        if name.endswith(".list"):
            found += one_line_repositories(host.text(path) or "", path)
        elif name.endswith(".sources"):
            found += deb822_repositories(host.text(path) or "", path)
    return tuple(found)


def _rpm(host: Host) -> tuple[RpmRepository, ...]:
    return tuple(
        repository
        for folder in _RPM_FOLDERS
        for name in host.names(folder)
        if name.endswith(".repo")
        for repository in repo_file(host.text(f"{folder}/{name}") or "", f"{folder}/{name}")
    )


APT_REPOSITORIES: Fact[tuple[AptRepository, ...]] = Fact(
    "apt_repositories", f"{_APT}/sources.list, {_APT}/sources.list.d", _apt
)
RPM_REPOSITORIES: Fact[tuple[RpmRepository, ...]] = Fact("rpm_repositories", ", ".join(_RPM_FOLDERS), _rpm)
