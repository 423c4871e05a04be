"""NVML's status: whether the driver's library and its kernel module have the same version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.facts.base import Fact, LocalHost


@dataclass(frozen=True)
class Nvml:
    """The response of NVML.

    Args:
        driver: the driver's version.
        gpus: the names of the GPUs, in NVML's order.
        error: the reason for a failure, such as ``Driver/library version mismatch``; empty if none.
    """

    driver: str | None = None
    gpus: tuple[str, ...] = ()
    error: str = ""


def ask_nvml(pynvml: Any = None) -> Nvml:
    """Query NVML.

    Args:
        pynvml: the module of nvidia-ml-py, or a replacement for it.
    """
    from agent.facts.nvml_library import NvmlError, NvmlSession

    try:
        with NvmlSession(pynvml) as session:
            return Nvml(session.driver, tuple(gpu.name for gpu in session.gpus))
    except NvmlError as error:
        return Nvml(error=error.message)


NVML: Fact[Nvml | None] = Fact(
    "nvml", "libnvidia-ml, by nvidia-ml-py", lambda host: ask_nvml() if isinstance(host, LocalHost) else None
)
