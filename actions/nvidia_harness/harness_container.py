"""Run the container of NVIDIA's harness, and make inside it."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from actions.nvidia_harness.alive import Alive, gpu_use
from actions.nvidia_harness.failures import explained, silent_failure
from actions.nvidia_harness.workspace import BUILT, CLONED, CONTAINER_FOLDER
from agent.host.containers import ContainerSpec, GpuAccess, Mount, Ulimit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from actions.nvidia_harness.parameters import MLPerfParameters
    from actions.nvidia_harness.workspace import Workspace
    from agent.component.component import StepContext
    from agent.host.containers.container import Container
    from agent.host.processes import ProcessResult

PURPOSE = "mlperf-nvidia"
_ACCESS = {"gpus": GpuAccess.DEVICE_REQUEST, "cdi": GpuAccess.CDI, "runtime": GpuAccess.RUNTIME}
_CLOCK_FILES = (Path("/etc/timezone"), Path("/etc/localtime"))


def image_name(workspace: Workspace, parameters: MLPerfParameters) -> str:
    """Return the image: the profile's, or the one that prebuild builds."""
    env = parameters.make_variables.get("ENV", "dev")
    return parameters.image or workspace.layout.image.format(tag=workspace.tag, env=env)


def container_spec(workspace: Workspace, parameters: MLPerfParameters) -> ContainerSpec:
    """Return the container of Makefile.docker's launch_docker, but detached, waiting for commands.

    It does not get the caller's home folder and ssh keys, or /dev/fuse: those are for NVIDIA's own network.
    """
    scratch = workspace.scratch.path
    mounts = [Mount(workspace.folder, CONTAINER_FOLDER), Mount(scratch, str(scratch))]
    mounts += [Mount(path, str(path), read_only=True) for path in _CLOCK_FILES if path.exists()]
    mounts += [Mount(Path(source), target) for source, target in parameters.mounts.items()]
    chosen = parameters.gpus
    return ContainerSpec(
        image=image_name(workspace, parameters),
        purpose=PURPOSE,
        init=parameters.init,
        gpus="all" if chosen == "all" else "none" if chosen == "none" else tuple(chosen.split(",")),
        gpu_access=_ACCESS[parameters.gpu_access],
        shm_size_bytes=int(parameters.shm_size_gb * 2**30),
        ulimits={name: Ulimit(limit, limit) for name, limit in parameters.ulimits.items()},
        mounts=tuple(mounts),
        # Only the number: with a group, the engine would drop the account's other groups, and sudo.
        user=str(workspace.account.uid),
        environment={"MLPERF_SCRATCH_PATH": str(scratch), "HOST_HOSTNAME": socket.gethostname()},
        network=parameters.network,
        workdir=CONTAINER_FOLDER,
        cap_add=parameters.capabilities,
        security_opt=parameters.security_options,
        keep=parameters.keep_container,
    )


class HarnessContainer:
    """Runs make in the container as the account, and shows that it is alive.

    Args:
        container: the container.
        workspace: the workspace of the run.
        parameters: the parameters.
        context: the context of the step.
    """

    def __init__(
        self,
        container: Container,
        workspace: Workspace,
        parameters: MLPerfParameters,
        context: StepContext,
    ) -> None:
        self.container = container
        self.workspace = workspace
        self.parameters = parameters
        self.context = context

    def make(
        self,
        target: str,
        *variables: str,
        title: str = "",
        usual_minutes: float | None = None,
        env: Mapping[str, str] | None = None,
        lacking: Callable[[], str | None] | None = None,
    ) -> ProcessResult:
        """Run make.

        Args:
            target: the target of make.
            variables: ``NAME=value``; those of the profile precede them.
            title: the stage, for people; by default the target.
            usual_minutes: usual duration.
            env: environment variables.
            lacking: for a stage of downloads, returns the files it should have made; see ``explained``.

        Raises:
            ActionFailedError: if it fails, or exits with 0 without doing its work; includes a remedy.
        """
        own = [f"{name}={value}" for name, value in self.parameters.make_variables.items()]
        return self.run(
            ["make", target, *own, *variables],
            title=title or f"make {target}",
            usual_minutes=usual_minutes,
            env=env,
            lacking=lacking,
        )

    def run(
        self,
        command: list[str],
        *,
        title: str,
        usual_minutes: float | None = None,
        env: Mapping[str, str] | None = None,
        lacking: Callable[[], str | None] | None = None,
    ) -> ProcessResult:
        """Run a command; see ``make``."""
        complaints: list[str] = []

        def take(line: str) -> None:
            alive.line(line)
            if complaint := silent_failure(line, download=lacking is not None):
                complaints.append(complaint)

        usual_s = usual_minutes * 60 if usual_minutes else None
        with (
            explained(title, self.context.log, complaints, lacking or (lambda: None)),
            Alive(self.context.progress, title, usual_s=usual_s, gpu_use=gpu_use()) as alive,
        ):
            result = self.container.run(
                command,
                log=self.context.log,
                timeout_s=self.parameters.stage_timeout,
                env=env,
                cwd=CONTAINER_FOLDER,
                on_line=take,
            )
        return result  # noqa: RET504 - the context may raise

    def enter(self) -> None:
        """Install in this container what ``make build`` installed in an earlier one.

        Python packages are in the home folder of the container, which is empty in a new one.
        """
        built = self.workspace.noted(BUILT)
        if built and built.get("container") != self.container.identifier:
            self.make(*self.workspace.layout.reenter, title="what make build installs, in a new container")
            self.note_built()

    def clone_reference(self) -> None:
        """Clone MLPerf's own code below build/, like ``make build``: some data stages need it earlier.

        gptj's download_data.sh needs it; retinanet's runs a program of it.
        """
        if self.workspace.noted(CLONED) or self.workspace.noted(BUILT):
            return
        # git does not clone into a folder that an interrupted clone has left.
        self.run(["rm", "-rf", f"{CONTAINER_FOLDER}/build/inference"], title="clearing build/inference")
        self.make("clone_loadgen", title="cloning MLPerf's reference code")
        self.workspace.note(CLONED, {"round": self.workspace.mlperf_round})

    def note_built(self) -> None:
        """Record that ``make build`` has run in this container."""
        self.workspace.note(
            BUILT,
            {
                "container": self.container.identifier,
                "round": self.workspace.mlperf_round,
                "commit": self.workspace.commit(self.context.facts),
            },
        )


@contextmanager
def harness_container(
    workspace: Workspace, parameters: MLPerfParameters, context: StepContext, *, enter: bool = True
) -> Iterator[HarnessContainer]:
    """Return the run's container: the existing one if it still fits, else a new one.

    Args:
        workspace: the workspace of the run.
        parameters: the parameters.
        context: the context of the step.
        enter: True if the packages of ``make build`` are needed.

    Raises:
        ContainerError: if the container cannot be started.
    """
    from agent.component.container_engine import connect

    with connect(context) as engine:
        container = engine.ensure_running(container_spec(workspace, parameters))
        harness = HarnessContainer(container, workspace, parameters, context)
        if enter:
            harness.enter()
        yield harness
