"""Fetches wheels for the Python of another host."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from agent.component.downloads import run_captured
from agent.component.fetching_environment import pip_environment
from agent.core.counts import count_of
from agent.core.errors import HostError, LiftedBy
from agent.core.safe_files import make_folder
from agent.facts.bundle import WHEELS
from agent.facts.linux import GLIBC
from dependencies.python.pip import marker_variables, masked, pip_remedy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.component.downloads import Fetching
    from agent.facts.python import PythonInterpreter

_DOWNLOAD = """\
import json, sys
from pip._vendor.packaging import markers
from pip._internal.cli.main import main
here = markers.default_environment
there = json.loads(sys.argv[1])
markers.default_environment = lambda: {**here(), **there}
sys.exit(main(sys.argv[2:]))
"""
"""``pip download`` with the markers of the other host.

With ``--python-version`` pip chooses the other Python's wheels, but it judges markers by the Python that it
runs with (pip's documentation of ``pip download``).
"""

_LEGACY_TAGS = {"2.17": "manylinux2014", "2.12": "manylinux2010", "2.5": "manylinux1"}
_OLDEST_GLIBC = 5
"""The oldest glibc 2 that wheels are tagged for (PEP 600)."""


def platform_tags(machine: str, glibc: str) -> list[str]:
    """Return the platform tags of the wheels that a host can use, newest first (PEP 600).

    Args:
        machine: its processor, as ``uname -m`` prints it.
        glibc: the version of its C library, such as 2.36.
    """
    tags = []
    for minor in range(int(glibc.split(".")[1]), _OLDEST_GLIBC - 1, -1):
        tags.append(f"manylinux_2_{minor}_{machine}")
        if legacy := _LEGACY_TAGS.get(f"2.{minor}"):
            tags.append(f"{legacy}_{machine}")
    return [*tags, f"linux_{machine}"]


def fetch_wheels(
    requirements: Sequence[str], python: PythonInterpreter, fetching: Fetching, *, no_deps: bool
) -> None:
    """Put the wheels of requirements into a bundle.

    Args:
        requirements: requirements in the form of PEP 508, whose markers hold on the other host.
        python: the Python of the other host.
        fetching: the bundle.
        no_deps: whether the list is complete.

    Raises:
        HostError: if a requirement has no wheel for that Python, or the index is not reached.
    """
    folder = fetching.folder / WHEELS
    make_folder(folder)
    version = ".".join(python.version.split(".")[:2])
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    options += [f"--dest={folder}", "--only-binary=:all:", "--implementation=cp"]
    options += [f"--python-version={version}"]
    glibc = fetching.facts[GLIBC] or ""
    options += [f"--platform={tag}" for tag in platform_tags(python.machine, glibc)]
    if no_deps:
        options.append("--no-deps")
    if fetching.wheels:
        options += ["--no-index", f"--find-links={fetching.wheels.expanduser().absolute()}"]
    fetching.say(
        f"wheels of {count_of(len(requirements), 'requirement')} for Python {version} on {python.machine}"
    )
    there = json.dumps(marker_variables(python.version, python.machine))
    done = run_captured(
        # A requirement may have a marker, which pip takes from a file or from one argument.
        [sys.executable, "-I", "-c", _DOWNLOAD, there, "download", *options, *requirements],
        pip_environment(os.environ),
    )
    if done.failed:
        lines = done.errors.strip().splitlines()
        raise HostError(
            f"the wheels for Python {version} on {python.machine} cannot be fetched",
            details=tuple(masked(line) for line in lines[-6:]),
            remedy=pip_remedy(done.errors)
            or "build the missing wheels on such a host (pip wheel), and give their folder with --wheels",
            lifted_by=LiftedBy.NOTHING,
        )
