"""Convert a model folder in Hugging Face's format into a GGUF file."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, field_validator

from actions.llamacpp.inputs import require_readable
from actions.llamacpp.origin import check_origin, keep_made
from actions.llamacpp.programs import run_program
from actions.llamacpp.variant_action import ModelParameters
from actions.llamacpp.variants import Variant
from agent.component.component import Action, ComponentParameters, Plan, Step, StepOutcome
from agent.core.errors import ActionFailedError
from agent.core.file_hash import sha256_of
from agent.core.quantities import plain_quantity
from agent.core.records import Metric, ParsedOutput, Relativity
from agent.facts.agent_paths import PACKAGE_DIR
from parsers.llamacpp import FORMAT, TOOL

if TYPE_CHECKING:
    from agent.component.component import StepContext
    from agent.facts import Facts

_SCRIPT = "convert_hf_to_gguf.py"
_TYPES = ("F32", "F16", "BF16", "Q8_0")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "consolidated*.pth")
_LFS = b"version https://git-lfs"
_PROGRESS = re.compile(r"Writing:\s+(\d+)%")


class ConvertParameters(ModelParameters):
    """Parameters: the folder, and the type."""

    source: Path = Field(..., description="Folder with config.json, the weights and the tokenizer.")
    variant: str = Field("F16", description=f"One of {', '.join(_TYPES)}.")
    environment: Path = Field(..., description="Python environment with torch and transformers.")

    @field_validator("variant", mode="before")
    @classmethod
    def _type(cls, value: Any) -> Any:
        name = str(value).upper()
        if name not in _TYPES:
            raise ValueError(f"{value!r} is not a type that the converter writes: {', '.join(_TYPES)}")
        return name


class LlamaCppConvert(Action):
    """Write the variant that all others are made from, with llama.cpp's own converter."""

    Parameters: ClassVar[type[ComponentParameters]] = ConvertParameters
    parameters: ConvertParameters

    def plan(self, facts: Facts) -> Plan:
        """Plan one step. The folder is not checked: a dependency may still have to create it."""
        variant = self._variant(self.parameters.models(facts[PACKAGE_DIR]))
        require_readable(facts, self.parameters.source, _check_folder)
        step = Step(
            f"convert-{variant.name}".lower(),
            f"converts {self.parameters.source} to {variant.path}",
            self._run,
            " ".join(self._command(Path(_SCRIPT), variant)),
        )
        return Plan((step,))

    def _variant(self, models: Path) -> Variant:
        return Variant(self.parameters.model, self.parameters.variant, models)

    def _command(self, script: Path, variant: Variant) -> list[str]:
        parameters = self.parameters
        return [
            str(parameters.environment / "bin" / "python"), str(script), str(parameters.source),
            "--outfile", str(variant.part), "--outtype", variant.name.lower(),
            "--model-name", parameters.model,
            *parameters.arguments,
        ]  # fmt: skip

    def _run(self, context: StepContext) -> StepOutcome:
        variant = self._variant(self.parameters.models(context.package_dir))
        source = self.parameters.source
        before = _check_folder(source)
        origin = str(source.absolute())
        check_origin(variant.path, origin)
        script = self.parameters.program(context.package_dir, _SCRIPT)
        case_dir = context.case_dir("llamacpp", f"{variant.model}-{variant.name}-convert")
        log, part = case_dir / "convert_hf_to_gguf.log", variant.part
        variant.folder.mkdir(parents=True, exist_ok=True)

        def show(line: str) -> None:
            if match := _PROGRESS.search(line):
                context.progress.update("writing", done=float(match[1]), total=100)

        started = time.monotonic()
        try:
            run_program(self._command(script, variant), context, log, on_line=show)
            if not part.is_file():
                raise ActionFailedError(
                    f"the converter succeeded, but did not write {part}", remedy=f"see {log}"
                )
            keep_made(part, variant.path, origin)
        except ActionFailedError as error:
            raise self._explained(error, log) from error
        finally:
            part.unlink(missing_ok=True)
        took_s, after = time.monotonic() - started, variant.path.stat().st_size
        metrics = (
            Metric("model_size", after, "bytes", Relativity.LOWER, "size of the file"),
            Metric(
                "model_size_before", before, "bytes", description="size of the source's weights", verbosity=2
            ),
            Metric("convert_time", took_s, "seconds", Relativity.LOWER, verbosity=2),
        )
        output = ParsedOutput(
            format=FORMAT,
            tool_name=TOOL,
            scenario=variant.scenario("convert"),
            metrics=tuple(replace(metric, metadata=variant.metadata) for metric in metrics),
            details={
                "model_file": str(variant.path),
                "model_sha256": sha256_of(variant.path),
                "source": str(source),
            },
            sources=(str(log),),
        )
        return StepOutcome(f"{variant.path.name}: {plain_quantity(after, 'bytes')}", (output,), case_dir)

    def _explained(self, error: ActionFailedError, log: Path) -> ActionFailedError:
        """Return the error with the cause that the converter names, if any."""
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        source, environment = self.parameters.source, self.parameters.environment
        if match := re.search(r"Model (\S+) is not supported|Architecture '([^']+)' not supported", text):
            return ActionFailedError(
                f"llama.cpp's converter does not know the architecture {match[1] or match[2]} of {source}",
                remedy="install a newer llama.cpp; its converter lists them by --print-supported-models",
            )
        if "pre-tokenizer was not recognized" in text:
            match = re.search(r"chkhsh:\s+(\w+)", text)
            return ActionFailedError(
                f"llama.cpp's converter does not know the pre-tokenizer of {source}"
                + (f" (its check sum is {match[1]})" if match else ""),
                remedy="install a newer llama.cpp; add your own tokenizer to get_vocab_base_pre",
            )
        if match := re.search(r"(?:No module named|cannot import name) '([\w.]+)'", text):
            return ActionFailedError(
                f"the environment {environment} lacks {match[1]}, which the converter needs",
                remedy="add it to the requirements of its PythonEnvironmentInstallation",
            )
        return error


def _check_folder(source: Path) -> int:
    """Return the size in bytes of the weights in a folder.

    Raises:
        ActionFailedError: if the folder does not have this format, or was not downloaded completely.
    """
    try:
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ActionFailedError(
            f"{source} is not a model in Hugging Face's format: its config.json cannot be read: {error}",
            remedy="give the folder with config.json, the weights and the tokenizer",
        ) from error
    if not isinstance(config, dict) or not config.get("architectures"):
        raise ActionFailedError(
            f"{source}/config.json names no architecture",
            remedy="complete it: architectures: [LlamaForCausalLM]",
        )
    weights = sorted(file for pattern in _WEIGHTS for file in source.glob(pattern))
    if not weights:
        raise ActionFailedError(
            f"{source} has no weights ({', '.join(_WEIGHTS)})", remedy="download the complete model"
        )
    for file in weights:
        with file.open("rb") as stream:
            if stream.read(len(_LFS)) == _LFS:
                raise ActionFailedError(
                    f"{file} is a Git LFS pointer, not the weights", remedy="run git lfs pull in that folder"
                )
    index = source / "model.safetensors.index.json"
    if index.is_file():
        try:
            listed = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ActionFailedError(
                f"{index} cannot be read: {error!r}", remedy="download the complete model"
            ) from error
        if missing := sorted(listed - {file.name for file in weights}):
            raise ActionFailedError(
                f"{source} lacks {', '.join(missing)}", remedy="download the complete model"
            )
    return sum(file.stat().st_size for file in weights)
