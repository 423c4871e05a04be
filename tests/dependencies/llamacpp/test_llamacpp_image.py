"""An image of llama.cpp's programs, built by a real engine; its base has only the C library."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import DependencyFailedError
from dependencies.llamacpp.image import LlamaCppImage, bundled
from tests.lab.container_engine import BUSYBOX, C_LIBRARY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dependencies.conftest import RealHost
    from tests.lab.restartable_docker import RestartableDocker


def image(**parameters: Any) -> LlamaCppImage:
    return LlamaCppImage(LlamaCppImage.Parameters.model_validate({"base": C_LIBRARY, **parameters}))


def test_the_compiler_s_libraries_come_along() -> None:
    told = (
        "/x/llama-bench:\n"
        "\tlinux-vdso.so.1 (0x00007f0f9fa7c000)\n"
        "\tlibgomp.so.1 => /lib/x86_64-linux-gnu/libgomp.so.1 (0x00007f0f9fa22000)\n"
        "\tlibstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x00007f0f9ec00000)\n"
        "\tlibcudart.so.12 => /usr/local/cuda/lib64/libcudart.so.12 (0x00007f0f9ec00000)\n"
        "\tlibcuda.so.1 => not found\n"
        "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0f9ea1e000)\n"
    )
    assert {name: str(path) for name, path in bundled(told).items()} == {
        name: f"/lib/x86_64-linux-gnu/{name}" for name in ("libgomp.so.1", "libstdc++.so.6")
    }


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """Return a program linked like llama.cpp's: with the C library and OpenMP's."""
    folder = tmp_path / "llamacpp"
    (folder / "bin").mkdir(parents=True)
    source = tmp_path / "main.c"
    source.write_text(
        "#include <omp.h>\n#include <stdio.h>\n"
        'int main(void) { return fprintf(stderr, "version: 4711 (abc)\\n") < omp_get_max_threads(); }\n'
    )
    subprocess.run(["cc", "-fopenmp", "-o", folder / "bin" / "llama-bench", source], check=True)
    return folder


@pytest.mark.engine
@pytest.mark.lab
@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler")
def test_it_is_built_once_and_given_back(
    compiled: Path,
    container_engine: RestartableDocker,
    real_host: RealHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", container_engine.address)
    real_host.context.run_dir.mkdir()
    docker = container_engine.docker
    component = image(image="mine:1", llamacpp=compiled)
    assert real_host.apply(component) == ["build-image"]
    docker("run", "--rm", "--network=none", "mine:1", "llama-bench")

    (compiled / "bin" / "llama-quantize").write_text("another")
    (step,) = component.plan(real_host.facts.fresh()).steps
    assert step.reason == "mine:1 was made of other programs, or of another base"
    assert step.undo is not None
    LlamaCppImage.undo(step.undo, real_host.facts.fresh()).steps[0].run(real_host.context)
    assert docker("images", "--quiet", "mine:1") == ""
    assert "is gone" in LlamaCppImage.undo(step.undo, real_host.facts.fresh()).nothing_to_do
    assert "is gone" in LlamaCppImage.undo({"image": C_LIBRARY}, real_host.facts.fresh()).nothing_to_do
    assert docker("images", "--quiet", C_LIBRARY), "what somebody else made stays"

    with pytest.raises(DependencyFailedError, match="does not run in an image of") as refusal:
        real_host.apply(image(image="mine:1", base=BUSYBOX, llamacpp=compiled))
    assert "choose a base whose C library" in (refusal.value.remedy or "")
    assert docker("images", "--quiet", "mine:1") == ""
    assert docker("ps", "--all", "--quiet") == ""


@pytest.mark.engine
@pytest.mark.lab
def test_without_programs_there_is_no_image(
    container_engine: RestartableDocker, real_host: RealHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", container_engine.address)
    with pytest.raises(DependencyFailedError, match="has no programs of llama"):
        real_host.apply(image())
