"""CUDA toolkits below /usr/local, each with its version."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from agent.facts.base import Fact, Host

__all__ = ["CUDA_TOOLKITS", "CudaToolkit", "toolkit_version"]

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


def _read(host: Host) -> tuple[CudaToolkit, ...]:
    found = []
    for name in host.names(_FOLDER):
        path = f"{_FOLDER}/{name}"
        if re.fullmatch(r"cuda-\d+\.\d+", name) and (
            version := toolkit_version(host.text(f"{path}/version.json"))
        ):
            found.append(CudaToolkit(path, version, "nvcc" in host.names(f"{path}/bin")))
    return tuple(found)


CUDA_TOOLKITS: Fact[tuple[CudaToolkit, ...]] = Fact("cuda_toolkits", f"{_FOLDER}/cuda-*/version.json", _read)
