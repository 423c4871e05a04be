"""Checks a wheel file before it is installed: its name, its platform, and the Python that it is for."""

from __future__ import annotations

import zipfile
import zlib
from email.parser import HeaderParser
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import compatible_tags, cpython_tags, platform_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from agent.core.errors import HostError, LiftedBy
from agent.facts.agent_paths import lift_of_path
from agent.facts.files import exists

if TYPE_CHECKING:
    from pathlib import Path

    from packaging.tags import Tag

    from agent.facts import Facts
    from agent.facts.python import PythonInterpreter

_SHOWN = 6
_MOST_BYTES = 1 << 20
"""Bytes of metadata that are read: a small file can hold gigabytes of them."""
_UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,  # an encrypted file; NotImplementedError: an unknown compression
    StopIteration,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
    InvalidSpecifier,
)
"""Errors of reading a wheel's metadata."""


def wheel_requirement(path: Path) -> str:
    """Return the requirement that installs a wheel file (PEP 508).

    Raises:
        ValueError: if the file's name is not that of a wheel.
    """
    try:
        name, *_ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise ValueError(
            f"{path.name} is not the name of a wheel: {error}; a wheel is called "
            "name-version-python-abi-platform.whl, such as engine-1.0-py3-none-any.whl: give it the name "
            "that it was built with"
        ) from error
    return f"{name} @ {path.absolute().as_uri()}"


def require_fit(path: Path, python: PythonInterpreter, facts: Facts) -> None:
    """Refuse a wheel that this Python on this host cannot install.

    Raises:
        HostError: if the file is missing or damaged, or is for another Python or platform.
    """
    if not facts[exists(path)]:
        raise HostError(
            f"the wheel {path} is not there", remedy="correct the path", lifted_by=lift_of_path(facts, path)
        )
    _, version, _, tags = parse_wheel_filename(path.name)
    if not tags & supported_tags(python):
        shown = sorted(map(str, tags))
        more = f" and {len(shown) - _SHOWN} others" if len(shown) > _SHOWN else ""
        raise HostError(
            f"the wheel {path.name} is for {', '.join(shown[:_SHOWN])}{more}; this is Python "
            f"{python.version} on {python.platform}",
            remedy="use the wheel for this Python and platform, or another interpreter: the parameter python",
            lifted_by=LiftedBy.NOTHING,
        )
    wanted = _requires_python(path)
    if wanted is not None and not wanted.contains(python.version, prereleases=True):
        raise HostError(
            f"the wheel {path.name} ({version}) needs Python {wanted}; {python.path} is {python.version}",
            remedy="choose another interpreter: the parameter python, such as python3.12",
            lifted_by=LiftedBy.NOTHING,
        )


def supported_tags(python: PythonInterpreter) -> frozenset[Tag]:
    """Return the tags of wheels that a CPython of this host installs (PEP 425)."""
    major, minor = (int(part) for part in python.version.split(".")[:2])
    platforms = list(platform_tags())
    own = f"cp{major}{minor}"
    return frozenset(
        (
            *cpython_tags((major, minor), abis=[own], platforms=platforms),
            *compatible_tags((major, minor), interpreter=own, platforms=platforms),
        )
    )


def _requires_python(path: Path) -> SpecifierSet | None:
    """Return the Pythons that the wheel's metadata allow; None for any.

    Raises:
        HostError: if the file is not a wheel.
    """
    try:
        with zipfile.ZipFile(path) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            with wheel.open(name) as file:
                text = file.read(_MOST_BYTES).decode("utf-8", "replace")
        found = HeaderParser().parsestr(text).get("Requires-Python")
        return SpecifierSet(found) if found else None
    except _UNREADABLE as error:
        raise HostError(
            f"{path} cannot be read as a wheel: {error or 'it has no metadata'}",
            remedy="fetch it again",
            lifted_by=LiftedBy.NOTHING,
        ) from error
