"""Finds requirements that an index offers only as source, or not at all, for one Python on one processor."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from agent.component.fetching_environment import pip_environment
from agent.facts import Fact
from dependencies.python.pip import required_here

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from agent.facts import Host
    from agent.facts.python import PythonInterpreter

_LIMIT_S = 180
"""An emulated host takes half a minute; an index that does not answer takes 20 s."""
_ASK = """\
import json, sys
from pip._internal.cli.cmdoptions import make_target_python
from pip._internal.commands import create_command
from pip._internal.models.target_python import TargetPython

command = create_command("download")
options, _ = command.parse_args(["--quiet", "--retries=0", "--timeout=5", *sys.argv[2:]])
found = {}
with command.main_context():
    session = command.get_default_session(options)
    finder = command._build_package_finder(options, session, make_target_python(options))
    usual = command._build_package_finder(options, session, TargetPython(py_version_info=(3, 12)), True)
    unknown = 0
    for name in json.loads(sys.argv[1]):
        candidates = finder.find_all_candidates(name)
        if candidates or usual.find_all_candidates(name):
            found[name] = [[str(one.version), one.link.is_wheel] for one in candidates]
            continue
        unknown += 1
        if unknown > 1:
            break
print(json.dumps(found))
"""
"""Asks pip itself, which knows the user's indexes and proxies and this host's tags; one page per name.

``pip index versions`` does not show which versions have a wheel, and ``pip download`` fetches them. A name
without any file, also for a usual Python, is unknown to the index, or the index does not answer. A pip
without these internals prints nothing. In both cases the requirement is not reported.
"""
_SHOWN = 5
"""The number of versions in an error."""


@dataclass(frozen=True)
class OfferedFiles:
    """What an index offers for one Python on one processor.

    Args:
        built: the requirements that must be built from source.
        missing: the requirements without any file, each with the newest versions that have one: a wheel, or
            as ``1.0 (source)`` only a source distribution.
    """

    built: tuple[str, ...] = ()
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


_answers: dict[tuple[str, ...], str] = {}
"""pip's answers during this process: each new plan would ask the index again."""


def offered_files(
    requirements: tuple[str, ...], python: PythonInterpreter, wheels_dir: Path | None
) -> Fact[OfferedFiles]:
    """Return the fact of the requirements that are built from source or have no file; empty if unknown.

    Args:
        requirements: requirements in the form of PEP 508.
        python: the interpreter of the environment.
        wheels_dir: a folder that replaces the index.
    """
    wanted = [one for one in map(Requirement, required_here(requirements, python.version)) if not one.url]
    options = [f"--python-version={'.'.join(python.version.split('.')[:2])}", "--only-binary=:none:"]
    if wheels_dir:
        options += ["--no-index", f"--find-links={wheels_dir}"]

    def read(host: Host) -> OfferedFiles:
        names = json.dumps([one.name for one in wanted])
        command = (sys.executable, "-I", "-c", _ASK, names, *options)
        environment = pip_environment(os.environ)
        # The files of a folder can change during a run.
        said = None if wheels_dir else _answers.get(command)
        said = said or host.output(command, timeout_s=_LIMIT_S, env=environment)
        if not said:
            return OfferedFiles()
        _answers[command] = said
        known = json.loads(said)
        return OfferedFiles(sourced(wanted, known), unoffered(wanted, known))

    return Fact(f"offered_files[{','.join(requirements)}]", "pip's own finder", read)


def sourced(
    wanted: Iterable[Requirement], offered: Mapping[str, Sequence[tuple[str, bool]]]
) -> tuple[str, ...]:
    """Return the requirements that only source distributions fulfil.

    Args:
        wanted: the requirements.
        offered: for each name, the version of each offered file, and whether it is a wheel.
    """

    def kinds(one: Requirement) -> set[bool]:
        files = offered.get(one.name, ())
        return {wheel for version, wheel in files if one.specifier.contains(version)}

    return tuple(str(one) for one in wanted if kinds(one) == {False})


def unoffered(
    wanted: Iterable[Requirement], offered: Mapping[str, Sequence[tuple[str, bool]]]
) -> dict[str, tuple[str, ...]]:
    """Return the requirements that no file fulfils, each with the newest versions that have a file.

    Args:
        wanted: the requirements.
        offered: for each known name, the version of each offered file, and whether it is a wheel.
    """
    return {
        str(one): _newest(offered[one.name])
        for one in wanted
        if one.name in offered
        and not any(one.specifier.contains(version, prereleases=True) for version, _ in offered[one.name])
    }


def _newest(files: Sequence[tuple[str, bool]]) -> tuple[str, ...]:
    wheels = [version for version, wheel in files if wheel]
    found = set()
    for version in wheels or [version for version, _ in files]:
        with suppress(InvalidVersion):
            found.add(Version(version))
    final = {version for version in found if not version.is_prerelease} or found
    return tuple(f"{one}{'' if wheels else ' (source)'}" for one in sorted(final, reverse=True)[:_SHOWN])


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
