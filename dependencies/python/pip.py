"""Runs pip: only in the intended environment, and without showing credentials."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from agent.core.secrets import Secrets
from agent.facts import Fact
from dependencies.sources.git_credentials import GitAddress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.facts import Host

_PYPI = "https://pypi.org/simple/"
_INDEX_SETTINGS = ("index-url", "extra-index-url", "no-index")

_UNREACHABLE = (
    r"NewConnectionError|NameResolutionError|Temporary failure in name resolution|ProxyError"
    r"|Connection refused|ConnectTimeout|Read timed out|Network is unreachable|SSLError|Max retries exceeded"
)
_REMEDIES = (
    (
        _UNREACHABLE,
        "no package index is reached: set HTTPS_PROXY or PIP_INDEX_URL, or give wheelsDir, some wheels",
    ),
    (r"No space left on device", "free some space, or choose another folder for packages"),
    (
        r"No matching distribution found for (\S+)",
        "no wheel of {0} fits this Python and platform; see pip index versions, or add it to wheelsDir",
    ),
    (
        r"do not match the hashes",
        "the download is not what was pinned: see whether the index is a mirror that differs",
    ),
    (r"conflicting dependencies|ResolutionImpossible", "correct the requirements: they exclude each other"),
)


def split_requirements(text: str) -> list[str]:
    """Return the requirements in a text: separated by lines, or by a comma before a name."""
    parts = re.split(r"\n|,(?=\s*[A-Za-z])(?![^\[]*\])", text)
    return [part.strip() for part in parts if part.strip() and not part.strip().startswith("#")]


def pip_remedy(output: str) -> str | None:
    """Return the remedy for pip's output; None if it is unknown."""
    for pattern, remedy in _REMEDIES:
        if match := re.search(pattern, output):
            return remedy.format(*match.groups())
    return None


def masked(requirement: str) -> str:
    """Return a requirement without the credentials of its address, for display and storage."""
    name, at, address = requirement.partition("@")
    return f"{name}{at}{Secrets().mask(address)}"  # a name is not an address: tiktoken==0.7.0


def split_git_credentials(requirements: Iterable[str]) -> tuple[list[str], list[GitAddress]]:
    """Remove the credentials from requirements of git repositories: pip passes addresses on to git."""
    cleaned, addresses = [], []
    for number, text in enumerate(requirements):
        url = Requirement(text).url or ""
        address = GitAddress.parse(url.removeprefix("git+"), number)
        if url.startswith("git+") and address.env:
            addresses.append(address)
            cleaned.append(text.replace(url, f"git+{address.uri}"))
        else:
            cleaned.append(text)
    return cleaned, addresses


def only_from_folder(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables with which pip uses the folder on its command line, and no index or folder besides."""
    places = ("INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "CONSTRAINT", "BUILD_CONSTRAINT")
    given = {name: "" for name in (f"PIP_{place}" for place in places) if name in environment}
    return {**given, "PIP_CONFIG_FILE": os.devnull}


def marker_variables(version: str, machine: str = "") -> dict[str, str]:
    """Return the variables of markers (PEP 508) that differ between Pythons and processors.

    Args:
        version: the version of the environment's Python.
        machine: its processor, as ``uname -m`` prints it; empty for this host's.
    """
    variables = {"python_full_version": version, "python_version": ".".join(version.split(".")[:2])}
    return {**variables, "platform_machine": machine} if machine else variables


def required_here(requirements: Iterable[str], version: str, machine: str = "") -> list[str]:
    """Return the requirements whose markers hold.

    Args:
        requirements: requirements in the form of PEP 508.
        version: the version of the environment's Python.
        machine: its processor, as ``uname -m`` prints it; empty for this host's.
    """
    environment = {name: str(value) for name, value in default_environment().items()}
    environment |= marker_variables(version, machine)

    def holds(requirement: Requirement) -> bool:
        return requirement.marker is None or requirement.marker.evaluate({**environment, "extra": ""})

    return [text for text in requirements if holds(Requirement(text))]


def unfulfilled(requirements: Iterable[str], version: str, distributions: Mapping[str, str]) -> list[str]:
    """Return the requirements that an environment does not fulfil.

    Args:
        requirements: requirements in the form of PEP 508; one whose marker does not hold is fulfilled.
        version: the version of the environment's Python.
        distributions: the versions of the installed packages, by name.
    """
    present = {canonicalize_name(name): found for name, found in distributions.items()}

    def fulfilled(requirement: Requirement) -> bool:
        found = present.get(canonicalize_name(requirement.name))
        return found is not None and requirement.specifier.contains(found, prereleases=True)

    here = required_here(requirements, version)
    return [masked(text) for text in here if not fulfilled(Requirement(text))]


def package_indexes(python: str) -> Fact[tuple[str, ...]]:
    """Return the fact of the package indexes that pip fetches from; empty if it uses none.

    Args:
        python: an interpreter; pip's settings are those of its user and of this environment.
    """

    def read(host: Host) -> tuple[str, ...]:
        told = host.output([python, "-I", "-m", "pip", "config", "list"], timeout_s=30) or ""
        values = {
            name: os.environ.get(f"PIP_{name.upper().replace('-', '_')}", "") for name in _INDEX_SETTINGS
        }
        for name in _INDEX_SETTINGS:
            found = dict(re.findall(rf"^(global|install)\.{name}='(.*)'$", told, re.MULTILINE))
            values[name] = values[name] or found.get("install") or found.get("global") or ""
        index, extra, none = values.values()
        if none.lower() in {"1", "true", "yes", "on"}:
            return ()
        return (index or _PYPI, *extra.replace("\\n", " ").split())

    return Fact(f"package_indexes[{python}]", "pip config list", read)


class PipProgress:
    """The progress in pip's output: ``n of m packages``; m grows while pip finds dependencies."""

    def __init__(self, wanted: int) -> None:
        self.total = wanted
        self.done = 0

    def read(self, line: str) -> str | None:
        """Return the message for a line of pip, or None if it has no news."""
        match = re.match(r"\s*(Collecting|Processing|Requirement already satisfied:|Downloading) (\S+)", line)
        if match and match.group(1) != "Downloading":
            self.done += 1
            self.total = max(self.total, self.done)
        if match:
            name = Path(match.group(2)).name
            return f"{self.done} of {self.total} packages: {match.group(1).split()[0].lower()} {name}"
        if built := re.match(r"\s*Building wheel for (\S+) \(.*?\): (started|still running)", line):
            return f"building {built.group(1)} from source" + (
                ", which goes on" if built.group(2) != "started" else ""
            )
        if line.startswith("Installing collected packages:"):
            return f"installing {line.count(',') + 1} packages"
        return None
