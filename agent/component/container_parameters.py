"""The parameters of a workload's container."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, field_validator, model_validator

from agent.component.bundled_images import built_image_download
from agent.component.downloads import not_carried
from agent.component.parameter_types import OptionalPath, ParameterGroup
from agent.core.errors import HostError, LiftedBy
from agent.core.names import canonical
from agent.facts.agent_paths import lift_of_path
from agent.facts.amd_driver import AMD_DEVICES
from agent.facts.bundle import bundle_of
from agent.host.containers import (
    AMD_DEVICE_PATHS,
    NVIDIA_ULIMITS,
    ContainerSpec,
    GpuAccess,
    Mount,
    Port,
    Ulimit,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.component.downloads import Download
    from agent.facts import Facts


_NO_SECCOMP = "seccomp=unconfined"
"""Settings of ROCm's containers that let processes share memory (ROCm, "Running ROCm Docker
containers")."""


class MountParameters(ParameterGroup):
    """A file or folder of the host that the container sees; also written ``source:target:ro``."""

    source: Path = Field(description="Path on the host; must exist.")
    target: str = Field("", description="Path in the container; the same path if empty.")
    read_only: bool = Field(False, description="True if the container may not write there.")

    @property
    def mount(self) -> Mount:
        """Return the mount in the engine's form."""
        source = self.source.expanduser().absolute()
        return Mount(source, self.target or str(source), self.read_only)


