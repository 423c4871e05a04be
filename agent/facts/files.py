"""Single files and folders, as facts: a plan that depends on one is still a function of facts."""

from __future__ import annotations

from pathlib import Path

from agent.core.safe_files import distrust_file
from agent.facts.base import Fact, Host


def text_of(path: Path) -> Fact[str | None]:
    """A file's text; None where it cannot be read."""
    return Fact(f"text[{path}]", str(path), lambda host: host.text(str(path)))


def exists(path: Path) -> Fact[bool]:
    """Whether something of that name is there: file, folder or link."""
    return Fact(f"exists[{path}]", str(path), lambda host: path.name in host.names(str(path.parent)))


def file_stamp(path: Path) -> Fact[str]:
    """Size in bytes and time of the last change of a file, links followed: ``12 1700000000``; or nothing."""
    command = ["stat", "--dereference", "--format=%s %Y", "--", str(path)]
    return Fact(f"file_stamp[{path}]", f"stat {path}", lambda host: (host.output(command) or "").strip())


def distrust(path: Path) -> Fact[str]:
    """Return the fact of why root must not believe a file; empty if it may, or if the agent is not root."""
    return Fact(f"distrust[{path}]", f"owner and mode of {path}", lambda _: distrust_file(path))


def names_in(folder: Path) -> Fact[tuple[str, ...]]:
    """The names in a folder; none where it is not there."""
    return Fact(f"names_in[{folder}]", str(folder), lambda host: tuple(host.names(str(folder))))


def link_target(path: Path) -> Fact[Path | None]:
    """Where a symbolic link points; None where there is no link."""

    def read(host: Host) -> Path | None:
        target = (host.output(["readlink", "--", str(path)]) or "").strip()
        return Path(target) if target else None

    return Fact(f"link_target[{path}]", f"readlink {path}", read)
