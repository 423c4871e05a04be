"""The one door to containers: images, containers of a run, commands in them. Only this package knows Docker.

::

    from agent.host.containers import ContainerSpec, Mount
    from agent.component.container_engine import connect          # imports the SDK: where it is used

    with connect(context) as engine:
        engine.ensure_image(image, progress=context.progress)
        container = engine.ensure_running(ContainerSpec(image=image, purpose="harness", gpus="all"))
        container.run(["make", "build"], log=context.log, timeout_s=3600, cwd="/work", user="1000:1000")

Every error of the engine is a ``ContainerError`` with its remedy. Containers are removed when the run has
ended, not by a step: the next one finds them by ``ensure_running`` with the same wish.
"""

from agent.host.containers.spec import (
    NVIDIA_ULIMITS,
    SECRETS_TARGET,
    ContainerSpec,
    GpuAccess,
    Mount,
    Port,
    Ulimit,
)

__all__ = [
    "NVIDIA_ULIMITS",
    "SECRETS_TARGET",
    "ContainerSpec",
    "GpuAccess",
    "Mount",
    "Port",
    "Ulimit",
]
