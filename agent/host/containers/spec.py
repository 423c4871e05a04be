"""What a container is to be: its image, its GPUs, its limits, what it sees of the host."""

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
    """How the engine is asked for GPUs."""

    DEVICE_REQUEST = "device_request"
    """As ``docker run --gpus`` does; needs NVIDIA's container toolkit."""

    CDI = "cdi"
    """By the names of a CDI specification, ``nvidia.com/gpu=0``; needs Docker 25 and ``nvidia-ctk cdi``."""

    RUNTIME = "runtime"
    """By the variable ``NVIDIA_VISIBLE_DEVICES`` and the runtime ``nvidia``."""


@dataclass(frozen=True)
class Ulimit:
    """A limit of the container's processes (setrlimit(2)); -1 for none."""

    soft: int
    hard: int


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host that the container sees.

    Args:
        source: where it is on the engine's host; must exist.
        target: where the container sees it.
        read_only: whether the container may not write there.
    """

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Port:
    """A port of the container that the host offers.

    Args:
        container: its number inside.
        host: its number on the host; None for a free one.
        address: the host's address it is offered at.
        protocol: ``tcp`` or ``udp``.
    """

    container: int
    host: int | None = None
    address: str = "127.0.0.1"
    protocol: Literal["tcp", "udp"] = "tcp"


NVIDIA_ULIMITS: Mapping[str, Ulimit] = {"memlock": Ulimit(-1, -1), "stack": Ulimit(67_108_864, 67_108_864)}
"""What NVIDIA's images ask for when they start (frameworks' user guide, "--ulimit memlock=-1 --ulimit
stack=67108864")."""


@dataclass(frozen=True)
class ContainerSpec:
    """A container that is wanted.

    Args:
        image: a reference such as ``nvcr.io/nvidia/mlperf/inference:v4.1`` or an image's id; must be there
            (``ContainerEngine.ensure_image``).
        purpose: what it is for; unique within the run, a part of its name.
        command: what its first process runs; the default lets it wait for commands. None for the image's own.
        entrypoint: what the command is given to; None for the image's own, empty for none.
        init: whether a small init is its first process (``docker run --init``): it buries orphans.
        gpus: ``none``, ``all``, or indices or UUIDs.
        gpu_access: how the engine is asked for them.
        runtime: the OCI runtime's name; empty for the engine's default, or for what ``gpu_access`` needs.
        shm_size_bytes: the size of /dev/shm; None for the engine's default (64 MiB).
        ipc: ``host``, ``private``, ``shareable``, …; empty for the engine's default.
        ulimits: limits by name. Without CAP_SYS_RESOURCE the engine refuses NVIDIA's: then give none.
        mounts: what it sees of the host.
        user: ``uid:gid`` or a name that the image knows; empty for the image's own.
        groups: further groups, by number or by a name that the image knows.
        environment: variables.
        secret_environment: variables whose values are masked everywhere; they are in no command line, but
            ``docker inspect`` shows them to who may use the engine. Prefer ``secret_files``, or ``run``'s.
        secret_files: contents by file name; the files are in ``SECRETS_TARGET``, in memory, readable by
            the container's user.
        network: ``none``, ``host``, ``bridge``, or a network's name; empty for the engine's default.
        ports: what the host offers of it.
        workdir: the folder its commands run in; empty for the image's own.
        hostname: its name for itself; empty for the engine's choice.
        cap_add: capabilities, such as ``SYS_ADMIN``.
        security_opt: such as ``seccomp=unconfined``.
        privileged: whether it may do everything.
        labels: further labels.
        keep: whether it stays when the run has ended.

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
        """Refuse what no engine can make sense of."""
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
                raise ProfileError(f"{name!r} is no file name", remedy="give the secret a plain name")
        both = self.environment.keys() & self.secret_environment.keys()
        if both:
            raise ProfileError(
                f"{', '.join(sorted(both))}: a variable cannot be both secret and not",
                remedy="leave it among the secret ones",
            )
