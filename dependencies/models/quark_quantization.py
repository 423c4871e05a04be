"""Quantises a model to fp8 with AMD's Quark, in a Python environment of its own."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.component.environment_script import program_command
from agent.component.parameter_types import OptionalPath  # noqa: TC001 - pydantic reads it
from agent.core.errors import DependencyFailedError, HostError, LiftedBy
from agent.facts.agent_paths import PACKAGE_DIR, lift_of_path
from agent.facts.files import exists, file_stamp, link_target, text_of
from agent.facts.model_folders import model_folder
from agent.facts.storage import MOUNTS, free_bytes
from agent.facts.torch_build import torch_build
from agent.facts.visible_gpus import visible_amd_gpus
from dependencies.models.environment_module import require_environment, run_module
from dependencies.packages.package_folder import locked, package_link, point_link, removal_of, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.downloads import Download
    from agent.facts import Facts

_GIB = 1024**3
_NOTE = "quantised.json"
"""The file that is written last: without it a folder is incomplete."""
_PROGRAM = "model_files.quark_fp8"
_ROCM_REMEDY = (
    "give environment the folder of one with ROCm's torch, amd-quark, transformers and accelerate "
    "(QuarkEnvironment=/opt/quark)"
)


class QuarkQuantizationParameters(ComponentParameters):
    """The model, and how it is quantised."""

    package_name: str = Field(
        ...,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$",
        description="Its name below the package folder; {PackagePath:name} refers to the quantised model.",
    )
    source: Path = Field(..., description="The folder of the model with its full weights.")
    calibration: Path = Field(
        ...,
        description="Samples whose activations give the scales: JSON lines with token_ids. MLPerf allows only"
        " those of its calibration set.",
    )
    environment: OptionalPath = Field(
        None,
        description="A Python environment with amd-quark, torch for this host's GPUs, and transformers. On"
        " AMD's GPUs, torch must be ROCm's.",
    )
    kv_cache: Literal["fp8", ""] = Field("fp8", description="How the KV cache is quantised.")
    samples: int = Field(1000, gt=0, description="Number of calibration samples.")
    sequence_length: int = Field(1024, gt=0, description="Longest calibration sample, in tokens.")
    required_space: float = Field(0, ge=0, description="GiB that must be free for the quantised model.")


class QuarkQuantization(Dependency):
    """Provides a model with weights and activations in fp8.

    It is stored in ``.quantised/<name>-<hash>``, and a link points there. The settings are those of AMD's
    submissions (mlcommons/inference_results_v5.1, closed/AMD/setup/dataset_and_model/quantize_llama2_70b.sh).
    """

    lifts = frozenset()
    Parameters = QuarkQuantizationParameters
    parameters: QuarkQuantizationParameters

    def plan(self, facts: Facts) -> Plan:
        """Quantise the model, unless that was done with the same source and settings."""
        parameters = self.parameters
        link, target = package_link(facts, parameters.package_name, "a model")
        folder = self._folder(facts)
        reason = _wrong(facts, folder)
        if not reason and target == folder:
            return Plan(nothing_to_do=f"the quantised model is whole: {folder}")
        environment = self._environment()
        if reason:
            self._check_space(facts)
            _check_torch(facts, environment)
        step = Step(
            "quantise",
            reason or f"the link to the model is out of date: {link} does not point to {folder}",
            self._quantise,
            f"{' '.join(program_command(environment, _PROGRAM))}  # {parameters.source}",
            lambda fresh: not self.plan(fresh).steps,
            undo={"folder": str(folder), "link": str(link)},
        )
        return Plan((step,))

    def downloads(self, facts: Facts) -> tuple[Download, ...]:  # noqa: ARG002 - see Component
        """Return nothing: the model and the samples are on the host."""
        return ()

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:
        """Remove the quantised model and the link to it; the source stays."""
        return removal_of(Path(values["folder"]), Path(values["link"]), facts)

    def _environment(self) -> Path:
        if self.parameters.environment is None:
            raise HostError(
                "Quark has no environment: one for AMD's GPUs needs ROCm's torch, which PyPI does not have",
                remedy=_ROCM_REMEDY,
                lifted_by=LiftedBy.NOTHING,
            )
        return self.parameters.environment

    def _folder(self, facts: Facts) -> Path:
        """Return the folder of the quantised model, which depends on everything that it is made of."""
        asked = self.parameters
        made_of = [
            str(asked.source), str(facts[link_target(asked.source)] or ""),
            facts[file_stamp(asked.source / "config.json")], str(asked.calibration),
            facts[file_stamp(asked.calibration)], asked.kv_cache, asked.samples, asked.sequence_length,
        ]  # fmt: skip
        key = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
        return facts[PACKAGE_DIR] / ".quantised" / f"{asked.package_name}-{key}"

    def _check_space(self, facts: Facts) -> None:
        wanted, place = self.parameters.required_space, facts[PACKAGE_DIR]
        mounts = facts[MOUNTS]
        free = free_bytes(mounts, place)
        if free is not None and free < wanted * _GIB:
            raise HostError(
                f"{place} has {free / _GIB:.1f} GiB free; the quantised model needs {wanted:g} GiB",
                remedy="free some space, or choose another folder with --package-dir",
                lifted_by=LiftedBy.SPACE,
            )

    def _quantise(self, context: StepContext) -> StepOutcome:
        asked, environment = self.parameters, self._environment()
        require_environment(environment)
        facts = context.facts.fresh()
        if problem := facts[model_folder(asked.source)].problem(weights=True):
            raise DependencyFailedError(
                f"{asked.source} holds no whole model: {problem}", remedy="provide it before this dependency"
            )
        folder = self._folder(facts)
        with locked(context.package_dir, asked.package_name, context):
            if _wrong(context.facts.fresh(), folder):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                config = {
                    "source": str(asked.source), "calibration": str(asked.calibration), "output": str(folder),
                    "kv_cache": asked.kv_cache, "samples": asked.samples,
                    "sequence_length": asked.sequence_length,
                }  # fmt: skip
                note = run_module(environment, _PROGRAM, config, context=context)
                files = context.facts.fresh()[model_folder(folder)].files
                write_whole(folder / _NOTE, json.dumps({**note, "files": dict(files)}, indent=2) + "\n")
            if problem := _wrong(context.facts.fresh(), folder):
                raise DependencyFailedError(
                    f"Quark left no quantised model: {problem}", remedy=f"its output is in {context.log}"
                )
            point_link(context.package_dir / asked.package_name, folder)
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        return StepOutcome(f"quantised by Quark {note['quark']} on {note['device']}, in {folder}")


def _check_torch(facts: Facts, environment: Path) -> None:
    """Refuse a torch that does not use this host's AMD GPUs: the processor would quantise for hours."""
    gpus = visible_amd_gpus(facts)
    if not gpus:
        return
    found = facts[torch_build(environment)]
    if found and found.hip:
        return
    if found is None:
        fault = f"{environment} is not a Python environment"
    elif not found.version:
        fault = f"{environment} has no torch"
    else:
        fault = f"torch {found.version} of {environment} is not built for ROCm"
    raise HostError(
        f"{fault}: Quark would not use this host's {gpus[0].name or 'AMD GPUs'}",
        remedy=f"{_ROCM_REMEDY}; with HIP_VISIBLE_DEVICES= set, the processor is used, for hours",
        lifted_by=lift_of_path(facts, environment),
    )


def _wrong(facts: Facts, folder: Path) -> str:
    """Return the fault of the quantised model in a folder, or nothing."""
    text = facts[text_of(folder / _NOTE)]
    if text is None:
        state = "is half-made" if facts[exists(folder)] else "is not there"
        return f"the quantised model {state}: {folder}"
    found = facts[model_folder(folder)]
    if problem := found.problem(weights=True):
        return f"{folder}: {problem}"
    try:
        files = dict(json.loads(text)["files"])
        config = json.loads(facts[text_of(folder / "config.json")] or "")
        method = config["quantization_config"]["quant_method"]
    except (ValueError, KeyError, TypeError):
        return f"{folder} has no quantization_config, or its {_NOTE} is damaged"
    if method != "quark":
        return f"{folder} is quantised by {method}, not by Quark"
    changed = sorted(name for name, size in files.items() if name != _NOTE and found.files.get(name) != size)
    return f"{folder / changed[0]} was changed" if changed else ""
