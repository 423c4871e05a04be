"""Builds a container image with this host's llama.cpp programs, for the server."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.component.container_parameters import GpuSet  # noqa: TC001 - pydantic reads it
from agent.core.errors import ActionFailedError, DependencyFailedError
from agent.facts.agent_paths import PACKAGE_DIR
from agent.facts.docker_images import image_labels
from agent.host.containers import ContainerSpec
from dependencies.docker.cli import docker_command, run_docker
from dependencies.llamacpp.programs import programs_stamp
from parsers.llamacpp.build import build_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts import Facts
    from agent.host.containers.engine import ContainerEngine

_LABEL = "vcagent.llamacpp"
_HOME = "/opt/llamacpp"
_DOCKERFILE = f"""\
FROM {{base}}
COPY bin {_HOME}/bin
COPY lib {_HOME}/lib
ENV PATH={_HOME}/bin:${{{{PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}}}}
ENV LD_LIBRARY_PATH={_HOME}/lib${{{{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}}}
"""
_LIBRARY = re.compile(r"^\s*(?P<name>lib(?:gomp|stdc\+\+|gcc_s)\.so\.\d+) => (?P<path>/\S+)", re.MULTILINE)


class LlamaCppImageParameters(ComponentParameters):
    """The image, and the programs and base image to build it from."""

    image: str = Field("vcagent-llamacpp:latest", min_length=1, description="The name of the image.")
    base: str = Field(
        min_length=1,
        description="The base image, such as debian:12-slim or "
        "nvidia/cuda:12.8.1-runtime-ubuntu24.04; its C library must not be older than this host's.",
    )
    llamacpp: Path | None = Field(
        None, description="The folder of the programs; by default llamacpp below the package folder."
    )
    gpus: GpuSet = Field(
        "none", description="GPUs for the test of the image: all for a CUDA build, which needs the driver."
    )


class LlamaCppImage(Dependency):
    """Builds an image with the programs of LlamaCppInstallation and the compiler libraries that they need.

    A label identifies the files that it was built from: other programs or another base make it outdated.
    """

    lifts = frozenset()
    Parameters = LlamaCppImageParameters
    parameters: LlamaCppImageParameters

    def plan(self, facts: Facts) -> Plan:
        """Build the image if it is missing or was built from other files."""
        asked = self.parameters
        labels, wanted = facts[image_labels(asked.image)], self._wanted(facts)
        if labels is not None and wanted and labels.get(_LABEL) == wanted:
            return Plan(nothing_to_do=f"{asked.image} has the programs of {self._folder(facts)}")
        if labels is None:
            reason = f"the image {asked.image} is not there"
        elif _LABEL not in labels:
            reason = f"{asked.image} is none of llama.cpp's that this agent made"
        else:
            reason = f"{asked.image} was made of other programs, or of another base"
        return Plan(
            (
                Step(
                    "build-image",
                    reason,
                    self._build,
                    f"docker build --tag {asked.image} # FROM {asked.base}",
                    lambda fresh: not self.plan(fresh).steps,
                    estimate_s=20,
                    undo={"image": asked.image},
                ),
            )
        )

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:
        """Remove the image if vcagent built it."""
        image = str(values["image"])
        if _LABEL not in (facts[image_labels(image)] or {}):
            return Plan(nothing_to_do=f"{image} is gone, or is somebody else's")

        command = docker_command(["image", "rm", "--", image], facts)

        def remove(context: StepContext) -> None:
            run_docker(context, command)

        def gone(fresh: Facts) -> bool:
            return _LABEL not in (fresh[image_labels(image)] or {})

        return Plan((Step("remove", f"{image} was made by a run", remove, shlex.join(command), gone),))

    def _folder(self, facts: Facts) -> Path:
        return self.parameters.llamacpp or facts[PACKAGE_DIR] / "llamacpp"

    def _wanted(self, facts: Facts) -> str:
        """Return the required label of the image; empty if the programs do not exist yet."""
        stamp = facts[programs_stamp(self._folder(facts) / "bin")]
        if not stamp:
            return ""
        return hashlib.sha256(f"{self.parameters.base}\n{_DOCKERFILE}\n{stamp}".encode()).hexdigest()[:16]

    def _build(self, context: StepContext) -> StepOutcome:
        from agent.component.container_engine import connect

        asked, facts = self.parameters, context.facts.fresh()
        programs = self._folder(facts) / "bin"
        label = self._wanted(facts)
        if not label:
            raise DependencyFailedError(
                f"{programs} has no programs of llama.cpp",
                remedy="add a LlamaCppInstallation before this dependency, or correct llamacpp",
            )
        with connect(context) as engine:
            engine.ensure_image(asked.base, progress=context.progress)
            with tempfile.TemporaryDirectory(prefix=".image-", dir=context.package_dir) as name:
                folder = Path(name)
                shutil.copytree(programs, folder / "bin", symlinks=True)
                (folder / "lib").mkdir()
                for library, path in self._libraries(context, programs).items():
                    shutil.copy(path, folder / "lib" / library)
                (folder / "Dockerfile").write_text(_DOCKERFILE.format(base=asked.base), encoding="utf-8")
                image = engine.build_image(
                    folder,
                    tag=asked.image,
                    log=context.log,
                    labels={_LABEL: label},
                    progress=context.progress,
                )
            build = self._tried(engine, context, programs)
        size = f", {image.size_bytes / 1e6:.0f} MB" if image.size_bytes else ""
        return StepOutcome(f"{asked.image} has llama.cpp {build} on {asked.base}{size}")

    def _libraries(self, context: StepContext, programs: Path) -> dict[str, Path]:
        """Return the compiler libraries that the programs are linked with, by the names that they request."""
        files = [str(path) for path in sorted(programs.iterdir()) if path.is_file()]
        told = context.processes.run(["ldd", *files], log=context.log, timeout_s=60, check=False)
        return bundled(told.stdout)

    def _tried(self, engine: ContainerEngine, context: StepContext, programs: Path) -> str:
        """Return the build number that a program in the image prints.

        Raises:
            DependencyFailedError: if no program runs in the image; the image is removed.
        """
        names = [path.name for path in sorted(programs.iterdir()) if path.name.startswith("llama-")]
        name = next((name for name in names if name != "llama-quantize"), names[0])
        spec = ContainerSpec(
            self.parameters.image,
            "llamacpp-image",
            entrypoint=(),
            gpus=self.parameters.gpus,
            ulimits={},
            network="none",
        )
        try:
            container = engine.ensure_running(spec)
            try:
                told = container.run([name, "--version"], log=context.log, timeout_s=60, check=False)
            finally:
                container.remove()
            text = told.stdout + told.stderr
            if (build := build_of(text)) is not None:
                return str(build)
            raise DependencyFailedError(
                f"{name} does not run in an image of {self.parameters.base} (exit code {told.exit_code})",
                remedy="choose a base whose C library is no older than this host's and that has the "
                "libraries that it names; a CUDA build needs gpus: all",
                details=tuple(text.splitlines()[-5:]),
            )
        except (ActionFailedError, DependencyFailedError):
            engine.remove_image(self.parameters.image)
            raise


def bundled(text: str) -> dict[str, Path]:
    """Return the compiler libraries (libgomp, libstdc++, libgcc_s) in the output of ldd, by name.

    They are copied into the image, because a slim base has none of them. The C library and GPU libraries are
    not.
    """
    return {match["name"]: Path(match["path"]) for match in _LIBRARY.finditer(text)}
