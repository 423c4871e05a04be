"""Run a LoadGen test's processes in a container: its mounts and its key."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actions.llamacpp.server import PROGRAM
from actions.loadgen.harness_run import HARNESS
from agent.component.environment_script import RUNNER
from agent.component.open_container import open_container
from agent.host.containers import SECRETS_TARGET, Mount

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actions.loadgen.parameters import LoadGenParameters
    from actions.loadgen.sample_sets import SampleSet
    from agent.component.component import StepContext
    from agent.component.container_parameters import ContainerParameters
    from agent.core.records import MetadataValue

_KEY = "api_key"


@contextmanager
def in_container(
    container: ContainerParameters,
    asked: LoadGenParameters,
    *,
    samples: SampleSet,
    case_dir: Path,
    context: StepContext,
) -> Iterator[tuple[StepContext, dict[str, MetadataValue]]]:
    """Yield the step's context with a container as process runner, and facts of its image.

    The container is removed afterwards. The harness, the case's folder and every file that the parameters
    name appear at the same paths.

    Raises:
        ContainerError: if the container cannot be started.
        HostError: if a secret variable is not set.
    """
    key = _key(asked)
    with ExitStack() as stack:
        running = open_container(
            container,
            context,
            stack,
            purpose=f"loadgen-{asked.case}",
            mounts=loadgen_mounts(asked, samples, case_dir),
            secret_files={} if key is None else {_KEY: key},
        )
        image: dict[str, MetadataValue] = {"image": running.image.reference, "image_id": running.image.pinned}
        yield replace(context, processes=running), image


def key_inside(backend: Mapping[str, Any]) -> dict[str, Any]:
    """Return the backend's configuration for a harness in the container: its key, if any, is a file there."""
    if not (backend.get("api_key_env") or backend.get("api_key_file")):
        return dict(backend)
    return {**backend, "api_key_env": None, "api_key_file": f"{SECRETS_TARGET}/{_KEY}"}


def _key(asked: LoadGenParameters) -> str | None:
    if asked.api_key_file is not None:
        return asked.api_key_file.read_text(encoding="utf-8").strip()
    return os.environ[asked.api_key_env] if asked.api_key_env else None


def loadgen_mounts(asked: LoadGenParameters, samples: SampleSet, case_dir: Path) -> list[Mount]:
    """Return the mounts of a test, at the same paths; includes a virtual environment, but not /usr."""
    read_only = [HARNESS, PROGRAM, RUNNER, samples.path]
    if (asked.environment / "pyvenv.cfg").is_file():
        read_only.append(asked.environment)
    read_only += [path for path in (asked.user_conf, asked.tokenizer) if path is not None]
    if asked.server is not None:
        read_only += _existing(asked.server.model, asked.server.binary)
    if asked.vllm is not None:
        read_only += _existing(asked.vllm.model)
    mounts = [Mount(path.absolute(), str(path.absolute()), read_only=True) for path in read_only]
    linked = [mount for path in read_only for mount in behind_links(path)]
    return [*mounts, *linked, Mount(case_dir, str(case_dir))]


def behind_links(folder: Path) -> list[Mount]:
    """Return the mounts for links of a snapshot in a hub's cache: files two folders up from its mount."""
    snapshot = folder.resolve()
    if snapshot.parent.name != "snapshots" or not (blobs := snapshot.parents[1] / "blobs").is_dir():
        return []
    return [Mount(blobs, os.path.normpath(folder.absolute() / "../../blobs"), read_only=True)]


def _existing(*paths: Path | str | None) -> list[Path]:
    """Return those that are files or folders of the host, and not other names."""
    return [Path(path) for path in paths if path is not None and Path(path).exists()]
