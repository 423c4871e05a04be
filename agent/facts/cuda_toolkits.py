"""CUDA toolkits below /usr/local, each with its version."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CUDA_TOOLKITS", "CudaToolkit", "cuda_toolkit", "toolkit_version"]

_FOLDER = "/usr/local"


@dataclass(frozen=True)
class CudaToolkit:
    """A toolkit that is installed.

    Args:
        path: its folder, such as ``/usr/local/cuda-12.4``.
        version: its version, such as ``12.4.0``.
        complete: whether its compiler is there: an installation that was cut short has none.
    """

    path: str
    version: str
    complete: bool = True


def toolkit_version(text: str | None) -> str | None:
    """The version in a toolkit's ``version.json``; None where the file is cut or says nothing."""
    try:
        version = json.loads(text or "")["cuda"]["version"]
    except (ValueError, KeyError, TypeError):
        return None
    return version if isinstance(version, str) and re.fullmatch(r"\d+\.\d+(\.\d+)?", version) else None


def cuda_toolkit(path: Path) -> Fact[CudaToolkit | None]:
    """The toolkit in a folder; None where there is none, or where it does not tell its version."""
    source = f"{path}/version.json"
    return Fact(f"cuda_toolkit[{path}]", source, lambda host: _toolkit(host, str(path)))


def _toolkit(host: Host, path: str) -> CudaToolkit | None:
    version = toolkit_version(host.text(f"{path}/version.json"))
    return CudaToolkit(path, version, "nvcc" in host.names(f"{path}/bin")) if version else None


def _read(host: Host) -> tuple[CudaToolkit, ...]:
    names = (name for name in host.names(_FOLDER) if re.fullmatch(r"cuda-\d+\.\d+", name))
    found = (_toolkit(host, f"{_FOLDER}/{name}") for name in names)
    return tuple(toolkit for toolkit in found if toolkit)


CUDA_TOOLKITS: Fact[tuple[CudaToolkit, ...]] = Fact("cuda_toolkits", f"{_FOLDER}/cuda-*/version.json", _read)
