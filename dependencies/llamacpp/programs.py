"""Facts about llama.cpp's programs: the build that each reports, and the tools to build them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host
from parsers.llamacpp.build import Build, build_of

if TYPE_CHECKING:
    from pathlib import Path

UNTOLD = Build(0, "untold")
"""The build of a program that runs but cannot report it: llama-bench of 2024 reports it with its results."""

_TIMEOUT_S = 60
_NO_VERSION = "invalid parameter for argument: --version"
# The version goes to standard error. llama-quantize has no --version: it prints its build before it fails to
# read a file that is not a model.
_QUESTION = """\
"$0" --version 2>&1
case "$0" in *-quantize) "$0" /dev/null /dev/zero Q8_0 2>&1;; esac
true
"""


def llamacpp_build(program: Path) -> Fact[Build | None]:
    """Return the fact of the build that a program reports; None if it is missing or does not run."""
    command = ["sh", "-c", _QUESTION, str(program)]

    def ask(host: Host) -> Build | None:
        said = host.output(command, timeout_s=_TIMEOUT_S, hang_is_error=True) or ""
        return build_of(said) or (UNTOLD if _NO_VERSION in said else None)

    return Fact(f"llamacpp_build[{program}]", f"{program} --version", ask)


def programs_stamp(folder: Path) -> Fact[str]:
    """Return the fact of each file's name, size and modification time in a programs folder; empty if none."""
    command = ["find", f"{folder}/", "-type", "f", "-printf", "%P %s %T@\\n"]
    return Fact(
        f"programs_stamp[{folder}]",
        f"find {folder}/ -type f",
        lambda host: "\n".join(sorted((host.output(command) or "").splitlines())),
    )


def have_changed(originals: str, copies: str) -> bool:
    """Return True if a copied file has changed since: same name, but another size or second.

    Args:
        originals: the stamp of the folder that was copied from, including its subfolders.
        copies: the stamp of the copy.
    """

    def files(stamp: str) -> set[tuple[str, str, str]]:
        lines = (line.rpartition("/")[2].rsplit(" ", 2) for line in stamp.splitlines())
        return {(name, size, changed.partition(".")[0]) for name, size, changed in lines}

    there = files(originals)
    names = {name for name, _, _ in there}
    return any(file[0] in names and file not in there for file in files(copies))


def _first_line(host: Host, *names: str) -> str | None:
    for name in names:
        if lines := (host.output([name, "--version"]) or "").splitlines():
            return f"{name}: {lines[0]}"
    return None


CMAKE: Fact[str | None] = Fact("cmake", "cmake --version", lambda host: _first_line(host, "cmake"))
CXX: Fact[str | None] = Fact("cxx", "c++ --version", lambda host: _first_line(host, "c++", "g++", "clang++"))
GENERATOR: Fact[str | None] = Fact(
    "cmake_generator",
    "ninja --version, make --version",
    lambda host: next(
        (
            name
            for program, name in (("ninja", "Ninja"), ("make", "Unix Makefiles"))
            if host.output([program, "--version"]) is not None
        ),
        None,
    ),
)
"""The generator for CMake: Ninja if installed, otherwise make; None if neither is."""
