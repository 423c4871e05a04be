"""Share code of llama.cpp's actions: a model, a step for each of its variants, records that name both."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from actions.llamacpp.programs import (
    GPU_REMEDY,
    build_number,
    computed_on,
    find_program,
    listed_devices,
    on_the_cpu,
)
from actions.llamacpp.variants import DEFAULT_MODELS, NAME_PATTERN, Variant, with_plain_twins
from agent.component.component import Action, ComponentParameters, Plan, Step, StepOutcome
from agent.component.parameter_types import OptionalCount, OptionalPath  # noqa: TC001 - pydantic reads them
from agent.core.errors import ParseError
from agent.core.names import canonical
from agent.core.records import Metric, ParsedOutput, Reason, Validity, Verdict
from agent.facts.agent_paths import PACKAGE_DIR
from parsers.llamacpp import FORMAT, TOOL
from parsers.llamacpp.build import build_of
from parsers.llamacpp.devices import no_gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent.component.component import StepContext
    from agent.core.records import MetadataValue
    from agent.facts import Facts

DEFAULT_PACKAGE = "llamacpp"
"""Folder of the programs below the package folder, as LlamaCppInstallation names it."""


def names_of(value: Any) -> Any:
    """Return a list that a profile may also write as one item, or as items separated by commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, int):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


class ModelParameters(ComponentParameters):
    """Parameters: a model and the programs."""

    model: str = Field(..., pattern=rf"^{NAME_PATTERN}$", description="The model's name in the records.")
    models_dir: OptionalPath = Field(
        None, description=f"Folder of the models; by default {DEFAULT_MODELS} below the package folder."
    )
    llamacpp: OptionalPath = Field(
        None,
        description=f"Folder of the programs; by default {DEFAULT_PACKAGE} below the package folder.",
    )
    arguments: tuple[str, ...] = Field((), description="Further arguments of the program.")

    _arguments = field_validator("arguments", mode="before")(names_of)

    def models(self, package_dir: Path) -> Path:
        """Return the folder of models."""
        return self.models_dir or package_dir / DEFAULT_MODELS

    def program(self, package_dir: Path, *names: str) -> Path:
        """Return the first of some programs that exists; raise ActionFailedError if none does."""
        return find_program(self.llamacpp or package_dir / DEFAULT_PACKAGE, *names)


