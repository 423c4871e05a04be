"""Simulates a command of the package manager before anything is changed."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_TIMEOUT_S = 120
_SHOWN = 12
"""Most lines of the package manager's refusal that are kept."""

_PRIORITY = 1001
"""A pin above 1000 also allows a downgrade (apt_preferences(5))."""

# apt reads preferences only from a regular file; the host's own preferences remain in force after ours.
_APT_SCRIPT = (
    "file=$(mktemp) || exit; trap 'rm -f \"$file\"' EXIT; "
    '{ printf "%s\\n" "$0"; cat /etc/apt/preferences 2>/dev/null; } >"$file"; '
    '"$@" --option=Dir::Etc::Preferences="$file" --simulate 2>&1 || echo "E: exit $?"'
)
_BUSY = r"already locked by \d+|another copy is running|[Ff]ailed to obtain .*lock|rpm transaction lock"
_ERASING = ("Removing", "Obsoleting", "Erasing")
_OLD_ROW = 3
"""Fields of a row of dnf 4 about a package that is replaced."""
_INSTALLING = ("Installing", "Upgrading", "Downgrading", "Reinstalling")


@dataclass(frozen=True)
class PackageSolution:
    """The changes that the package manager would make.

    Args:
        changes: versions that would be installed, by name without architecture; unchanged packages are left
            out.
        removed: names of packages that would be removed.
        problem: the lines of its refusal; empty if it finds a solution.
    """

    changes: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    problem: tuple[str, ...] = ()


def apt_preferences(pins: Mapping[str, str]) -> str:
    """Return preferences that make one version of each package the candidate, even an older one."""
    return "\n".join(
        f"Package: {name}\nPin: version {version}\nPin-Priority: {_PRIORITY}\n"
        for name, version in sorted(pins.items())
    )


def read_apt(text: str | None) -> PackageSolution:
    """Read ``apt-get --simulate``: ``Inst name [old] (new origin [architecture])``, ``Remv name [old]``."""
    if text is None:
        return PackageSolution(problem=("apt-get gave no answer",))
    lines = text.splitlines()
    if any(line.startswith("E: ") for line in lines):
        return PackageSolution(problem=_refusal(lines))
    changes = {
        match.group(1): match.group(2)
        for line in lines
        if (match := re.match(r"Inst ([^\s:]+)(?::\S+)? (?:\[[^\]]*\] )?\((\S+) ", line))
    }
    removed = [match.group(1) for line in lines if (match := re.match(r"(?:Remv|Purg) ([^\s:]+)", line))]
    return PackageSolution(changes, tuple(dict.fromkeys(removed)))


def _refusal(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines with the reasons: unmet dependencies, and errors."""
    told = [
        line.rstrip()
        for line in lines
        if re.match(r"E: (?!exit \d)|W: |\s+.*(?:Depends|Conflicts|Breaks|Recommends)\b|\s+but |N: ", line)
        or "is to be installed" in line
        or "is not " in line
    ]
    return tuple(told[:_SHOWN]) or tuple(line for line in lines if line.strip())[-_SHOWN:]


def apt_solution(command: Sequence[str], pins: Mapping[str, str]) -> Fact[PackageSolution]:
    """Return the fact of a simulated apt command with pinned packages; needs neither root nor the lock.

    Args:
        command: the command, such as ``apt-get install …``; ``--simulate`` is added.
        pins: the one version of each package that may be used.
    """
    asked = ["sh", "-c", _APT_SCRIPT, apt_preferences(pins), *command]

    def read(host: Host) -> PackageSolution:
        return read_apt(host.output(asked, timeout_s=_TIMEOUT_S, hang_is_error=True))

    return Fact(f"package_solution[{shlex.join(command)}]", "apt-get --simulate", read)


def read_dnf(text: str | None) -> PackageSolution:
    """Read the table that dnf shows before its question.

    A row begins with one blank: name, architecture, version, repository, size. If a name is long, the rest of
    its row is on the next line, indented further (dnf 4). A row of what is replaced is indented further, too:
    ``replacing name.architecture version`` in dnf 4, and in dnf 5 a whole row, even if the package only gets
    another version. While another process has dnf's lock the result is unknown:
    it is solved again when the lock is free.
    """
    if text is None:
        return PackageSolution(problem=("dnf gave no answer",))
    if re.search(_BUSY, text):
        return PackageSolution()
    if "Transaction Summary" not in text and "Nothing to do" not in text:
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        start = next((i for i, line in enumerate(lines) if re.match(r"Error|Problem|Failed to", line)), 0)
        return PackageSolution(problem=tuple(lines[start:][:_SHOWN]) or ("dnf gave no answer",))
    changes: dict[str, str] = {}
    removed: list[str] = []
    for title, fields in _rows(text):
        if fields[0] == "replacing":
            removed.append(fields[1] if len(fields) > _OLD_ROW else re.sub(r"\.[^.]+$", "", fields[1]))
        elif title in _ERASING:
            removed.append(fields[0])
        else:
            changes[fields[0]] = fields[2]
    return PackageSolution(changes, tuple(name for name in dict.fromkeys(removed) if name not in changes))


def _rows(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of dnf's table, each with its section's title; joins rows that are split in two."""
    title = pending = ""
    for line in text.splitlines():
        fields = line.split()
        if re.match(r"\S", line):
            title, pending = fields[0].rstrip(":"), ""
        elif not fields or title not in (*_INSTALLING, *_ERASING):
            continue
        elif pending:
            yield title, [pending, *fields]
            pending = ""
        elif len(fields) == 1:
            pending = fields[0]
        elif fields[0] == "replacing" or re.match(r" \S", line):
            yield title, fields


def dnf_solution(command: Sequence[str]) -> Fact[PackageSolution]:
    """Return the fact of a simulated dnf command: its question is answered with no."""
    asked = ["--assumeno" if word == "--assumeyes" else word for word in command]
    # dnf ends with 1 after the answer no.
    script = ["sh", "-c", '"$@" 2>&1 || :', "dnf", *asked]

    def read(host: Host) -> PackageSolution:
        return read_dnf(host.output(script, timeout_s=_TIMEOUT_S, hang_is_error=True))

    return Fact(f"package_solution[{shlex.join(command)}]", "dnf --assumeno", read)
