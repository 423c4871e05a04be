"""The description of a container: its image, GPUs, limits, and access to the host."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from agent.core.errors import ProfileError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SECRETS_TARGET = "/run/vcagent-secrets"
"""The folder inside a container where its secret files are."""

_PURPOSE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class GpuAccess(enum.Enum):
    """Ways to request GPUs from the engine."""

    DEVICE_REQUEST = "device_request"
    """Like ``docker run --gpus``; needs NVIDIA's container toolkit."""

    CDI = "cdi"
    """By the names of a CDI specification, ``nvidia.com/gpu=0``; needs Docker 25 and ``nvidia-ctk cdi``."""

    RUNTIME = "runtime"
    """By the variable ``NVIDIA_VISIBLE_DEVICES`` and the runtime ``nvidia``."""

    AMD = "amd"
    """AMD's: the devices ``/dev/kfd`` and ``/dev/dri``, and ``ROCR_VISIBLE_DEVICES`` for some of them."""


@dataclass(frozen=True)
class Ulimit:
    """A limit of the container's processes (setrlimit(2)); -1 for none."""

    soft: int
    hard: int


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host that the container sees.

    Args:
        source: its path on the engine's host; must exist.
        target: its path in the container.
        read_only: True if the container may not write there.
    """

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Port:
    """A published port of the container.

    Args:
        container: its number inside.
        host: its number on the host; None for a free one.
        address: the host's address for the published port.
        protocol: ``tcp`` or ``udp``.
    """

    container: int
    host: int | None = None
    address: str = "127.0.0.1"
    protocol: Literal["tcp", "udp"] = "tcp"


AMD_DEVICE_PATHS = ("/dev/kfd", "/dev/dri")
"""The devices of AMD's GPUs (ROCm, "Running ROCm Docker containers")."""

NVIDIA_ULIMITS: Mapping[str, Ulimit] = {"memlock": Ulimit(-1, -1), "stack": Ulimit(67_108_864, 67_108_864)}
"""Limits that NVIDIA's images request when they start (frameworks' user guide, "--ulimit memlock=-1 --ulimit
stack=67108864")."""


@dataclass(frozen=True)
class ContainerSpec:
    """A requested container.

    Args:
        image: a reference such as ``nvcr.io/nvidia/mlperf/inference:v4.1`` or an image's id; must exist
            (``ContainerEngine.ensure_image``).
        purpose: its purpose; unique within the run, a part of its name.
        command: the command of its first process; by default it waits for commands. None for the image's own.
        entrypoint: the program that receives the command; None for the image's own, empty for none.
        init: True for a small init as its first process (``docker run --init``), which reaps orphans.
        gpus: ``none``, ``all``, or indices or UUIDs.
        gpu_access: the way to request them.
        runtime: the OCI runtime's name; empty for the engine's default, or for what ``gpu_access`` needs.
        shm_size_bytes: the size of /dev/shm; None for the engine's default (64 MiB).
        ipc: ``host``, ``private``, ``shareable``, …; empty for the engine's default.
        ulimits: limits by name. Without CAP_SYS_RESOURCE the engine refuses NVIDIA's: then give none.
        mounts: files and folders of the host that it sees.
        user: ``uid:gid`` or a name that the image knows; empty for the image's own.
        groups: further groups, by number or by a name that the image knows.
        environment: variables.
        secret_environment: variables whose values are masked everywhere; they are in no command line, but
            ``docker inspect`` shows them to users of the engine. Prefer ``secret_files``, or ``run``'s.
        secret_files: contents by file name; the files are in ``SECRETS_TARGET``, in memory, readable by
            the container's user.
        network: ``none``, ``host``, ``bridge``, or a network's name; empty for the engine's default.
        ports: its published ports.
        workdir: the working directory of its commands; empty for the image's own.
        hostname: its name for itself; empty for the engine's choice.
        cap_add: capabilities, such as ``SYS_ADMIN``.
        security_opt: such as ``seccomp=unconfined``.
        privileged: True for all privileges.
        labels: further labels.
        keep: True to keep it after the run.

    Raises:
        ProfileError: if it contradicts itself.
    """

    image: str
    purpose: str
    command: tuple[str, ...] | None = ("sleep", "infinity")
    entrypoint: tuple[str, ...] | None = None
    init: bool = False
    gpus: Literal["none", "all"] | tuple[str, ...] = "none"
    gpu_access: GpuAccess = GpuAccess.DEVICE_REQUEST
    runtime: str = ""
    shm_size_bytes: int | None = None
    ipc: str = ""
    ulimits: Mapping[str, Ulimit] = field(default_factory=lambda: dict(NVIDIA_ULIMITS))
    mounts: tuple[Mount, ...] = ()
    user: str = ""
    groups: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    secret_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_files: Mapping[str, str] = field(default_factory=dict, repr=False)
    network: str = ""
    ports: tuple[Port, ...] = ()
    workdir: str = ""
    hostname: str = ""
    cap_add: tuple[str, ...] = ()
    security_opt: tuple[str, ...] = ()
    privileged: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    keep: bool = False

    def __post_init__(self) -> None:
        """Refuse a spec that no engine can use."""
        if not self.image:
            raise ProfileError(f"the container {self.purpose} has no image", remedy="name one")
        if not _PURPOSE.fullmatch(self.purpose):
            raise ProfileError(
                f"{self.purpose!r} cannot be part of a container's name",
                remedy="use letters, digits, dots, dashes and underscores",
            )
        if self.gpus == ():
            raise ProfileError(
                f"the container {self.purpose} is given an empty list of GPUs",
                remedy="name some, or say none or all",
            )
        for name in self.secret_files:
            if "/" in name or name in {"", ".", ".."}:
                raise ProfileError(f"{name!r} is not a file name", remedy="give the secret a plain name")
        both = self.environment.keys() & self.secret_environment.keys()
        if both:
            raise ProfileError(
                f"{', '.join(sorted(both))}: a variable cannot be both secret and not",
                remedy="leave it among the secret ones",
            )
