"""llama.cpp's server as an action of its own: it serves a model to all that follows in its group."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import Field, model_validator

from actions.llamacpp.server import LlamaCppServer, ServerParameters
from agent.component import (
    ComponentParameters,
    Plan,
    Service,
    ServiceAction,
    Step,
    StepContext,
    StepOutcome,
)
from agent.errors import ActionFailedError

if TYPE_CHECKING:
    from agent.facts import Facts

__all__ = ["LlamaCppServerAction", "LlamaCppServerParameters"]


class LlamaCppServerParameters(ComponentParameters, ServerParameters):
    """What ServerParameters has, and what an action needs besides."""

    name: str = Field("", description="The name it is served under; the file's by default.")
    environment: Path | None = Field(None, description="Environment with xllamacpp; or give binary.")

    @model_validator(mode="after")
    def _something_that_serves(self) -> LlamaCppServerParameters:
        if self.environment is None and self.binary is None:
            raise ValueError("name a binary (llama-server) or an environment that has xllamacpp")
        return self

    @property
    def served_as(self) -> str:
        """The name that /v1/models answers."""
        return self.name or Path(self.model).stem


class LlamaCppServerAction(ServiceAction):
    """Serves a model until its group ends; other actions of the group find it as ``service:<scenario>``."""

    Parameters: ClassVar[type[ComponentParameters]] = LlamaCppServerParameters

    def __init__(self, parameters: ComponentParameters) -> None:
        super().__init__(parameters)
        self.asked = cast("LlamaCppServerParameters", parameters)

    def plan(self, facts: Facts) -> Plan:  # noqa: ARG002 - what it needs may still be made by dependencies
        """One step: start it."""
        asked = self.asked
        what = asked.binary or f"xllamacpp of {asked.environment}"
        step = Step(
            "serve",
            f"the group asks {asked.served_as}: {asked.parallel} slots of {asked.context} tokens",
            self._start,
            shlex.join([str(what), "--model", asked.model]),
            estimate_s=5,
        )
        return Plan((step,))

    def _start(self, context: StepContext) -> StepOutcome:
        asked = self.asked
        python = (asked.environment or Path("/usr")) / "bin" / "python"
        if asked.binary is None and not python.exists():
            raise ActionFailedError(
                f"the environment {asked.environment} has no python",
                remedy="add a PythonEnvironmentInstallation to the dependencies, or correct environment",
            )
        server = LlamaCppServer(
            asked,
            name=asked.served_as,
            python=python,
            processes=context.processes,
            log=context.log,
            stop=context.stop,
        )
        server.__enter__()
        try:
            values = {
                "url": server.url,
                "model": server.name,
                "model_file": str(server.model_path),
                "model_sha256": server.model_sha256(),
                **server.facts,
                **_slots(server.properties()),
            }
        except BaseException:
            server.stop()
            raise

        def death() -> str | None:
            how = server.death()
            return how and "\n".join([how, *server.last_words()])

        service = Service(asked.scenario or "LlamaCppServer", values, server.stop, death)
        return StepOutcome(
            f"{server.name} at {server.url}, {values.get('slots', '?')} slots of "
            f"{values.get('context', '?')} tokens",
            service=service,
        )


def _slots(properties: dict[str, Any]) -> dict[str, int]:
    """How many requests it serves at once, and the tokens of each, as it says itself."""
    settings = properties.get("default_generation_settings")
    found = {
        "slots": properties.get("total_slots"),
        "context": settings.get("n_ctx") if isinstance(settings, dict) else None,
    }
    return {name: value for name, value in found.items() if isinstance(value, int)}
