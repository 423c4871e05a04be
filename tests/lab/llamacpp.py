"""llama.cpp's programs and the converter's environment for tests: made by the real dependencies, once."""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.component import StepContext
from agent.errors import HostError, VcagentError
from agent.facts import Facts, LocalHost
from agent.processes import LocalProcesses
from dependencies.llamacpp_image import LlamaCppImage
from dependencies.llamacpp_installation import LlamaCppInstallation
from dependencies.python_environment_installation import PythonEnvironmentInstallation
from tests.lab.container_engine import C_LIBRARY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.component import Dependency
    from tests.lab.restartable_docker import RestartableDocker

__all__ = ["converter_environment", "llamacpp", "llamacpp_image", "tiny_folder"]

CACHE = Path.home() / ".cache" / "vcagent-tests"
_TOOLS = "llama-quantize,llama-perplexity,llama-bench,llama-batched-bench,llama-completion"
_CONVERTER = (
    "torch==2.13.0+cpu",
    "transformers>=5,<6",
    "sentencepiece",
    "protobuf",
    "numpy",
    "pyyaml",
    "tqdm",
)


class _Quiet:
    def update(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        """Nobody watches."""


@contextmanager
def _locked(name: str) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it at once
        yield


def _apply(component: Dependency, name: str, skipped: type[VcagentError] = HostError) -> Path:
    """Bring the cache to the state that a component asks for; the folder of what it made.

    An error of the class ``skipped`` skips the test: this host cannot have it.
    """
    packages = CACHE / "packages"
    with _locked(name):
        for folder in (packages, CACHE / "run"):
            folder.mkdir(exist_ok=True)
        facts = Facts(LocalHost(), {"package_dir": packages})
        processes = LocalProcesses(f"test-{name}")
        context = StepContext(
            facts, processes, _Quiet(), threading.Event(), CACHE / "run", packages, CACHE / f"{name}.log"
        )
        try:
            for step in component.plan(facts).steps:
                step.run(context)
        except skipped as error:
            pytest.skip(f"{name} cannot be made here: {error}")
    return packages / name


@pytest.fixture(scope="session")
def llamacpp() -> Path:
    """The folder of llama.cpp's programs; ``VCAGENT_TEST_LLAMACPP`` names one.

    Making it takes some minutes.
    """
    if named := os.environ.get("VCAGENT_TEST_LLAMACPP"):
        return Path(named)
    parameters = LlamaCppInstallation.Parameters.model_validate({"tools": _TOOLS, "backend": "cpu"})
    return _apply(LlamaCppInstallation(parameters), "llamacpp")


@pytest.fixture(scope="session")
def llamacpp_image(llamacpp: Path, container_engine: RestartableDocker) -> str:
    """An image with these programs, on a base that has nothing but the C library."""
    parameters = LlamaCppImage.Parameters.model_validate(
        {"image": "vcagent-test-llamacpp:1", "base": C_LIBRARY, "llamacpp": llamacpp}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", container_engine.address)
        _apply(LlamaCppImage(parameters), "llamacpp-image")
    return parameters.image


@pytest.fixture(scope="session")
def converter_environment() -> Path:
    """A Python environment in which llama.cpp's converter runs; ``VCAGENT_TEST_CONVERTER`` names one."""
    if named := os.environ.get("VCAGENT_TEST_CONVERTER"):
        return Path(named)
    parameters = PythonEnvironmentInstallation.Parameters.model_validate(
        {"packageName": "llamacpp-converter", "requirements": _CONVERTER}
    )
    # Not every index has torch without CUDA, which is all that a test may take.
    return _apply(PythonEnvironmentInstallation(parameters), "llamacpp-converter", VcagentError)


@pytest.fixture(scope="session")
def tiny_folder(bench_python: Path, tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model as a folder of Hugging Face's form."""
    folder = tmp_path_factory.mktemp("hugging-face") / "tiny"
    script = Path(__file__).with_name("hugging_face_folder.py")
    subprocess.run([bench_python, script, tiny_gguf, folder], check=True)
    return folder
