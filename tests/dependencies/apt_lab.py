"""A separate apt: repositories made from definitions, and a status file; the real apt solves.

The definitions in ``tests/lab/host/driver_definitions`` have the names, versions and relations of real
packages. Other needed packages, such as ``dkms`` and ``libgl1``, exist in a version that satisfies all.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.core.yaml_data import yaml_data
from agent.facts import LocalHost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["AptHost", "apt_host"]

_DEFINITIONS = Path(__file__).parents[1] / "lab/host/driver_definitions"
_RELATIONS = ("pre_depends", "depends", "provides", "conflicts", "breaks", "replaces")
_CONF = """\
Dir "{root}/";
Dir::State::status "{root}/status";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Sandbox::User "root";
APT::Get::AllowUnauthenticated "true";
Acquire::Languages "none";
Debug::NoLocking "true";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
"""
"""apt's configuration without caches: a state written twice in a second would not be read again."""


def _stanza(package: Mapping[str, str], extra: str = "") -> str:
    names = {"pre_depends": "Pre-Depends"}
    lines = [f"{names.get(key, key.capitalize())}: {package[key]}" for key in _RELATIONS if key in package]
    head = f"Package: {package['name']}\nVersion: {package['version']}\nArchitecture: amd64\n{extra}"
    return head + "".join(f"{line}\n" for line in lines)


def _terms(text: str) -> Iterator[str]:
    for term in re.split(r"[,|]", text):
        if match := re.match(r"\s*([a-z0-9][a-z0-9+.-]*)", term):
            yield match.group(1)


@dataclass(frozen=True)
class AptHost:
    """A host whose apt and dpkg use one folder as their root; see ``agent.facts.Host``."""

    root: Path
    packages: tuple[Mapping[str, str], ...]

    @property
    def environment(self) -> dict[str, str]:
        return {"APT_CONFIG": str(self.root / "apt.conf"), "DPKG_ADMINDIR": str(self.root)}

    def output(self, command: Sequence[str], **options: Any) -> str | None:
        env = {**(options.pop("env", None) or {}), **self.environment}
        return LocalHost().output(command, env=env, **options)

    def text(self, path: str) -> str | None:
        return LocalHost().text(path if path.startswith(("/proc", "/sys")) else f"{self.root}{path}")

    def names(self, folder: str) -> list[str]:
        return ["apt-get"] if folder == "/usr/bin" else LocalHost().names(f"{self.root}{folder}")

    def lock_holder(self, path: str) -> int | None:
        return None

    def install(self, changes: Mapping[str, str], removed: Iterable[str] = ()) -> None:
        """Write the state that results from a solution."""
        state = self._installed() | dict(changes)
        gone = set(removed)
        known = {(one["name"], one["version"]): one for one in self.packages}
        stanzas = [
            _stanza(
                known[name, version],
                "Status: install ok installed\nMaintainer: nobody\nDescription: lab\n",
            )
            for name, version in state.items()
            if name not in gone
        ]
        (self.root / "status").write_text("\n".join(stanzas))

    def _installed(self) -> dict[str, str]:
        text = (self.root / "status").read_text()
        return dict(re.findall(r"^Package: (\S+)\nVersion: (\S+)$", text, re.MULTILINE))


def apt_host(root: Path, *definitions: str, without: tuple[str, str] = ("", "")) -> AptHost:
    """Return a host with repositories of these definitions and nothing installed.

    Args:
        root: the folder for all its files.
        definitions: names of files.
        without: name and version of a package to leave out.
    """
    every: list[Mapping[str, str]] = []
    origins: dict[str, list[Mapping[str, str]]] = {}
    for name in definitions:
        content = yaml_data((_DEFINITIONS / f"{name}.yaml").read_text())
        packages = [one for one in content["packages"] if (one["name"], one["version"]) != without]
        origins.setdefault(content["origin"], []).extend(packages)
        every += packages
    provided = {name for one in every for name in (one["name"], *_terms(one.get("provides", "")))}
    asked = {name for one in every for key in ("depends", "pre_depends") for name in _terms(one.get(key, ""))}
    stubs = [{"name": name, "version": "1:99"} for name in sorted(asked - provided)]
    stubs += [{"name": "linux-headers-6.8.0-1-generic", "version": "6.8.0-1.1"}]
    stubs += [{"name": "xserver-xorg-core", "version": "1:99"}] if "xserver-xorg-core" not in asked else []
    origins["Debian"] = [*origins.get("Debian", []), *stubs]
    parts = (f"etc/apt/{name}.d" for name in ("sources.list", "preferences", "apt.conf"))
    caches = ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "updates", "info")
    for folder in (*parts, *caches):
        (root / folder).mkdir(parents=True)
    (root / "apt.conf").write_text(_CONF.format(root=root))
    (root / "status").touch()
    lines = []
    for number, (origin, offered) in enumerate(origins.items()):
        folder = root / f"repository{number}"
        folder.mkdir()
        entries = (
            _stanza(one, f"Filename: ./{one['name']}.deb\nSize: 1\nSHA256: {'0' * 64}\n") for one in offered
        )
        (folder / "Packages").write_text("\n".join(entries))
        (folder / "Release").write_text(f"Origin: {origin}\nLabel: {origin}\nArchitectures: amd64\n")
        lines.append(f"deb [trusted=yes] file:{folder} ./\n")
    (root / "etc/apt/sources.list").write_text("".join(lines))
    host = AptHost(root, (*every, *stubs))
    command = ["apt-get", "-qq", "update"]
    subprocess.run(
        command, env={"PATH": "/usr/bin:/bin", **host.environment}, check=True, capture_output=True
    )
    return host
