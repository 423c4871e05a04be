"""NVML, NVIDIA's management library; the only module that knows nvidia-ml-py, which may be absent."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from agent.facts.base import Fact, Host, LocalHost

__all__ = ["NVML", "Nvml", "ask_nvml"]


@dataclass(frozen=True)
class Nvml:
    """What NVML answers.

    Args:
        driver: the driver's version.
        gpus: the names of the GPUs, in NVML's order.
        error: why it does not answer, such as ``Driver/library version mismatch``; empty where it does.
    """

    driver: str | None = None
    gpus: tuple[str, ...] = ()
    error: str = ""


def ask_nvml(pynvml: Any) -> Nvml:
    """Ask NVML through nvidia-ml-py's module.

    Args:
        pynvml: the module ``pynvml`` of nvidia-ml-py.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Nvml(error=str(error))
    try:
        names = (
            pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))
            for index in range(pynvml.nvmlDeviceGetCount())
        )
        # Before nvidia-ml-py 12 names were bytes.
        gpus = tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names)
        driver = pynvml.nvmlSystemGetDriverVersion()
        return Nvml(driver.decode() if isinstance(driver, bytes) else str(driver), gpus)
    except pynvml.NVMLError as error:
        return Nvml(error=str(error))
    finally:
        pynvml.nvmlShutdown()


def _read(host: Host) -> Nvml | None:
    if not isinstance(host, LocalHost):
        return None
    try:
        pynvml = import_module("pynvml")
    except ImportError:
        return None
    return ask_nvml(pynvml)


NVML: Fact[Nvml | None] = Fact("nvml", "libnvidia-ml, by nvidia-ml-py", _read)
"""None where nvidia-ml-py is not installed: the extra ``nvidia`` brings it."""
