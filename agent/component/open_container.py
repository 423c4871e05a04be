"""Starts the container in a workload's parameters, for a step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent.component.bundled_images import bundled_tag, image_file
from agent.facts.bundle import bundle_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import ExitStack

    from agent.component.component import StepContext
    from agent.component.container_parameters import ContainerParameters
    from agent.host.containers import Mount, Port
    from agent.host.containers.container import Container


def open_container(
    asked: ContainerParameters,
    context: StepContext,
    stack: ExitStack,
    *,
    purpose: str,
    mounts: Iterable[Mount] = (),
    ports: Iterable[Port] = (),
    secret_files: Mapping[str, str] | None = None,
) -> Container:
    """Pull or build the image and start a container that waits for commands.

    Args:
        asked: the container.
        context: the step's context.
        stack: removes the container when it is closed, unless it is to be kept.
        purpose: its purpose; unique within the run.
        mounts: additional mounts of the workload.
        ports: its published ports, if the network is not the host's.
        secret_files: secrets of the workload.

    Raises:
        ContainerError: if the container cannot be started.
        HostError: if a secret variable is not set.
    """
    from agent.component.container_engine import connect

    spec = asked.spec(purpose, mounts=mounts, ports=ports, secret_files=secret_files)
    engine = stack.enter_context(connect(context))
    if loaded := load_image(asked.bundled_name, context):
        spec = replace(spec, image=loaded)
        engine.ensure_image(loaded, when="never", progress=context.progress)
    elif asked.dockerfile is None:
        engine.ensure_image(spec.image, when=asked.pull, progress=context.progress)
    else:
        folder, name = asked.build_from
        engine.build_image(
            folder,
            tag=spec.image,
            dockerfile=name,
            arguments=asked.build_arguments,
            network=asked.build_network,
            log=context.log,
            progress=context.progress,
        )
    running = engine.ensure_running(spec)
    if not asked.keep:
        stack.callback(running.remove)
    return running


def remove_earlier_container(context: StepContext, purpose: str) -> None:
    """Remove the container that an earlier process of this run made for a purpose, if there is one.

    Raises:
        ContainerError: if the engine does not answer, or does not remove it.
    """
    from agent.component.container_engine import connect
    from agent.host.containers.records import RECORDS

    if (context.run_dir / RECORDS / f"{purpose}.json").exists():
        with connect(context) as engine:
            engine.remove(purpose)


def load_image(reference: str, context: StepContext) -> str:
    """Load an image from the bundle of this run; return its name in Docker, empty if the run has no bundle.

    Raises:
        ActionFailedError: if Docker cannot load it.
    """
    bundle = bundle_of(context.facts)
    if bundle is None:
        return ""
    if ("image", reference) not in bundle.contents:
        return reference
    command = ["docker", "load", "--quiet", f"--input={image_file(bundle.folder, reference)}"]
    context.processes.run(command, log=context.log)
    return bundled_tag(reference)
