"""llama.cpp's programs for tests, made once by the real dependencies, and the converter's environment."""

from __future__ import annotations

import os
import subprocess
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.component.component import StepContext
from agent.core.errors import HostError, VcagentError
from agent.facts import Facts, LocalHost
from agent.host.processes import LocalProcesses
from dependencies.llamacpp.image import LlamaCppImage
from dependencies.llamacpp.installation import LlamaCppInstallation
from dependencies.llamacpp.programs import llamacpp_build
from tests.lab.container_engine import BUSYBOX
from tests.lab.environment import environment
from tests.lab.host.cache import CACHE, locked
from tests.lab.llamacpp_of_debian import llamacpp_of_debian

if TYPE_CHECKING:
    from agent.component.component import Dependency
    from tests.lab.restartable_docker import RestartableDocker

__all__ = [
    "converter_environment",
    "llamacpp",
    "llamacpp_image",
    "llamacpp_version",
    "made_llamacpp",
    "tiny_folder",
]

_TOOLS = "llama-quantize,llama-perplexity,llama-bench,llama-batched-bench,llama-completion,llama-server"


class _Quiet:
    def update(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        """Ignore the message."""


def _context(name: str) -> StepContext:
    packages = CACHE / "packages"
    for folder in (packages, CACHE / "run"):
        folder.mkdir(parents=True, exist_ok=True)
    facts = Facts(LocalHost(), {"package_dir": packages})
    processes = LocalProcesses(f"test-{name}")
    return StepContext(
        facts, processes, _Quiet(), threading.Event(), CACHE / "run", packages, CACHE / f"{name}.log"
    )


def _apply(component: Dependency, name: str) -> Path:
    """Bring the cache to the state that a component requires; return the folder that it made.

    A HostError skips the test, since this host cannot have it.
    """
    with locked(name):
        context = _context(name)
        try:
            for step in component.plan(context.facts).steps:
                step.run(context)
        except HostError as error:
            pytest.skip(f"{name} cannot be made here: {error}")
    return context.package_dir / name


@pytest.fixture(scope="session")
def llamacpp() -> Path:
    """Return the folder of llama.cpp's programs."""
    return made_llamacpp()


def made_llamacpp() -> Path:
    """Return the folder of llama.cpp's programs; ``VCAGENT_TEST_LLAMACPP`` names one.

    Debian's finished programs are used if they can be fetched; else they are built, which takes minutes.
    """
    if named := os.environ.get("VCAGENT_TEST_LLAMACPP"):
        return Path(named)
    asked: dict[str, object] = {"tools": _TOOLS, "backend": "cpu"}
    try:
        asked |= {"source": str(llamacpp_of_debian(_context("llamacpp-debian"))), "prebuilt": True}
    except (OSError, subprocess.CalledProcessError, VcagentError) as error:
        warnings.warn(f"llama.cpp is built, Debian's cannot be had: {error}", stacklevel=1)
    return _apply(LlamaCppInstallation(LlamaCppInstallation.Parameters.model_validate(asked)), "llamacpp")


@pytest.fixture(scope="session")
def llamacpp_version(llamacpp: Path) -> str:
    """Return the programs' build, such as ``b11669``."""
    return str(Facts(LocalHost())[llamacpp_build(llamacpp / "bin" / "llama-server")])


@pytest.fixture(scope="session")
def llamacpp_image(llamacpp: Path, container_engine: RestartableDocker) -> str:
    """Return an image with these programs, on a base that has nothing but a shell."""
    parameters = LlamaCppImage.Parameters.model_validate(
        {"image": "vcagent-test-llamacpp:1", "base": BUSYBOX, "llamacpp": llamacpp}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", container_engine.address)
        _apply(LlamaCppImage(parameters), "llamacpp-image")
    return parameters.image


@pytest.fixture(scope="session")
def converter_environment() -> Path:
    """Return the folder of an environment in which llama.cpp's converter runs."""
    try:
        return environment("VCAGENT_TEST_CONVERTER_PYTHON").parents[1]
    except subprocess.CalledProcessError as error:
        # Not every index has torch without CUDA, and a test must not fetch torch with CUDA.
        pytest.skip(f"the converter's environment cannot be made here: {error}")


@pytest.fixture(scope="session")
def tiny_folder(bench_python: Path, tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tiny model as a folder in Hugging Face's format."""
    folder = tmp_path_factory.mktemp("hugging-face") / "tiny"
    script = Path(__file__).with_name("hugging_face_folder.py")
    subprocess.run([bench_python, script, tiny_gguf, folder], check=True)
    return folder