class VariantParameters(ModelParameters):
    """Parameters: variants of a model, and how to run them."""

    variants: tuple[str, ...] = Field(..., min_length=1, description="Variants, such as F16,Q8_0,Q4_K_M.")
    threads: int = Field(0, ge=0, description="Compute threads; 0 for one per usable CPU.")
    gpu_layers: OptionalCount = Field(
        None, description="Layers on the GPU; 999 for all. If absent, the program decides."
    )
    plain_twins: bool = Field(
        default=False,
        description="Also make each variant that has an importance matrix without one, such as Q4_K_M-PLAIN.",
    )

    @model_validator(mode="before")
    @classmethod
    def _one_variant(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {
            ("variants" if canonical(str(key)) == "variant" else key): value for key, value in values.items()
        }

    @field_validator("variants", mode="before")
    @classmethod
    def _variants(cls, value: Any) -> Any:
        names = names_of(value)
        return tuple(str(name).upper() for name in names) if isinstance(names, tuple) else names

    @field_validator("variants")
    @classmethod
    def _names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not re.fullmatch(NAME_PATTERN, name):
                raise ValueError(f"{name!r} is not a variant: use a type of llama.cpp, such as Q4_K_M")
        return tuple(dict.fromkeys(value))

    @property
    def run_arguments(self) -> list[str]:
        """Return arguments for threads and layers, common to all programs that compute."""
        threads = self.threads or len(os.sched_getaffinity(0))
        layers = [] if self.gpu_layers is None else ["--n-gpu-layers", str(self.gpu_layers)]
        return ["--threads", str(threads), *layers, *self.arguments]


class VariantAction(Action):
    """Do one thing with each variant; each is a separate step, so a resumed run continues with the next."""

    Parameters: ClassVar[type[ComponentParameters]] = VariantParameters
    parameters: VariantParameters
    what: ClassVar[str]
    """Last part of the scenario, such as ``mmlu``."""
    reason: ClassVar[str]
    """Description of the action for the plan, followed by the model."""
    computes: ClassVar[bool] = True
    """True if the action runs the model, so that the device matters."""

    @abstractmethod
    def command(self, variant: Variant, program: Path, case_dir: Path) -> list[str]:
        """Return the command line."""

    @property
    @abstractmethod
    def programs(self) -> tuple[str, ...]:
        """Names of the program, newest first."""

    @abstractmethod
    def run(self, variant: Variant, context: StepContext, case_dir: Path) -> StepOutcome:
        """Run the program for a variant."""

    def uses_gpus(self, facts: Facts) -> bool:
        """Return True if layers are to run on GPUs."""
        return super().uses_gpus(facts) or (self.computes and bool(self.parameters.gpu_layers))

    def plan(self, facts: Facts) -> Plan:
        """Plan a step for each variant.

        The files are not checked: an earlier action may have to make them.
        """
        names = self.parameters.variants
        return self.plan_for(with_plain_twins(names) if self.parameters.plain_twins else names, facts)

    def plan_for(self, names: Iterable[str], facts: Facts) -> Plan:
        """Plan a step for each of these variants."""
        folder = self.parameters.models(facts[PACKAGE_DIR])
        variants = [Variant(self.parameters.model, name, folder) for name in names]
        return Plan(tuple(self._step(variant) for variant in variants))

    def _step(self, variant: Variant) -> Step:
        shown = self.command(variant, Path(self.programs[0]), Path("…"))
        return Step(
            name=f"{self.what}-{variant.name}".lower(),
            reason=f"{self.reason} {variant.model} in {variant.name}",
            run=partial(self._run, variant),
            command=" ".join(shown),
        )

    def _run(self, variant: Variant, context: StepContext) -> StepOutcome:
        case_dir = context.case_dir("llamacpp", f"{variant.model}-{variant.name}-{self.what}")
        return self.run(variant, context, case_dir)

    def program(self, context: StepContext) -> Path:
        """Return the program on this host; raise ActionFailedError if it does not exist."""
        return self.parameters.program(context.package_dir, *self.programs)

    def file_of(self, variant: Variant) -> Path:
        """Return the variant's file.

        Raises:
            ActionFailedError: if the file does not exist.
        """
        return variant.require()

    def output(
        self,
        variant: Variant,
        context: StepContext,
        program: Path,
        log: Path,
        metrics: Sequence[Metric],
        *,
        details: Mapping[str, MetadataValue] | None = None,
        verdict: Verdict | None = None,
        complete: bool = True,
    ) -> ParsedOutput:
        """Return the output of an action: each record names model and variant."""
        size = variant.path.stat().st_size if variant.path.is_file() else 0
        text = read_log(log)
        build = build_of(text) or build_number(program, context)
        where, said = self._where(program, context, text) if self.computes else ({}, "")
        if said:
            reasons = verdict.reasons if verdict else ()
            verdict = Verdict(
                Validity.INVALID, (*reasons, Reason(on_the_cpu(said), GPU_REMEDY, code="no_gpu"))
            )
        return ParsedOutput(
            format=FORMAT,
            tool_name=TOOL,
            tool_version=str(build or ""),
            scenario=variant.scenario(self.what),
            metrics=tuple(
                replace(metric, metadata={**variant.metadata, **metric.metadata}) for metric in metrics
            ),
            verdict=verdict,
            complete=complete,
            details={"model_file": str(variant.path), "model_size": size, **where, **(details or {})},
            sources=(str(log),),
        )

    def _where(
        self, program: Path, context: StepContext, text: str
    ) -> tuple[Mapping[str, MetadataValue], str]:
        """Return the devices used besides the CPU, and messages about a GPU that was not used."""
        layers = self.parameters.gpu_layers
        devices = None if layers == 0 else listed_devices(program, context.processes, context.log)
        return computed_on(layers, devices), no_gpu(text, layers, devices)


def read_log(log: Path) -> str:
    """Return a log's text.

    Raises:
        ParseError: if it cannot be read.
    """
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ParseError(f"the log cannot be read: {error.strerror}", where=str(log)) from error
