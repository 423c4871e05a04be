"""llama.cpp's server as an action of its own: it serves a model to all that follows in its group."""

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
    """What ServerParameters has, and where model and program are."""

    model: str = Field(description="GGUF file, package:<module>, or with variant the model's name.")
    variant: str = Field("", description="A variant of the model that other actions made, such as Q4_K_M.")
    models_dir: OptionalPath = Field(
        None, description=f"The folder of models; by default {DEFAULT_MODELS} below the package folder."
    )
    llamacpp: OptionalPath = Field(
        None,
        description=f"The folder of the programs; by default {DEFAULT_PACKAGE} below the package folder.",
    )
    environment: OptionalPath = Field(None, description="Serve with xllamacpp of this Python environment.")
    name: str = Field("", description="The name it is served under; by default the file's.")
    container: OptionalContainer = Field(
        None,
        description="The container it runs in, or its image alone; binary (by default llama-server) or "
        "environment is inside it, or mounted. Where network is not host, the port is published.",
    )

    @model_validator(mode="after")
    def _of_the_binary(self) -> LlamaCppServerParameters:
        if self.environment and (self.binary or self.gpu_layers is not None or self.arguments):
            raise ValueError("binary, gpu_layers and arguments are llama-server's: leave environment out")
        if self.container and self.container.network == "none":
            raise ValueError("nobody reaches a server in a container without a network")
        if self.container and self.container.gpus == "none" and self.gpu_layers:
            raise ValueError(
                f"gpu_layers is {self.gpu_layers}, and the container sees no GPU: give it gpus (ServerGpus)"
            )
        return self

    def server(self, package_dir: Path) -> ServerParameters:
        """The server, with the model's file and the program.

        Raises:
            ActionFailedError: if the variant or the program is not there.
        """
        model, binary = self.model, self.binary
        if self.variant:
            models = self.models_dir or package_dir / DEFAULT_MODELS
            path = Variant(self.model, self.variant.upper(), models).path
            if not path.is_file():
                raise ActionFailedError(
                    f"{path} is not there", remedy="make it: a LlamaCppQuantize before this action"
                )
            model = str(path)
        if self.environment is None and binary is None and self.container:
            binary = Path("llama-server")  # on the PATH of its image
        elif self.environment is None and binary is None:
            binary = find_program(self.llamacpp or package_dir / DEFAULT_PACKAGE, "llama-server", "server")
        if not model.startswith(PACKAGE_PREFIX):
            model = str(Path(model).absolute())  # a container has another working folder
        own = {name: getattr(self, name) for name in ServerParameters.model_fields}
        return ServerParameters.model_validate({**own, "model": model, "binary": binary})


class LlamaCppServerAction(ServiceAction):
    """Serves a model until its group ends; other actions of the group find it as ``service:<scenario>``."""

    Parameters: ClassVar[type[ComponentParameters]] = LlamaCppServerParameters

    def __init__(self, parameters: ComponentParameters) -> None:
        super().__init__(parameters)
        self.asked = cast("LlamaCppServerParameters", parameters)

    def plan(self, facts: Facts) -> Plan:  # noqa: ARG002 - what it needs may still be made by dependencies
        """One step: start it."""
        asked = self.asked
        what = f"xllamacpp of {asked.environment}" if asked.environment else asked.binary or "llama-server"
        model = f"{asked.model}-{asked.variant}" if asked.variant else asked.model
        step = Step(
            "serve",
            f"the group asks {model}: {asked.parallel} slots of {asked.context} tokens",
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
        """The port that a container publishes; 0 where the host's network is the server's own.

        Raises:
            ActionFailedError: if it is taken.
        """
        container = self.asked.container
        if container is None or container.network == "host":
            return 0
        check_port(_HOST, self.asked.port)
        return self.asked.port or any_free(_HOST)

    def _processes(
        self, wish: ServerParameters, context: StepContext, stack: ExitStack, published: int
    ) -> ProcessRunner:
        """What runs the server: the host, or a container that is removed when ``stack`` is closed."""
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
    """A model's file; of one that is split, such as ``x-00001-of-00003.gguf``, the folder of all parts."""
    return model.parent if re.search(r"-\d{5}-of-\d{5}\.gguf$", model.name) else model


def _slots(properties: dict[str, Any]) -> dict[str, int]:
    """How many requests it serves at once, and the tokens of each, as it says itself."""
    settings = properties.get("default_generation_settings")
    found = {
        "slots": properties.get("total_slots"),
        "context": settings.get("n_ctx") if isinstance(settings, dict) else None,
    }
    return {name: value for name, value in found.items() if isinstance(value, int)}
