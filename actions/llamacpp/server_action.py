"""Run llama.cpp's server as an action: it serves a model to all later actions of its group."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import Field, model_validator

from actions.llamacpp.model_file import PACKAGE_PREFIX
from actions.llamacpp.programs import find_program
from actions.llamacpp.server import PROGRAM, LlamaCppServer
from actions.llamacpp.server_parameters import ServerParameters
from actions.llamacpp.variant_action import DEFAULT_PACKAGE
from actions.llamacpp.variants import DEFAULT_MODELS, Variant
from agent.component.component import (
    ComponentParameters,
    Plan,
    Service,
    ServiceAction,
    Step,
    StepContext,
    StepOutcome,
)
from agent.component.container_parameters import OptionalContainer  # noqa: TC001 - pydantic reads it
from agent.component.open_container import open_container
from agent.component.parameter_types import OptionalPath  # noqa: TC001 - pydantic reads it
from agent.core.errors import ActionFailedError
from agent.host.containers import Mount, Port
from agent.host.ports import any_free, check_port

if TYPE_CHECKING:
    from agent.facts import Facts
    from agent.host.processes import ProcessRunner

_HOST = "127.0.0.1"


class LlamaCppServerParameters(ComponentParameters, ServerParameters):
    """ServerParameters, plus the places of model and program."""

    model: str = Field(description="GGUF file, package:<module>, or, with variant, the model's name.")
    variant: str = Field("", description="Variant of the model, made by other actions, such as Q4_K_M.")
    models_dir: OptionalPath = Field(
        None, description=f"Folder of the models; by default {DEFAULT_MODELS} below the package folder."
    )
    llamacpp: OptionalPath = Field(
        None,
        description=f"Folder of the programs; by default {DEFAULT_PACKAGE} below the package folder.",
    )
    environment: OptionalPath = Field(None, description="Serve with xllamacpp of this Python environment.")
    name: str = Field("", description="Name of the model for clients; by default the file's.")
    container: OptionalContainer = Field(
        None,
        description="The container to run in, or only its image; binary (by default llama-server) or "
        "environment is inside it, or mounted. The port is published unless network is host.",
    )

    @model_validator(mode="after")
    def _of_the_binary(self) -> LlamaCppServerParameters:
        if self.environment and (self.binary or self.gpu_layers is not None or self.arguments):
            raise ValueError("binary, gpu_layers and arguments are for llama-server: remove environment")
        if self.container and self.container.network == "none":
            raise ValueError("a server in a container without a network cannot be reached")
        if self.container and self.container.gpus == "none" and self.gpu_layers:
            raise ValueError(
                f"gpu_layers is {self.gpu_layers}, but the container has no GPU: set its gpus (ServerGpus)"
            )
        return self

    def server(self, package_dir: Path) -> ServerParameters:
        """Return the server's parameters with the model's file and the program.

        Raises:
            ActionFailedError: if the variant or the program does not exist.
        """
        model, binary = self.model, self.binary
        if self.variant:
            models = self.models_dir or package_dir / DEFAULT_MODELS
            path = Variant(self.model, self.variant.upper(), models).path
            if not path.is_file():
                raise ActionFailedError(
                    f"{path} does not exist", remedy="add a LlamaCppQuantize before this action"
                )
            model = str(path)
        if self.environment is None and binary is None and self.container:
            binary = Path("llama-server")  # on the PATH of its image
        elif self.environment is None and binary is None:
            binary = find_program(self.llamacpp or package_dir / DEFAULT_PACKAGE, "llama-server", "server")
        if not model.startswith(PACKAGE_PREFIX):
            model = str(Path(model).absolute())  # a container has a different working folder
        own = {name: getattr(self, name) for name in ServerParameters.model_fields}
        return ServerParameters.model_validate({**own, "model": model, "binary": binary})


class LlamaCppServerAction(ServiceAction):
    """Serve a model until its group ends; actions of the group find it as ``service:<scenario>``."""

    Parameters: ClassVar[type[ComponentParameters]] = LlamaCppServerParameters

    def __init__(self, parameters: ComponentParameters) -> None:
        super().__init__(parameters)
        self.asked = cast("LlamaCppServerParameters", parameters)

    def uses_gpus(self, facts: Facts) -> bool:
        """Return True if layers are to run on GPUs."""
        return super().uses_gpus(facts) or bool(self.asked.gpu_layers)

    def plan(self, facts: Facts) -> Plan:  # noqa: ARG002 - dependencies may still have to create what it needs
        """Plan one step: start the server."""
        asked = self.asked
        what = f"xllamacpp of {asked.environment}" if asked.environment else asked.binary or "llama-server"
        model = f"{asked.model}-{asked.variant}" if asked.variant else asked.model
        step = Step(
            "serve",
            f"the group uses {model}: {asked.parallel} slots of {asked.context} tokens",
            self._start,
            f"{what} --model {model}",
            estimate_s=5,
        )
        return Plan((step,))

    def _start(self, context: StepContext) -> StepOutcome:
        asked = self.asked
        python = (asked.environment or Path("/usr")) / "bin" / "python"
        if asked.environment and not asked.container and not python.exists():
            raise ActionFailedError(
                f"the environment {asked.environment} has no python",
                remedy="add a PythonEnvironmentInstallation to the dependencies, or correct environment",
            )
        wish = asked.server(context.package_dir)
        with ExitStack() as started:
            published = self._published()
            server = LlamaCppServer(
                wish,
                name=asked.name or Path(wish.model).stem or wish.model,
                python=python,
                processes=self._processes(wish, context, started, published),
                log=context.log,
                stop=context.stop,
                contained=asked.container is not None,
                published=published,
            )
            started.enter_context(server)
            values = {
                "url": server.url,
                "model": server.name,
                "model_file": str(server.model_path),
                "model_sha256": server.model_sha256(),
                **server.facts,
                **_slots(server.properties()),
            }
            stack = started.pop_all()

        def death() -> str | None:
            how = server.death()
            return how and "\n".join([how, *server.last_words()])

        service = Service(asked.scenario or "LlamaCppServer", values, stack.close, death, server.relaunch())
        return StepOutcome(
            f"{server.name} at {server.url}, {values.get('slots', '?')} slots of "
            f"{values.get('context', '?')} tokens",
            service=service,
        )

    def _published(self) -> int:
        """Return the port that the container publishes; 0 if the server uses the host's network.

        Raises:
            ActionFailedError: if the port is taken.
        """
        container = self.asked.container
        if container is None or container.network == "host":
            return 0
        check_port(_HOST, self.asked.port)
        return self.asked.port or any_free(_HOST)

    def _processes(
        self, wish: ServerParameters, context: StepContext, stack: ExitStack, published: int
    ) -> ProcessRunner:
        """Return the process runner: the host's, or a container's that is removed when ``stack`` closes."""
        container = self.asked.container
        if container is None:
            return context.processes
        wanted = (PROGRAM if self.asked.environment else None, _whole(Path(wish.model)), wish.binary)
        files = [path for path in wanted if path and path.is_absolute() and path.exists()]
        return open_container(
            container,
            context,
            stack,
            purpose=f"server-{self.asked.scenario or 'llamacpp'}",
            mounts=[Mount(path, str(path), read_only=True) for path in files],
            ports=[Port(published, published, _HOST)] if published else (),
        )


def _whole(model: Path) -> Path:
    """Return a model's file; if split, such as ``x-00001-of-00003.gguf``, the folder of all parts."""
    return model.parent if re.search(r"-\d{5}-of-\d{5}\.gguf$", model.name) else model


def _slots(properties: dict[str, Any]) -> dict[str, int]:
    """Return the slots and the tokens per slot that the server reports."""
    settings = properties.get("default_generation_settings")
    found = {
        "slots": properties.get("total_slots"),
        "context": settings.get("n_ctx") if isinstance(settings, dict) else None,
    }
    return {name: value for name, value in found.items() if isinstance(value, int)}
