"""Finds requirements that an index offers only as source, for one Python on one processor."""

from __future__ import annotations

import json
import os
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from agent.facts import Fact
from dependencies.python.pip import pip_environment, required_here

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agent.facts import Host
    from agent.facts.python import PythonInterpreter

_LIMIT_S = 60
_ASK = """\
import json, sys
from pip._internal.cli.cmdoptions import make_target_python
from pip._internal.commands import create_command

command = create_command("download")
options, _ = command.parse_args(["--quiet", *sys.argv[2:]])
found = {}
with command.main_context():
    session = command.get_default_session(options)
    finder = command._build_package_finder(options, session, make_target_python(options))
    for name in json.loads(sys.argv[1]):
        candidates = finder.find_all_candidates(name)
        found[name] = [[str(one.version), one.link.is_wheel] for one in candidates]
print(json.dumps(found))
"""
"""Asks pip itself, which knows the user's indexes and proxies and this host's tags; one page per name.

``pip index versions`` does not show which versions have a wheel, and ``pip download`` fetches them. A pip
without these internals prints nothing, and then no requirement is reported.
"""


def from_source(
    requirements: tuple[str, ...], python: PythonInterpreter, wheels_dir: Path | None
) -> Fact[tuple[str, ...]]:
    """Return the fact of the requirements that must be built from source; empty if unknown.

    Args:
        requirements: requirements in the form of PEP 508.
        python: the interpreter of the environment.
        wheels_dir: a folder that replaces the index.
    """
    wanted = [one for one in map(Requirement, required_here(requirements, python.version)) if not one.url]
    options = [f"--python-version={'.'.join(python.version.split('.')[:2])}", "--only-binary=:none:"]
    if wheels_dir:
        options += ["--no-index", f"--find-links={wheels_dir}"]

    def read(host: Host) -> tuple[str, ...]:
        names = json.dumps([one.name for one in wanted])
        command = [sys.executable, "-I", "-c", _ASK, names, *options]
        said = host.output(command, timeout_s=_LIMIT_S, env=pip_environment(os.environ))
        return sourced(wanted, json.loads(said)) if said else ()

    return Fact(f"from_source[{','.join(requirements)}]", "pip's own finder", read)


def sourced(wanted: Iterable[Requirement], offered: dict[str, list[tuple[str, bool]]]) -> tuple[str, ...]:
    """Return the requirements that only source distributions fulfil.

    Args:
        wanted: the requirements.
        offered: for each name, the version of each offered file, and whether it is a wheel.
    """

    def kinds(one: Requirement) -> set[bool]:
        return {wheel for version, wheel in offered[one.name] if one.specifier.contains(version)}

    return tuple(str(one) for one in wanted if kinds(one) == {False})


def build_packages(manager: str | None, python: PythonInterpreter) -> list[str]:
    """Return the distribution's packages of a C++ compiler and of an interpreter's headers, if missing.

    Args:
        manager: the package manager.
        python: the interpreter, which determines the missing parts.
    """
    major, minor = python.version.split(".")[:2]
    plain = PurePath(python.path).name in {"python", "python3"}
    devel = {
        "apt": f"python{major}.{minor}-dev",
        "zypper": "python3-devel" if plain else f"python{major}{minor}-devel",
    }.get(str(manager), "python3-devel" if plain else f"python{major}.{minor}-devel")
    compiler = "g++" if manager == "apt" else "gcc-c++"
    return [name for name, there in ((compiler, python.compiler), (devel, python.headers)) if not there]
