"""Have an image with a benchmark's Python environment: built from the Dockerfile beside this file, once."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import Field, field_validator

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.core.errors import HostError
from agent.facts.docker_images import image_labels
from agent.facts.reachability import registry_of
from dependencies.docker.cli import docker_command, run_docker
from dependencies.python.pip import package_indexes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts import Facts

ENVIRONMENT = Path("/opt/vcagent")
"""The environment's folder in the image."""

DOCKERFILE = Path(__file__).with_name("Dockerfile")
_LABEL = "vcagent.environment-image"
_INDEX_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")


class PythonEnvironmentImageParameters(ComponentParameters):
    """An image and what it is made of."""

    image: str = Field(min_length=1, description="Its name, such as vcagent-llama3:1.")
    make: Literal["build", "pull"] = Field(
        "build", description="build: from the Dockerfile that comes with vcagent; pull: from its registry."
    )
    base: str = Field(
        "ubuntu:24.04",
        min_length=1,
        description="The image to begin with, of Debian or Ubuntu; PyPI's torch brings CUDA's libraries.",
    )
    packages: str = Field(
        "python3 python3-venv ca-certificates",
        pattern=r"^[a-z0-9][a-z0-9+. -]*$",
        description="Packages of the distribution, separated by blanks.",
    )
    base_packages: bool = Field(
        default=False,
        description="Whether the environment also sees the packages of the base's python3.",
    )
    requirements: tuple[str, ...] = Field((), description="What pip installs, with all that it needs.")
    requirements_alone: tuple[str, ...] = Field(
        (), description="Requirements that pip installs without their own requirements."
    )
    programs: tuple[str, ...] = Field(
        (),
        description="Python packages of vcagent that are put in beside, such as "
        "actions.loadgen.in_environment.harness.",
    )
    wheels_dir: Path | None = Field(None, description="A folder of wheels to install from, without an index.")
    build_network: str = Field("", description="The network of the build, such as host; Docker's if empty.")

    @field_validator("requirements", "requirements_alone")
    @classmethod
    def _requirements(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for requirement in value:
            try:
                Requirement(requirement)
            except InvalidRequirement as error:
                raise ValueError(f"{requirement!r} is not a requirement: {error}") from error
        return value

    @field_validator("wheels_dir", mode="before")
    @classmethod
    def _no_folder(cls, value: Any) -> Any:
        return value or None

    @field_validator("programs")
    @classmethod
    def _installed(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            program_folder(name)
        return value


def program_folder(name: str) -> Path:
    """Return the folder of a package of vcagent.

    Raises:
        ValueError: if there is none of that name.
    """
    try:
        found = importlib.util.find_spec(name)
    except ImportError:
        found = None
    if found is None or not found.submodule_search_locations:
        raise ValueError(f"{name} is not a Python package of vcagent")
    return Path(found.submodule_search_locations[0])


class PythonEnvironmentImage(Dependency):
    """Has an image whose environment is in /opt/vcagent.

    A label says what it was made of. If the wish changes, the image is built again; Docker keeps the layers
    that are still right.
    """

    Parameters = PythonEnvironmentImageParameters
    parameters: PythonEnvironmentImageParameters

    def plan(self, facts: Facts) -> Plan:
        """Build or pull the image, unless the engine has it."""
        asked = self.parameters
        labels = facts[image_labels(asked.image)]
        if asked.make == "pull":
            if labels is not None:
                return Plan(nothing_to_do=f"Docker has {asked.image}")
            command = f"docker pull {asked.image}"
            return Plan((self._step("pull-image", f"Docker does not have {asked.image}", command),))
        if labels is not None and labels.get(_LABEL) == self._wish():
            return Plan(nothing_to_do=f"{asked.image} is built of these requirements")
        if asked.wheels_dir is not None and not asked.wheels_dir.is_dir():
            raise HostError(f"wheelsDir {asked.wheels_dir} is not a folder", remedy="correct the path")
        if labels is None:
            reason = f"Docker does not have {asked.image}"
        elif _LABEL in labels:
            reason = f"{asked.image} is built of other requirements, or on another base"
        else:
            raise HostError(
                f"the image {asked.image} exists and was not built by this dependency",
                remedy="choose another name, or make: pull to use it as it is; it is never replaced",
            )
        command = f"docker build --build-arg BASE={asked.base} --tag {asked.image} {DOCKERFILE.parent}"
        return Plan((self._step("build-image", reason, command),))

    def _step(self, name: str, reason: str, command: str) -> Step:
        return Step(
            name,
            reason,
            self._make,
            command,
            lambda fresh: not self.plan(fresh).steps,
            estimate_s=300,
            undo={"image": self.parameters.image},
            fetches_from=self._servers,
        )

    def _servers(self, facts: Facts) -> list[str]:
        """Return the registry of the image, or of its base, and the package indexes that it is built from."""
        asked = self.parameters
        if asked.make == "pull":
            return [registry_of(asked.image)]
        base = [registry_of(asked.base)] if facts[image_labels(asked.base)] is None else []
        return [*base, *(() if asked.wheels_dir else facts[package_indexes(sys.executable)])]

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:
        """Remove the image if this dependency built it."""
        image = str(values["image"])
        if _LABEL not in (facts[image_labels(image)] or {}):
            return Plan(nothing_to_do=f"{image} is gone, or was not built here")
        command = docker_command(["image", "rm", "--", image], facts)

        def remove(context: StepContext) -> None:
            run_docker(context, command)

        def gone(fresh: Facts) -> bool:
            return _LABEL not in (fresh[image_labels(image)] or {})

        return Plan((Step("remove", f"{image} was built by a run", remove, shlex.join(command), gone),))

    def _wish(self) -> str:
        """Return what the label must be: a hash of everything that the image is made of."""
        asked = self.parameters
        digest = hashlib.sha256(DOCKERFILE.read_bytes())
        wish: list[Any] = [asked.base, asked.packages.split(), asked.requirements, asked.requirements_alone]
        wish.append(asked.base_packages)
        digest.update(json.dumps(wish).encode())
        for name in asked.programs:
            for path in _sources(program_folder(name)):
                digest.update(f"{name} {path.name}\n".encode() + path.read_bytes())
        return digest.hexdigest()[:16]

    def _make(self, context: StepContext) -> StepOutcome:
        from agent.component.container_engine import connect

        asked = self.parameters
        with connect(context) as engine:
            if asked.make == "pull":
                image = engine.ensure_image(asked.image, when="missing", progress=context.progress)
            else:
                engine.ensure_image(asked.base, progress=context.progress)
                context.package_dir.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryDirectory(prefix=".image-", dir=context.package_dir) as name:
                    self._fill(Path(name))
                    image = engine.build_image(
                        Path(name),
                        tag=asked.image,
                        arguments=self._arguments(),
                        labels={_LABEL: self._wish()},
                        network=asked.build_network,
                        log=context.log,
                        progress=context.progress,
                    )
        size = f", {image.size_bytes / 1e9:.1f} GB" if image.size_bytes else ""
        return StepOutcome(f"{asked.image} is {image.pinned}{size}")

    def _arguments(self) -> dict[str, str]:
        """Return the build's arguments, which the image's history shows: no index with a password."""
        asked = self.parameters
        index = {
            name: os.environ[name]
            for name in _INDEX_VARIABLES
            if os.environ.get(name) and "@" not in os.environ[name] and asked.wheels_dir is None
        }
        seen = {"BASE_PACKAGES": "yes"} if asked.base_packages else {}
        return {"BASE": asked.base, "PACKAGES": asked.packages, **seen, **index}

    def _fill(self, folder: Path) -> None:
        """Put the Dockerfile into a folder with all that it copies."""
        asked = self.parameters
        shutil.copy(DOCKERFILE, folder / "Dockerfile")
        for name, lines in (
            ("requirements.txt", asked.requirements),
            ("requirements-alone.txt", asked.requirements_alone),
        ):
            (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        (folder / "wheels").mkdir()
        for wheel in sorted(asked.wheels_dir.glob("*.whl")) if asked.wheels_dir else ():
            shutil.copy(wheel, folder / "wheels")
        for program in asked.programs:
            place = program_folder(program)
            for path in _sources(place):
                target = folder / "programs" / place.name / path.relative_to(place)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
        (folder / "programs").mkdir(exist_ok=True)


def _sources(folder: Path) -> list[Path]:
    """Return the files of a package, without what Python keeps beside them."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
