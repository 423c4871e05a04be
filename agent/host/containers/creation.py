"""Translates a container's spec for the engine (Docker Engine API, "Create a container")."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from agent.core.secrets import MASK
from agent.host.containers.spec import AMD_DEVICE_PATHS, SECRETS_TARGET, GpuAccess

if TYPE_CHECKING:
    from pathlib import Path

    from agent.host.containers.spec import ContainerSpec

RUN_LABEL = "vcagent.run"
IMAGE_LABEL = "vcagent.image"
PROXIES_LABEL = "vcagent.proxies"
PURPOSE_LABEL = "vcagent.purpose"
SPEC_LABEL = "vcagent.spec"
KEEP_LABEL = "vcagent.keep"

_NVIDIA_RUNTIME = "nvidia"


def container_name(run_id: str, purpose: str) -> str:
    """Return the name of a run's container; it differs for another run."""
    return f"vcagent-{run_id}-{purpose}"


def fingerprint(spec: ContainerSpec) -> str:
    """Return a fingerprint of a spec: a container with the same fingerprint is reused.

    Secret values are not included, so the fingerprint reveals nothing about them.
    """
    config = engine_config(spec, run_id="", secrets_folder=None, masked=True)
    config["Labels"] = dict(spec.labels)
    config["SecretFiles"] = sorted(spec.secret_files)
    config["Keep"] = spec.keep
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:32]


def engine_config(
    spec: ContainerSpec, *, run_id: str, secrets_folder: Path | None, masked: bool = False
) -> dict[str, Any]:
    """Return the engine's configuration for a container.

    Args:
        spec: the requested container.
        run_id: the run it belongs to.
        secrets_folder: the host's folder of its secret files; None if it has none.
        masked: True to leave out the values of secret variables, for a record.
    """
    environment = dict(spec.environment)
    environment |= dict.fromkeys(spec.secret_environment, MASK) if masked else spec.secret_environment
    names = spec.gpus if isinstance(spec.gpus, str) else ",".join(spec.gpus)
    if spec.gpu_access is GpuAccess.RUNTIME and spec.gpus != "none":
        environment["NVIDIA_VISIBLE_DEVICES"] = names
    if spec.gpu_access is GpuAccess.AMD and spec.gpus not in ("none", "all"):
        environment["ROCR_VISIBLE_DEVICES"] = names
    config: dict[str, Any] = {
        "Image": spec.image,
        "Env": [f"{name}={value}" for name, value in sorted(environment.items())],
        "HostConfig": _host_config(spec, secrets_folder),
        "Labels": {**spec.labels, RUN_LABEL: run_id, PURPOSE_LABEL: spec.purpose},
        "ExposedPorts": {f"{port.container}/{port.protocol}": {} for port in spec.ports},
        "User": spec.user,
        "WorkingDir": spec.workdir,
        "Hostname": spec.hostname,
    }
    if run_id:
        config["Labels"][SPEC_LABEL] = fingerprint(spec)
    if spec.keep:
        config["Labels"][KEEP_LABEL] = "true"
    if spec.command is not None:
        config["Cmd"] = list(spec.command)
    if spec.entrypoint is not None:
        config["Entrypoint"] = list(spec.entrypoint) or [""]
    return {key: value for key, value in config.items() if value not in ("", {}, [])}


def _host_config(spec: ContainerSpec, secrets_folder: Path | None) -> dict[str, Any]:
    mounts = [_bind(mount.source, mount.target, read_only=mount.read_only) for mount in spec.mounts]
    if secrets_folder:
        mounts.append(_bind(secrets_folder, SECRETS_TARGET, read_only=True))
    ports: dict[str, list[dict[str, str]]] = {}
    for port in spec.ports:
        offered = {"HostIp": port.address, "HostPort": "" if port.host is None else str(port.host)}
        ports.setdefault(f"{port.container}/{port.protocol}", []).append(offered)
    config: dict[str, Any] = {
        "Mounts": mounts,
        "PortBindings": ports,
        "DeviceRequests": _device_requests(spec),
        "Devices": _devices(spec),
        "Runtime": spec.runtime or _implied_runtime(spec),
        "ShmSize": spec.shm_size_bytes,
        "IpcMode": spec.ipc,
        "Ulimits": [
            {"Name": name, "Soft": limit.soft, "Hard": limit.hard}
            for name, limit in sorted(spec.ulimits.items())
        ],
        "GroupAdd": list(spec.groups),
        "NetworkMode": spec.network,
        "CapAdd": list(spec.cap_add),
        "SecurityOpt": list(spec.security_opt),
        "Privileged": spec.privileged,
        "Init": spec.init or None,
    }
    return {key: value for key, value in config.items() if value not in ("", {}, [], None, False)}


def _bind(source: Path, target: str, *, read_only: bool) -> dict[str, Any]:
    # A mount, not a "bind": the engine refuses a missing source instead of creating a folder.
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}


def _device_requests(spec: ContainerSpec) -> list[dict[str, Any]]:
    if spec.gpus == "none" or spec.gpu_access in (GpuAccess.RUNTIME, GpuAccess.AMD):
        return []
    if spec.gpu_access is GpuAccess.CDI:
        names = ("all",) if spec.gpus == "all" else spec.gpus
        return [{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={name}" for name in names]}]
    request: dict[str, Any] = {"Driver": "", "Capabilities": [["gpu"]]}
    return [{**request, "Count": -1} if spec.gpus == "all" else {**request, "DeviceIDs": list(spec.gpus)}]


def _devices(spec: ContainerSpec) -> list[dict[str, str]]:
    if spec.gpus == "none" or spec.gpu_access is not GpuAccess.AMD:
        return []
    return [
        {"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"} for path in AMD_DEVICE_PATHS
    ]


def _implied_runtime(spec: ContainerSpec) -> str:
    return _NVIDIA_RUNTIME if spec.gpu_access is GpuAccess.RUNTIME and spec.gpus != "none" else ""