def _mount(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    source, *rest = value.split(":")
    if rest[1:] not in ([], ["ro"], ["rw"]):
        raise ValueError(f"{value!r} is not a mount: write source, source:target or source:target:ro")
    return {"source": source, "target": rest[0] if rest else "", "read_only": rest[1:] == ["ro"]}


def _gpus(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(str(gpu) for gpu in value)
    if isinstance(value, str) and value not in {"all", "none"}:
        return tuple(gpu.strip() for gpu in value.split(",") if gpu.strip())
    return (str(value),) if isinstance(value, int) and not isinstance(value, bool) else value


GpuSet = Annotated[Literal["none", "all"] | tuple[str, ...], BeforeValidator(_gpus)]
"""The GPUs that a container sees; a profile may write indices as ``0,1``."""


class ContainerParameters(ParameterGroup):
    """A container in a profile."""

    image: str = Field(
        "", description="Its image, such as vllm/vllm-openai:v0.11.0; of a Dockerfile its name."
    )
    dockerfile: OptionalPath = Field(
        None, description="A folder with a Dockerfile, or the file: the image is built from it."
    )
    build_arguments: dict[str, str] = Field(
        default_factory=dict, description="Arguments of the build; the image's history shows them."
    )
    build_network: str = Field("", description="The network of the build; Docker's default if empty.")
    pull: Literal["missing", "always", "never"] = Field("missing", description="When the image is fetched.")
    gpus: GpuSet = Field("none", description="none, all, or indices or UUIDs.")
    gpu_access: GpuAccess = Field(
        GpuAccess.DEVICE_REQUEST,
        description="How Docker is asked for them: device_request, cdi, runtime; amd for AMD's, which also "
        "adds the groups of their devices and seccomp=unconfined.",
    )
    runtime: str = Field("", description="OCI runtime; Docker's default if empty.")
    mounts: tuple[Annotated[MountParameters, BeforeValidator(_mount)], ...] = Field(
        (), description="What it sees of the host, such as a cache of models: {source, target, read_only}."
    )
    shm_size_bytes: int | None = Field(None, ge=0, description="Size of /dev/shm; Docker's 64 MiB if absent.")
    ipc: str = Field("", description="host, private, …; Docker's default if empty.")
    ulimits: dict[str, int] | None = Field(
        None,
        description="Limits by name, -1 for none; with GPUs NVIDIA's usual memlock and stack if absent.",
    )
    user: str = Field("", description="uid:gid that commands run as; the agent's own if empty.")
    groups: tuple[str, ...] = Field((), description="Further groups, by number or the image's name.")
    capabilities: tuple[str, ...] = Field((), description="Capabilities to add, such as SYS_PTRACE.")
    security_options: tuple[str, ...] = Field((), description="Such as seccomp=unconfined.")
    network: str = Field("host", description="host, none, bridge, or a network's name.")
    environment: dict[str, str] = Field(default_factory=dict, description="Variables.")
    inherit: tuple[str, ...] = Field(
        (), description="Names of the agent's own variables that it gets too, such as HF_TOKEN; masked."
    )
    keep: bool = Field(False, description="True to keep it after the run.")

    @field_validator("mounts", mode="before")
    @classmethod
    def _without_empty_texts(cls, value: Any) -> Any:
        return [one for one in value if one != ""] if isinstance(value, list | tuple) else value

    @model_validator(mode="after")
    def _has_an_image(self) -> ContainerParameters:
        if not self.image and self.dockerfile is None:
            raise ValueError("a container needs an image, or the dockerfile to build it from")
        if self.dockerfile is None and (self.build_arguments or self.build_network):
            raise ValueError("build_arguments and build_network are a dockerfile's: name one")
        return self

    @property
    def image_name(self) -> str:
        """The image's name; one that is built and has none is named after its Dockerfile's place."""
        if self.image or self.dockerfile is None:
            return self.image
        place = str(self.dockerfile.expanduser().absolute())
        return f"vcagent-built-{hashlib.sha256(place.encode()).hexdigest()[:12]}:latest"

    @property
    def bundled_name(self) -> str:
        """The image's name in a bundle: its own, or its Dockerfile as the profile writes it."""
        return self.image or str(self.dockerfile)

    def built_download(self, facts: Facts) -> Download | None:
        """Return the download of an image that is built; None for one of a registry.

        Args:
            facts: the host; with a bundle it does not need the Dockerfile.

        Raises:
            HostError: if the Dockerfile is not on this machine.
        """
        if self.dockerfile is None:
            return None
        if bundle_of(facts) is None and not lift_of_path(facts, self.dockerfile.expanduser()):
            raise not_carried(f"the image of {self.dockerfile}, which a step of the run makes")
        folder, name = (Path(), "") if bundle_of(facts) else self.build_from
        return built_image_download(self.bundled_name, folder, name, self.build_arguments, self.build_network)

    @property
    def build_from(self) -> tuple[Path, str]:
        """Return the folder that the image is built from, and the name of its Dockerfile.

        Raises:
            HostError: if there is no Dockerfile.
        """
        place = (self.dockerfile or Path()).expanduser().absolute()
        file = place / "Dockerfile" if place.is_dir() else place
        if not file.is_file():
            raise HostError(
                f"there is no {file}",
                remedy="correct dockerfile: the folder of one, or the file",
                lifted_by=LiftedBy.PATH,
            )
        return file.parent, file.name

    def require_inputs(self, facts: Facts) -> None:
        """Refuse a container whose Dockerfile or GPUs are missing, or whose variables are not set.

        A step before may make a Dockerfile in the package folder, such as a clone, or install a driver.

        Raises:
            HostError: if that is so.
        """
        built = self.dockerfile is not None and bundle_of(facts) is None
        if built and lift_of_path(facts, cast("Path", self.dockerfile).expanduser()):
            _ = self.build_from
        if self._uses_amd and not any(one.path == AMD_DEVICE_PATHS[0] for one in facts[AMD_DEVICES]):
            raise HostError(
                f"there is no {AMD_DEVICE_PATHS[0]}, by which a container uses AMD's GPUs",
                remedy="install the driver: --profile SETUP-GPU-AMD; on NVIDIA's GPUs leave gpuAccess out",
                lifted_by=LiftedBy.DRIVER,
            )
        self.require_inherited()

    @property
    def _uses_amd(self) -> bool:
        return self.gpu_access is GpuAccess.AMD and self.gpus != "none"

    def require_inherited(self) -> None:
        """Refuse a container whose variables are not set in the agent's environment.

        Raises:
            HostError: if one is not set.
        """
        unset = [name for name in self.inherit if name not in os.environ]
        if unset:
            raise HostError(
                f"inherit names {', '.join(unset)}, not set in the agent's environment",
                remedy=f"export {unset[0]}=…",
                lifted_by=LiftedBy.NOTHING,
            )

    def spec(
        self,
        purpose: str,
        *,
        mounts: Iterable[Mount] = (),
        ports: Iterable[Port] = (),
        secret_files: Mapping[str, str] | None = None,
    ) -> ContainerSpec:
        """Return the spec of a container that waits for commands.

        Args:
            purpose: its purpose; unique within the run.
            mounts: further mounts of the workload; a mount of the profile at the same place takes precedence.
            ports: its published ports, if the network is not the host's.
            secret_files: secrets of the workload.

        Raises:
            HostError: if a secret variable is not set.
        """
        self.require_inherited()
        targets = {mount.target: mount for mount in mounts}
        targets |= {asked.mount.target: asked.mount for asked in self.mounts}
        limits: Mapping[str, Ulimit] = {} if self.gpus == "none" else NVIDIA_ULIMITS
        if self.ulimits is not None:
            limits = {name: Ulimit(value, value) for name, value in self.ulimits.items()}
        return ContainerSpec(
            image=self.image_name,
            purpose=purpose,
            entrypoint=(),
            gpus=self.gpus,
            gpu_access=self.gpu_access,
            runtime=self.runtime,
            shm_size_bytes=self.shm_size_bytes,
            ipc=self.ipc,
            ulimits=limits,
            mounts=tuple(targets.values()),
            ports=tuple(ports),
            user=self.user or f"{os.geteuid()}:{os.getegid()}",
            groups=tuple(dict.fromkeys([*self.groups, *(_groups_of_devices() if self._uses_amd else ())])),
            cap_add=self.capabilities,
            security_opt=tuple(
                dict.fromkeys([*self.security_options, *((_NO_SECCOMP,) if self._uses_amd else ())])
            ),
            network=self.network,
            environment=self.environment,
            secret_environment={name: os.environ[name] for name in self.inherit},
            secret_files=dict(secret_files or {}),
            keep=self.keep,
        )


def _groups_of_devices() -> list[str]:
    """Return the numbers of the groups of AMD's devices: an image may not know render and video by name."""
    kfd, dri = map(Path, AMD_DEVICE_PATHS)
    places = [kfd, *sorted(dri.glob("card*")), *sorted(dri.glob("renderD*"))]
    return list(dict.fromkeys(str(place.stat().st_gid) for place in places if place.exists()))


def _container(value: Any) -> Any:
    """Return a text as the image; empty values, or neither image nor Dockerfile, mean no container."""
    asked = {"image": value} if isinstance(value, str) else value
    if not isinstance(asked, dict):
        return asked
    named = {canonical(str(name)): entry for name, entry in asked.items()}
    is_empty = not named or ("image" in named and not named["image"] and not named.get("dockerfile"))
    return None if is_empty else asked


OptionalContainer = Annotated[ContainerParameters | None, BeforeValidator(_container)]
"""A container, its image alone, or none."""
