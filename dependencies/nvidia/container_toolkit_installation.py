"""Installs NVIDIA's container toolkit, configures Docker for it, and proves it with a GPU container."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from agent.component.bundled_images import image_download
from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.core.errors import HostError, LiftedBy
from agent.facts.container_toolkit import CDI_FOLDERS, CDI_SPECS, CONTAINER_TOOLKIT_VERSION, CdiSpec
from agent.facts.docker import DAEMON_CONFIG, DOCKER_ENGINE, DOCKER_PROBLEM, DOCKER_SERVER
from agent.facts.gpus import DRIVER_VERSION
from agent.facts.linux import ARCHITECTURE, DISTRIBUTION
from agent.facts.packages import INSTALLED_PACKAGES, RPM_MANAGERS
from agent.facts.storage import MOUNTS, free_bytes
from agent.facts.users import ROOT
from dependencies.docker.cli import run_docker
from dependencies.docker.daemon import changes, merged, overwritten, require_readable, write_daemon_config
from dependencies.docker.service import refuse_to_stop_containers, restart_command, start_engine
from dependencies.docker.undo import undo_plan
from dependencies.nvidia.gpu_container_proof import GpuContainerProof
from dependencies.packages.apt_repository import AptRepositoryWish, deb_architecture
from dependencies.packages.bundled_packages import package_downloads
from dependencies.packages.package_managers import (
    PackageManager,
    PackageWish,
    installation_steps,
    manager_of,
    require_root,
)
from dependencies.packages.rpm_repository import RpmRepositoryWish
from dependencies.packages.signing_key import SigningKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.downloads import Download
    from agent.facts import Facts
    from agent.facts.docker import DockerServer

REPOSITORY = "https://nvidia.github.io/libnvidia-container"
"""NVIDIA's repository (docs.nvidia.com/datacenter/cloud-native/container-toolkit, install guide)."""

FINGERPRINT = "C95B 321B 61E8 8C18 09C4  F759 DDCA E044 F796 ECB0"
"""NVIDIA CORPORATION (Open Source Projects), the key at ``gpgkey`` of that repository."""

_PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
"""The packages: with a version all get it, as in NVIDIA's guide; otherwise the first brings the others."""

_REPOSITORY = "vcagent-nvidia-container-toolkit"
"""The name of the repository's files."""

_CDI_SINCE = 25
"""The first Docker version with CDI (docs.docker.com/reference/cli/dockerd, "Enable CDI devices")."""

_MIB = 1024 * 1024


class NvidiaContainerToolkitInstallationParameters(ComponentParameters):
    """vcagent's own parameters; VirtualClient has none (NvidiaContainerToolkitInstallation.cs)."""

    version: str = Field("", description="The packages' version, such as 1.17.8; by default any.")
    repository_uri: str = Field(
        REPOSITORY, description="NVIDIA's repository; empty to use what the host's repositories have."
    )
    key_uri: str = Field("", description="Its signing key; by default gpgkey in the repository.")
    key_fingerprint: str = Field(
        "", description="The key's fingerprint; by default NVIDIA's, if KeyUri is not given."
    )
    set_as_default: bool = Field(default=False, description="Whether all containers get NVIDIA's runtime.")
    cdi: Literal["auto", "always", "never"] = Field(
        "auto", description="A CDI specification: auto if driver and Docker support it, always, or never."
    )
    restart_with_containers: bool = Field(
        default=False, description="Whether to restart Docker even if that stops running containers."
    )
    restart_command: str = Field("", description="The command to restart Docker; by default its service's.")
    proof: bool = Field(default=True, description="Whether to start a GPU container as proof.")
    proof_image: str = Field("ubuntu:24.04", min_length=1, description="The image of that container.")
    proof_command: str = Field("nvidia-smi -L", description="Its command; it must exit with 0.")
    proof_devices: Literal["gpus", "cdi", "runtime"] = Field(
        "gpus", description="How it gets the GPUs: --gpus all, by CDI, or by NVIDIA's runtime."
    )
    required_space: int = Field(512, ge=0, description="Free space for that image, in MiB.")
    lock_timeout: float = Field(600, ge=0, description="Seconds to wait for another package manager.")

    @field_validator("version")
    @classmethod
    def _is_version(cls, value: str) -> str:
        if value and not re.fullmatch(r"\d[A-Za-z0-9.+:~_-]*", value):
            raise ValueError("write a version, such as 1.17.8")
        return value

    @field_validator("proof_image")
    @classmethod
    def _is_image(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z0-9][A-Za-z0-9._/:@-]*", value):
            raise ValueError("write an image, such as ubuntu:24.04")
        return value


