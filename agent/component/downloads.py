"""Downloads of a component's steps, which a bundle brings to a host without a network."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from agent.core.errors import HostError, LiftedBy
from agent.facts.bundle import bundle_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from agent.facts import Facts


@dataclass(frozen=True)
class Fetching:
    """Resources for fetching downloads.

    Args:
        folder: the folder of the bundle.
        scratch: a temporary folder, shared by all downloads of one bundle.
        facts: the host that the bundle is for.
        wheels: a folder of wheels that replaces the package index.
        repositories: a file with the repositories of the bundle's platform; by default those of this host, if
            it has the same distribution, or with apt the distribution's own servers.
        say: shows what happens.
    """

    folder: Path
    scratch: Path
    facts: Facts
    wheels: Path | None = None
    repositories: Path | None = None
    say: Callable[[str], None] = lambda _text: None


@dataclass(frozen=True)
class Download:
    """Something that steps download.

    Args:
        kind: its kind, such as ``wheel`` or ``deb``.
        names: its parts, as a profile writes them, such as requirements or packages.
        fetch: puts all parts, with everything that they need, into the folder of a bundle.
    """

    kind: str
    names: tuple[str, ...]
    fetch: Callable[[Fetching], None]


class Ended(NamedTuple):
    """The result of a program.

    Args:
        failed: True if it failed or could not be started.
        output: its standard output.
        errors: its standard error, or the reason that it could not be started.
    """

    failed: bool
    output: str
    errors: str


def run_captured(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Ended:
    """Run a program with its output captured and without input.

    Args:
        command: the program and its arguments.
        environment: variables in addition to those of this process.
    """
    try:
        done = subprocess.run(
            list(command),
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        return Ended(failed=True, output="", errors=str(error))
    return Ended(bool(done.returncode), done.stdout, done.stderr)


def not_carried(what: str, remedy: str = "") -> HostError:
    """Return the refusal of a download that bundles do not support."""
    return HostError(
        f"a bundle cannot carry {what} yet",
        remedy=remedy
        or "bring it to the host yourself, and leave this element out of the bundle: --scenarios=-NAME",
        lifted_by=LiftedBy.NOTHING,
    )


def lacking(downloads: Iterable[Download], facts: Facts) -> HostError | None:
    """Return the refusal of downloads that the bundle of a host does not have, or None.

    Without a bundle nothing is missing: the steps download it.
    """
    bundle = bundle_of(facts)
    if bundle is None:
        return None
    missing = [
        f"{one.kind} {name}"
        for one in downloads
        for name in one.names
        if (one.kind, name) not in bundle.contents
    ]
    if not missing:
        return None
    return HostError(
        f"the bundle {bundle.folder} lacks {', '.join(missing)}",
        remedy=f"make it again from this profile: vcagent bundle --profile … --platform {bundle.platform}",
        lifted_by=LiftedBy.NOTHING,
    )
