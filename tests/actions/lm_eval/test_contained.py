"""The view of lm-eval and llama.cpp's server inside a container, without an engine."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actions.llamacpp.model_file import locate_model, model_sha256
from actions.lm_eval import contained
from actions.lm_eval.command import SHIPPED_TASKS
from actions.lm_eval.executor import LmEvalExecutor
from agent.core.errors import ActionFailedError
from agent.host.containers.images import Image
from agent.host.processes import LocalProcesses

if TYPE_CHECKING:
    from agent.component.component import StepContext
    from agent.component.container_parameters import ContainerParameters


class Opened:
    """A container that is only requested, not started."""

    image = Image("my/image:1", "sha256:abc", ("my/image@sha256:def",))

    def __init__(self, asked: ContainerParameters, mounts: Any) -> None:
        self.asked = asked
        self.mounts = {mount.target: mount.read_only for mount in mounts}


def test_it_sees_what_is_named_and_the_cache_of_the_hub(
    context: StepContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    snapshot = tmp_path / "models--a--b" / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    opened: list[Opened] = []

    def open_container(asked: ContainerParameters, *_: Any, mounts: Any, **__: Any) -> Opened:
        opened.append(Opened(asked, mounts))
        return opened[0]

    monkeypatch.setattr(contained, "open_container", open_container)
    asked = LmEvalExecutor.Parameters.model_validate(
        {"model": "m", "environment": "/opt/vcagent", "modelPath": str(snapshot), "container": "my/image:1"}
    )
    case_dir = tmp_path / "case"
    with ExitStack() as stack:
        inside, image = contained.in_container(asked, asked.container, case_dir, context, stack)  # type: ignore[attr-defined,arg-type]
    assert inside.processes == opened[0]
    assert image == {"image": "my/image:1", "image_id": "my/image@sha256:def"}
    assert opened[0].asked.environment == {"HF_HOME": str(tmp_path / "hub")}
    mounts = opened[0].mounts
    assert (mounts[str(snapshot)], mounts[str(blobs)], mounts[str(SHIPPED_TASKS)]) == (True, True, True)
    assert (mounts[str(case_dir)], mounts[str(tmp_path / "hub")]) == (False, False)
    assert "/opt/vcagent" not in mounts, "it is the image's own"


def test_a_model_that_only_the_image_has_is_looked_at_inside(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "model.gguf").write_bytes(b"GGUF rest")
    path, log = Path("/image/model.gguf"), tmp_path / "log"

    class Container(LocalProcesses):
        """Runs a command on the host, with the image's files at the container's paths."""

        def run(self, command: Any, **options: Any) -> Any:
            moved = [str(word).replace("/image/", f"{inside}/") for word in command]
            return super().run(moved, **options)

    processes = Container("run-x")
    found = locate_model(str(path), python=Path("/x"), processes=processes, log=log, contained=True)
    assert found == path
    sha256 = model_sha256(path, processes=processes, log=log, contained=True)
    assert sha256 == model_sha256(inside / "model.gguf", processes=processes, log=log)
    (inside / "model.gguf").write_bytes(b"text")
    with pytest.raises(ActionFailedError, match="is not a GGUF file"):
        locate_model(str(path), python=Path("/x"), processes=processes, log=log, contained=True)
