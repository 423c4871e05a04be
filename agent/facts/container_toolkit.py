"""NVIDIA's container toolkit and the CDI specifications of the host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.yaml_data import yaml_data
from agent.facts.base import Fact, Host
from agent.facts.docker import DAEMON_CONFIG, DOCKER_SERVER

if TYPE_CHECKING:
    from agent.facts.docker import DaemonConfig, DockerServer

CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
"""Folders in which engines search specifications (CDI specification, "Container Runtime Configuration")."""


@dataclass(frozen=True)
class CdiSpec:
    """A CDI specification (cncf-tags/container-device-interface, SPEC.md).

    Args:
        path: its file.
        kind: vendor and class, such as ``nvidia.com/gpu``.
        devices: the names of its devices, such as ``0`` and ``all``.
        driver: the version of the driver whose libraries it mounts; None if it does not name one.
    """

    path: str
    kind: str
    devices: tuple[str, ...] = ()
    driver: str | None = None


def toolkit_version(text: str | None) -> str | None:
    """Return the version in the output of ``nvidia-ctk --version``."""
    match = re.search(r"version\s+v?(\d+\.\d+\.\d+\S*)", text or "")
    return match.group(1) if match else None


def cdi_spec(path: str, text: str) -> CdiSpec | None:
    """Read a specification, YAML or JSON; return None if it is neither.

    The driver's version is part of a library's name, ``libcuda.so.550.54.15`` or ``libnvidia-ml.so.…``.
    """
    import yaml

    try:
        spec = yaml_data(text)
        kind = str(spec["kind"])
        devices = tuple(str(device["name"]) for device in spec.get("devices") or ())
    except (yaml.YAMLError, KeyError, TypeError, AttributeError):
        return None
    driver = re.search(r"lib(?:cuda|nvidia-ml)\.so\.(\d{3,}\.[\d.]*\d)", text)
    return CdiSpec(path, kind, devices, driver.group(1) if driver else None)


def nvidia_runtime_configured(config: DaemonConfig, server: DockerServer | None) -> bool | None:
    """Return True if Docker has the runtime ``nvidia``; None if neither engine nor daemon.json shows it."""
    if server is not None:
        return "nvidia" in server.runtimes
    if config.settings is None:
        return None
    return "nvidia" in (config.settings.get("runtimes") or {})


def _specs(host: Host) -> tuple[CdiSpec, ...]:
    paths = [
        f"{folder}/{name}"
        for folder in CDI_FOLDERS
        for name in host.names(folder)
        if name.endswith((".yaml", ".json"))
    ]
    specs = (cdi_spec(path, host.text(path) or "") for path in paths)
    return tuple(spec for spec in specs if spec)


def _runtime(host: Host) -> str | None:
    return (host.output(["sh", "-c", "command -v nvidia-container-runtime"]) or "").strip() or None


CONTAINER_TOOLKIT_VERSION: Fact[str | None] = Fact(
    "container_toolkit_version",
    "nvidia-ctk --version",
    lambda host: toolkit_version(host.output(["nvidia-ctk", "--version"])),
)
NVIDIA_RUNTIME: Fact[str | None] = Fact("nvidia_runtime", "command -v nvidia-container-runtime", _runtime)
NVIDIA_RUNTIME_CONFIGURED: Fact[bool | None] = Fact(
    "nvidia_runtime_configured",
    "docker info, /etc/docker/daemon.json",
    lambda host: nvidia_runtime_configured(DAEMON_CONFIG.read(host), DOCKER_SERVER.read(host)),
)
CDI_SPECS: Fact[tuple[CdiSpec, ...]] = Fact("cdi_specs", ", ".join(CDI_FOLDERS), _specs)
