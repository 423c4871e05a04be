"""An image of llama.cpp's programs, built by a real engine; its base has the C library alone."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from agent.errors import DependencyFailedError
from dependencies.llamacpp_image import LlamaCppImage, bundled
from tests.lab.container_engine import BUSYBOX, C_LIBRARY
from tests.lab.llamacpp import llamacpp, llamacpp_image

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dependencies.conftest import RealHost
    from tests.lab.restartable_docker import RestartableDocker

__all__ = ["llamacpp", "llamacpp_image"]


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


@pytest.mark.engine
@pytest.mark.lab
def test_it_is_built_once_and_given_back(  # noqa: PLR0917 - fixtures
    llamacpp: Path,
    llamacpp_image: str,
    container_engine: RestartableDocker,
    real_host: RealHost,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", container_engine.address)
    real_host.context.run_dir.mkdir()
    docker = container_engine.docker
    docker("tag", llamacpp_image, "mine:1")
    plan = image(image="mine:1", llamacpp=llamacpp).plan(real_host.facts.fresh())
    assert plan.nothing_to_do.startswith("mine:1 has the programs of")
    shown = docker("run", "--rm", "--network=none", "mine:1", "llama-bench", "--help")
    assert "--n-prompt" in shown

    other = image(image="mine:1", base=BUSYBOX, llamacpp=llamacpp)
    (step,) = other.plan(real_host.facts.fresh()).steps
    assert step.reason == "mine:1 was made of other programs, or of another base"
    with pytest.raises(DependencyFailedError, match="does not run in an image of") as refusal:
        real_host.apply(other)
    assert "choose a base whose C library" in (refusal.value.remedy or "")
    assert docker("images", "--quiet", "mine:1") == ""
    assert docker("ps", "--all", "--quiet") == ""

    folder = tmp_path / "llamacpp"
    (folder / "bin").mkdir(parents=True)
    shutil.copy(llamacpp / "bin" / "llama-bench", folder / "bin")
    component = image(image="mine:1", llamacpp=folder)
    assert real_host.apply(component) == ["build-image"]
    (step,) = image(image="mine:1", llamacpp=llamacpp).plan(real_host.facts.fresh()).steps
    assert step.undo is not None
    LlamaCppImage.undo(step.undo, real_host.facts.fresh()).steps[0].run(real_host.context)
    assert docker("images", "--quiet", "mine:1") == ""
    assert "is gone" in LlamaCppImage.undo(step.undo, real_host.facts.fresh()).nothing_to_do
    assert "is gone" in LlamaCppImage.undo({"image": C_LIBRARY}, real_host.facts.fresh()).nothing_to_do
    assert docker("images", "--quiet", C_LIBRARY), "what somebody else made stays"


@pytest.mark.engine
@pytest.mark.lab
def test_without_programs_there_is_no_image(
    container_engine: RestartableDocker, real_host: RealHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", container_engine.address)
    with pytest.raises(DependencyFailedError, match="has no programs of llama"):
        real_host.apply(image())
