"""Packages in apt's repositories: versions, origins, dependencies; and held packages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent.facts.base import Fact, Host
from agent.facts.packages import PACKAGE_MANAGER, RPM_MANAGERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VERSION_LOCKS = "/etc/dnf/plugins/versionlock.list"
_VERSION_LOCKS_5 = "/etc/dnf/versionlock.toml"
_CHUNK = 400
"""Most packages in one call of apt-cache: well below the kernel's limit for arguments."""


@dataclass(frozen=True)
class PackageOffer:
    """A version of a package in a repository.

    Args:
        name: the package.
        version: its full version, such as ``550.90.07-0ubuntu1``.
        origin: its publisher: the repository's ``Origin``, such as ``Ubuntu``; else its host.
        depends: its dependencies, in dpkg's form.
    """

    name: str
    version: str
    origin: str
    depends: str = ""


def origins(text: str | None) -> dict[tuple[str, str], str]:
    """Return repositories' origins by address and ``suite/component``, from ``apt-cache policy``."""
    found: dict[tuple[str, str], str] = {}
    source: tuple[str, str] | None = None
    for line in (text or "").splitlines():
        if match := re.match(r"\s*-?\d+ (\S+ .*Packages)$", line):
            source = _source(match.group(1))
        elif source and (match := re.search(r"^\s+release .*\bo=([^,]+)", line)):
            found[source] = match.group(1)
    return found


def _source(text: str) -> tuple[str, str]:
    """Split ``address suite/component architecture Packages``; a repository ``deb … /`` has no suite."""
    words = text.split()[:-1]
    return words[0], words[1] if len(words) > 1 else ""


def package_dependencies(text: str | None) -> dict[tuple[str, str], str]:
    """Return ``Depends`` by name and version, from ``apt-cache show``."""
    found = {}
    for block in re.split(r"\n\n+", text or ""):
        fields = dict(re.findall(r"^(Package|Version|Depends): (.*)$", block, re.MULTILINE))
        if "Package" in fields and "Version" in fields:
            found[fields["Package"], fields["Version"]] = fields.get("Depends", "")
    return found


def madison(
    text: str | None,
    known_origins: Mapping[tuple[str, str], str],
    depends: Mapping[tuple[str, str], str],
) -> tuple[PackageOffer, ...]:
    """Read ``apt-cache madison``: newest first for each package; a version occurs once for each origin."""
    offers: dict[PackageOffer, None] = {}
    for line in (text or "").splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 3 or not fields[2].endswith("Packages"):  # noqa: PLR2004 - name, version, source
            continue
        source = _source(fields[2])
        origin = known_origins.get(source) or urlsplit(source[0]).hostname or source[0]
        offers[PackageOffer(fields[0], fields[1], origin, depends.get((fields[0], fields[1]), ""))] = None
    return tuple(offers)


def package_offers(subject: str, pattern: str) -> Fact[tuple[PackageOffer, ...]]:
    """Return the fact of the packages whose whole name matches a regular expression.

    Args:
        subject: part of the fact's name: one pattern for each subject.
        pattern: the regular expression.
    """
    wanted = re.compile(pattern)

    def read(host: Host) -> tuple[PackageOffer, ...]:
        names = (host.output(["apt-cache", "pkgnames"], timeout_s=60) or "").split()
        chosen = sorted({name for name in names if wanted.fullmatch(name)})
        if not chosen:
            return ()
        return madison(
            _each(host, ["apt-cache", "madison"], chosen),
            origins(host.output(["apt-cache", "policy"], timeout_s=60)),
            package_dependencies(_each(host, ["apt-cache", "show"], chosen)),
        )

    return Fact(f"package_offers[{subject}]", "apt-cache madison, apt-cache policy, apt-cache show", read)


def _each(host: Host, command: Sequence[str], names: Sequence[str]) -> str:
    parts = (names[start : start + _CHUNK] for start in range(0, len(names), _CHUNK))
    return "\n".join(host.output([*command, *part], timeout_s=60) or "" for part in parts)


def _held(host: Host) -> frozenset[str]:
    if PACKAGE_MANAGER.read(host) in RPM_MANAGERS:
        lines = map(str.strip, (host.text(_VERSION_LOCKS) or "").splitlines())
        names = re.findall(r'^name\s*=\s*"([^"]+)"', host.text(_VERSION_LOCKS_5) or "", re.MULTILINE)
        return frozenset({*names, *(line for line in lines if line and not line.startswith("#"))})
    return frozenset((host.output(["apt-mark", "showhold"], timeout_s=30) or "").split())


HELD_PACKAGES: Fact[frozenset[str]] = Fact("held_packages", f"apt-mark showhold, {_VERSION_LOCKS}", _held)
"""Names of held apt packages, and patterns of dnf's versionlock."""