class NvidiaContainerToolkitInstallation(Dependency):
    """Makes Docker start containers with GPUs, and proves it with one."""

    is_for_gpus = True
    changes_host = True
    lifts = frozenset({LiftedBy.PROGRAM, LiftedBy.DOCKER})
    Parameters = NvidiaContainerToolkitInstallationParameters
    parameters: NvidiaContainerToolkitInstallationParameters

    def plan(self, facts: Facts) -> Plan:
        """Install the packages, merge daemon.json, restart Docker if it changed, then make the proof."""
        server = self._check_host(facts)
        manager = manager_of(facts, _PACKAGES[0])
        steps = self._packages(facts, manager)
        steps += self._daemon_steps(facts, server)
        if step := self._cdi_step(facts, server):
            steps.append(step)
        if steps and not facts[ROOT]:
            require_root(facts, manager, _PACKAGES[0])
        proof = GpuContainerProof(
            self.parameters.proof_image, self.parameters.proof_command, self.parameters.proof_devices
        )
        due = proof.why_due(facts) if self.parameters.proof else ""
        if self.parameters.proof and (steps or due):
            steps.append(self._proof_step(facts, server, proof, due))
        if not steps:
            proven = "a GPU container ran" if self.parameters.proof else "no proof is asked for"
            return Plan(nothing_to_do=f"toolkit {facts[CONTAINER_TOOLKIT_VERSION]} is in place; {proven}")
        return Plan(tuple(steps))

    def downloads(self, facts: Facts) -> tuple[Download, ...]:
        """Return the toolkit's packages, and the image of the proof."""
        manager = manager_of(facts, _PACKAGES[0]).name
        packages = package_downloads(manager, self._wishes(), repository=self._repository(facts, manager))
        return (*packages, image_download(self.parameters.proof_image)) if self.parameters.proof else packages

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:
        """Undo one step."""
        return undo_plan(values, facts)

    def _check_host(self, facts: Facts) -> DockerServer:
        server, engine = facts[DOCKER_SERVER], facts[DOCKER_ENGINE]
        if engine and engine.kind in ("snap", "podman"):
            raise HostError(
                f"docker is {engine.kind} here, which NVIDIA's toolkit cannot be given to",
                remedy="a DockerInstallation before this element says what to do",
                lifted_by=LiftedBy.SYSTEM,
            )
        if server is None:
            raise HostError(
                f"Docker does not answer: {facts[DOCKER_PROBLEM] or 'it says nothing'}",
                remedy="put a DockerInstallation before this element",
                lifted_by=LiftedBy.DOCKER,
            )
        if server.rootless:
            raise HostError(
                "the engine that answers is rootless: its configuration and runtimes are its user's",
                remedy="let docker reach the host's engine: unset DOCKER_HOST, docker context use default",
                lifted_by=LiftedBy.SYSTEM,
            )
        if self.parameters.proof and facts[DRIVER_VERSION] is None:
            raise HostError(
                "NVIDIA's driver is not loaded, so no container can be given a GPU",
                remedy="put a NvidiaCudaInstallation before this element, or set Proof: false",
                lifted_by=LiftedBy.DRIVER,
            )
        wants_cdi = self.parameters.cdi == "always" or self.parameters.proof_devices == "cdi"
        if wants_cdi and server.major < _CDI_SINCE:
            raise HostError(
                f"Docker {server.version} does not know CDI; {_CDI_SINCE} and later do",
                remedy="a newer Docker (DockerInstallation with Version), or ProofDevices: gpus",
                lifted_by=LiftedBy.DOCKER,
            )
        require_readable(facts[DAEMON_CONFIG])
        return server

    def _packages(self, facts: Facts, manager: PackageManager) -> list[Step]:
        wishes = self._wishes()
        installed = facts[INSTALLED_PACKAGES]
        missing = [wish for wish in wishes if not wish.fulfilled(installed, manager.name)]
        if not missing:
            return []
        if not self.parameters.version and facts[CONTAINER_TOOLKIT_VERSION]:
            return []  # installed by others: from source, in an image
        require_root(facts, manager, " ".join(map(str, missing)))
        repository = self._repository_steps(facts, manager.name)
        refreshed = any(step.name == "refresh" for step in repository)
        return [
            *repository,
            *installation_steps(
                facts, manager, missing, lock_timeout_s=self.parameters.lock_timeout, refreshed=refreshed
            ),
        ]

    def _wishes(self) -> list[PackageWish]:
        version = self.parameters.version
        if not version:
            return [PackageWish(_PACKAGES[0])]
        # NVIDIA builds each version once: 1.17.8 is 1.17.8-1 in every format.
        return [PackageWish(name, version if "-" in version else f"{version}-1") for name in _PACKAGES]

    def _repository_steps(self, facts: Facts, manager: str) -> list[Step]:
        repository = self._repository(facts, manager)
        if isinstance(repository, RpmRepositoryWish):
            release = facts[DISTRIBUTION].version.partition(".")[0]
            return repository.steps(facts, {"releasever": release, "basearch": facts[ARCHITECTURE]})
        return repository.steps(facts, self.parameters.lock_timeout) if repository else []

    @property
    def _key(self) -> SigningKey:
        parameters = self.parameters
        base = parameters.repository_uri.rstrip("/")
        fingerprint = parameters.key_fingerprint or ("" if parameters.key_uri else FINGERPRINT)
        return SigningKey.of(parameters.key_uri or f"{base}/gpgkey", fingerprint)

    def _repository(self, facts: Facts, manager: str) -> AptRepositoryWish | RpmRepositoryWish | None:
        """Return NVIDIA's repository; None if the packages are in the host's own."""
        base = self.parameters.repository_uri.rstrip("/")
        if not base:
            return None
        machine = facts[ARCHITECTURE]
        if manager in RPM_MANAGERS:
            # Its packages are not signed, its index is (nvidia-container-toolkit.repo).
            return RpmRepositoryWish(
                _REPOSITORY,
                f"{base}/stable/rpm/{machine}",
                self._key,
                signed_packages=False,
                signed_index=True,
                manager=manager,
            )
        architecture = deb_architecture(machine)
        uri = f"{base}/stable/deb/{architecture}"
        return AptRepositoryWish(_REPOSITORY, uri, "/", (), architecture, self._key)

    def _daemon_wish(self, facts: Facts, server: DockerServer) -> dict[str, Any]:
        """Return the settings that daemon.json lacks and the engine does not get from elsewhere."""
        settings = require_readable(facts[DAEMON_CONFIG])
        wish: dict[str, Any] = {}
        by_flag = "nvidia" in server.runtimes and "nvidia" not in _section(settings, "runtimes")
        path = _section(settings, "runtimes", "nvidia").get("path", "")
        if not by_flag and PurePath(str(path)).name not in (
            "nvidia-container-runtime",
            "nvidia-container-runtime.cdi",
        ):
            wish["runtimes"] = {"nvidia": {"path": "nvidia-container-runtime", "args": []}}
        if self.parameters.set_as_default and server.default_runtime != "nvidia":
            wish["default-runtime"] = "nvidia"
        asked = _section(settings, "features").get("cdi")
        if self._wants_cdi(facts, server) and not server.cdi_folders and asked is None:
            wish["features"] = {"cdi": True}
        return wish if changes(settings, wish) else {}

    def _wants_cdi(self, facts: Facts, server: DockerServer) -> bool:
        if self.parameters.cdi == "always" or self.parameters.proof_devices == "cdi":
            return True
        return (
            self.parameters.cdi == "auto" and server.major >= _CDI_SINCE and facts[DRIVER_VERSION] is not None
        )

    def _daemon_steps(self, facts: Facts, server: DockerServer) -> list[Step]:
        settings = require_readable(facts[DAEMON_CONFIG])
        wish = self._daemon_wish(facts, server)
        steps = []
        if wish:
            steps.append(
                Step(
                    "daemon",
                    "; ".join(changes(settings, wish)) + " in daemon.json",
                    lambda context: StepOutcome(write_daemon_config(context, wish)),
                    "merge into /etc/docker/daemon.json, with a backup: " + json.dumps(wish),
                    lambda fresh: not changes(fresh[DAEMON_CONFIG].settings or {}, wish),
                    undo={
                        "daemon": wish,
                        "before": overwritten(settings, wish),
                        "restart": self.parameters.restart_command,
                    },
                )
            )
        wanted = merged(settings, wish)
        if not _unread(wanted, server):
            return steps
        reason = f"Docker has not read daemon.json since it has {_unread(wanted, server)}"
        reason = "daemon.json changes" if wish else reason
        refuse_to_stop_containers(
            facts,
            reason,
            allowed=self.parameters.restart_with_containers,
            live_restore=settings.get("live-restore") is True,
        )
        return [*steps, self._restart_step(facts, reason, wanted)]

    def _restart_step(self, facts: Facts, reason: str, wanted: Mapping[str, Any]) -> Step:
        command = shlex.split(self.parameters.restart_command) or restart_command(facts)

        def run(context: StepContext) -> StepOutcome:
            return StepOutcome(f"the engine answers: {start_engine(context, command)}")

        def holds(fresh: Facts) -> bool:
            server = fresh[DOCKER_SERVER]
            return server is not None and not _unread(wanted, server)

        return Step("restart", reason, run, shlex.join(command), holds)

    def _cdi_step(self, facts: Facts, server: DockerServer) -> Step | None:
        if not self._wants_cdi(facts, server):
            return None
        specs = [spec for spec in facts[CDI_SPECS] if spec.kind == "nvidia.com/gpu"]
        stale = [spec for spec in specs if _is_stale(spec, facts[DRIVER_VERSION])]
        if specs and not stale:
            return None
        # A stale one is replaced in place: two that name the same devices exclude each other.
        path = Path(stale[0].path) if stale else Path(CDI_FOLDERS[0]) / "nvidia.yaml"
        reason = "no CDI specification names the GPUs"
        if stale:
            reason = f"{path} is for driver {stale[0].driver}, and {facts[DRIVER_VERSION]} is loaded"
        command = ["nvidia-ctk", "cdi", "generate", f"--output={path}"]

        def run(context: StepContext) -> StepOutcome:
            # Since 1.18, a service of the toolkit writes a specification at installation: do not add a second
            # one.
            if self._cdi_step(context.facts.fresh(), server) is None:
                return StepOutcome("there is one by now")
            path.parent.mkdir(parents=True, exist_ok=True)
            run_docker(context, command)
            return StepOutcome(f"{path} written")

        return Step(
            "cdi",
            reason,
            run,
            shlex.join(command),
            lambda fresh: self._cdi_step(fresh, server) is None,
            undo=None if stale else {"cdi": str(path)},
        )

    def _proof_step(self, facts: Facts, server: DockerServer, proof: GpuContainerProof, due: str) -> Step:
        mounts = facts[MOUNTS]
        free = free_bytes(mounts, PurePath(server.image_root))
        if free is not None and free < self.parameters.required_space * _MIB:
            raise HostError(
                f"{server.image_root}, where Docker keeps images, has {free // _MIB} MiB free; "
                f"{proof.image} needs {self.parameters.required_space} MiB",
                remedy="free some space (docker system df), or move that folder to another disk",
                lifted_by=LiftedBy.SPACE,
            )
        return Step(
            "proof",
            due or "what GPU containers depend on is changed",
            lambda context: StepOutcome(proof.make(context)),
            shlex.join(["docker", *proof.arguments()]),
            (lambda fresh: not proof.why_due(fresh)) if due else None,
            estimate_s=20,
        )


def _unread(settings: Mapping[str, Any], server: DockerServer) -> str:
    """Return a setting that the engine does not know yet: it reads them when it starts."""
    runtime = _section(settings, "runtimes", "nvidia")
    if runtime and server.runtimes.get("nvidia") != runtime.get("path"):
        return "the runtime nvidia"
    if settings.get("default-runtime") == "nvidia" != server.default_runtime:
        return "another default runtime"
    if _section(settings, "features").get("cdi") is True and not server.cdi_folders:
        return "CDI switched on"
    return ""


def _section(settings: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return an object in daemon.json; empty if it is absent, null, or not an object."""
    for name in names:
        found = settings.get(name)
        settings = found if isinstance(found, dict) else {}
    return settings


def _is_stale(spec: CdiSpec, driver: str | None) -> bool:
    return bool(spec.driver and driver and spec.driver != driver)
