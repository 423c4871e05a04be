"""The only access to containers: images, a run's containers, commands. Only this package uses Docker.

::

    from agent.host.containers import ContainerSpec, Mount
    from agent.component.container_engine import connect          # imports the SDK only if used

    with connect(context) as engine:
        engine.ensure_image(image, progress=context.progress)
        container = engine.ensure_running(ContainerSpec(image=image, purpose="harness", gpus="all"))
        container.run(["make", "build"], log=context.log, timeout_s=3600, cwd="/work", user="1000:1000")

Every error of the engine is a ``ContainerError`` with its remedy. Containers are removed when the run has
ended, not by a step: the next step finds them with ``ensure_running`` and the same spec.
"""

from agent.host.containers.spec import (
    AMD_DEVICE_PATHS,
    NVIDIA_ULIMITS,
    SECRETS_TARGET,
    ContainerSpec,
    GpuAccess,
    Mount,
    Port,
    Ulimit,
)

__all__ = [
    "AMD_DEVICE_PATHS",
    "NVIDIA_ULIMITS",
    "SECRETS_TARGET",
    "ContainerSpec",
    "GpuAccess",
    "Mount",
    "Port",
    "Ulimit",
]
