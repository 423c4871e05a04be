"""CUDA toolkits below /usr/local and on the search path, each with its version."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from pathlib import Path

_FOLDER = "/usr/local"
_WHICH = ("sh", "-c", 'nvcc=$(command -v nvcc) && readlink -f "$nvcc"')


@dataclass(frozen=True)
class CudaToolkit:
    """An installed toolkit.

    Args:
        path: its folder, such as ``/usr/local/cuda-12.4``.
        version: its version, such as ``12.4.0``.
        complete: True if its compiler exists: an interrupted installation does not have one.
    """

    path: str
    version: str
    complete: bool = True


def toolkit_version(text: str | None) -> str | None:
    """Return the version in a toolkit's ``version.json``, or None if the file is incomplete."""
    try:
        version = json.loads(text or "")["cuda"]["version"]
    except (ValueError, KeyError, TypeError):
        return None
    return version if isinstance(version, str) and re.fullmatch(r"\d+\.\d+(\.\d+)?", version) else None


def cuda_toolkit(path: Path) -> Fact[CudaToolkit | None]:
    """Return the fact of the toolkit in a folder; None if there is none or its version is unknown."""
    source = f"{path}/version.json"
    return Fact(f"cuda_toolkit[{path}]", source, lambda host: _toolkit(host, str(path)))


def _toolkit(host: Host, path: str) -> CudaToolkit | None:
    version = toolkit_version(host.text(f"{path}/version.json"))
    return CudaToolkit(path, version, "nvcc" in host.names(f"{path}/bin")) if version else None


def _read(host: Host) -> tuple[CudaToolkit, ...]:
    folders = [f"{_FOLDER}/{name}" for name in host.names(_FOLDER) if re.fullmatch(r"cuda-\d+\.\d+", name)]
    on_path = re.fullmatch(r"(/.+)/bin/nvcc", (host.output(_WHICH) or "").strip())
    if on_path and on_path[1] not in folders:
        folders.append(on_path[1])
    found = (_toolkit(host, folder) or _told_by_compiler(host, folder) for folder in folders)
    return tuple(toolkit for toolkit in found if toolkit)


def _told_by_compiler(host: Host, path: str) -> CudaToolkit | None:
    """Return a toolkit from single packages, which do not include a ``version.json``."""
    told = host.output([f"{path}/bin/nvcc", "--version"]) or ""
    version = re.search(r"\bV(\d+\.\d+\.\d+)\b", told)
    return CudaToolkit(path, version[1]) if version else None


CUDA_TOOLKITS: Fact[tuple[CudaToolkit, ...]] = Fact(
    "cuda_toolkits", f"{_FOLDER}/cuda-*/version.json, nvcc --version", _read
)
