"""Single files and folders, as facts: a plan that depends on one is still a function of facts."""

from __future__ import annotations

from pathlib import Path

from agent.core.safe_files import distrust_file
from agent.facts.base import Fact, Host


def text_of(path: Path) -> Fact[str | None]:
    """Return the fact of a file's text; None if it cannot be read."""
    return Fact(f"text[{path}]", str(path), lambda host: host.text(str(path)))


def exists(path: Path) -> Fact[bool]:
    """Return the fact of whether a path exists: file, folder or link."""
    return Fact(f"exists[{path}]", str(path), lambda host: path.name in host.names(str(path.parent)))


def file_stamp(path: Path) -> Fact[str]:
    """Return the fact of a file's size in bytes and change time, links followed: ``12 1700000000``."""
    command = ["stat", "--dereference", "--format=%s %Y", "--", str(path)]
    return Fact(f"file_stamp[{path}]", f"stat {path}", lambda host: (host.output(command) or "").strip())


def distrust(path: Path) -> Fact[str]:
    """Return the fact of why root must not trust a file; empty if it may, or if the agent is not root."""
    return Fact(f"distrust[{path}]", f"owner and mode of {path}", lambda _: distrust_file(path))


def names_in(folder: Path) -> Fact[tuple[str, ...]]:
    """Return the fact of the names in a folder; none if it does not exist."""
    return Fact(f"names_in[{folder}]", str(folder), lambda host: tuple(host.names(str(folder))))


def link_target(path: Path) -> Fact[Path | None]:
    """Return the fact of a symbolic link's target; None if there is no link."""

    def read(host: Host) -> Path | None:
        target = (host.output(["readlink", "--", str(path)]) or "").strip()
        return Path(target) if target else None

    return Fact(f"link_target[{path}]", f"readlink {path}", read)
