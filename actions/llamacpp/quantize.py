"""Make variants of a model in smaller types, and record the size and time of each."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, model_validator
from typing_extensions import override

from actions.llamacpp.inputs import require_readable
from actions.llamacpp.model_file import PACKAGE_PREFIX, require_gguf
from actions.llamacpp.origin import check_origin, keep_made
from actions.llamacpp.programs import run_program
from actions.llamacpp.source_model import MATRIX_FILE, SourceParameters
from actions.llamacpp.variant_action import VariantAction
from actions.llamacpp.variants import PLAIN, bits_of, takes_matrix, with_plain_twins
from agent.component.component import ComponentParameters, Plan, StepOutcome
from agent.component.parameter_types import OptionalPath  # noqa: TC001 - pydantic reads it
from agent.core.errors import ActionFailedError
from agent.core.file_hash import sha256_of
from agent.core.quantities import plain_quantity
from agent.core.records import Metric, Relativity
from agent.core.safe_files import write_to
from agent.core.terminal import plain_cell
from parsers.llamacpp.quantize import (
    quantization_details,
    quantization_metrics,
    quantized_tensors,
    tensors_done,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actions.llamacpp.variants import Variant
    from agent.component.component import StepContext
    from agent.facts import Facts
    from parsers.llamacpp.quantize import Tensor

AUTO = "auto"
"""Selects the importance matrix that an earlier action makes."""


class QuantizeParameters(SourceParameters):
    """Parameters: the source, and how to quantise it."""

    converted: OptionalPath = Field(
        None, description="Folder that an earlier action converts into source; source is then a variant."
    )
    imatrix: str = Field(
        "",
        description="An importance matrix, which the smallest types need: a file, or auto for the one of an "
        "earlier LlamaCppImatrix. Types of 4 bits or fewer use it; where possible they are also made "
        "without it, such as Q4_K_M-PLAIN.",
    )
    allow_requantize: bool = Field(
        default=False, description="Allow a source that is quantised itself: both losses add up."
    )

    @model_validator(mode="after")
    def _of_one_model(self) -> QuantizeParameters:
        if self.converted and not self.source_variant:
            raise ValueError(
                f"{self.converted} is converted, but source {self.source} is another model, which would be "
                "measured under its name: remove source, or do not convert"
            )
        return self


class LlamaCppQuantize(VariantAction):
    """Quantise a model into each of the types; record sizes, time and the tensors that fell back."""

    Parameters: ClassVar[type[ComponentParameters]] = QuantizeParameters
    parameters: QuantizeParameters
    what = "quantize"
    reason = "quantises"
    computes = False

    @property
    @override
    def programs(self) -> tuple[str, ...]:
        return ("llama-quantize",)

    def plan(self, facts: Facts) -> Plan:
        """Plan a step for each variant except the source, which already exists."""
        source = self.parameters.source_variant
        names = self.parameters.variants
        names = with_plain_twins(names) if self.parameters.imatrix else names
        wanted = tuple(name for name in names if name != source)
        if not wanted:
            return Plan(nothing_to_do=f"{source} is the source, and no other variant is asked for")
        if not source and not self.parameters.source.startswith(PACKAGE_PREFIX):
            require_readable(facts, Path(self.parameters.source), require_gguf)
        if self.parameters.imatrix not in {"", AUTO}:
            require_readable(facts, Path(self.parameters.imatrix))
        return self.plan_for(wanted, facts)

    @override
    def command(self, variant: Variant, program: Path, case_dir: Path) -> list[str]:
        return self._command(variant, program, self.parameters.source)

    def _command(self, variant: Variant, program: Path, source: str) -> list[str]:
        parameters = self.parameters
        options = ["--allow-requantize"] if parameters.allow_requantize else []
        if matrix := self._matrix(variant):
            options += ["--imatrix", str(matrix)]
        threads = [str(parameters.threads)] if parameters.threads else []
        return [
            str(program),
            *options,
            *parameters.arguments,
            source,
            str(variant.part),
            variant.type,
            *threads,
        ]

    def _matrix(self, variant: Variant) -> Path | None:
        """Return the importance matrix for making a variant; None if it is made without one."""
        named = self.parameters.imatrix
        if not named or variant.name.endswith(PLAIN) or not takes_matrix(variant.name):
            return None
        return variant.folder / MATRIX_FILE if named == AUTO else Path(named)

    @override
    def run(self, variant: Variant, context: StepContext, case_dir: Path) -> StepOutcome:
        program = self.program(context)
        source = self.parameters.source_file(context)
        matrix = self._matrix(variant)
        if matrix and not matrix.is_file():
            raise ActionFailedError(
                f"the importance matrix {matrix} does not exist",
                remedy="add a LlamaCppImatrix before this action, or correct imatrix",
            )
        if source == variant.path:
            raise ActionFailedError(
                f"{variant.path} cannot be made from itself",
                remedy=f"remove {variant.name} from variants, or set another source",
            )
        origin = self.parameters.origin
        check_origin(variant.path, origin)
        variant.folder.mkdir(parents=True, exist_ok=True)
        _check_space(variant, source)
        log, part = case_dir / "llama-quantize.log", variant.part

        def show(line: str) -> None:
            if tensors := tensors_done(line):
                context.progress.update(
                    f"{variant.name}: tensor {tensors[0]}", done=tensors[0], total=tensors[1]
                )

        try:
            run_program(self._command(variant, program, str(source)), context, log, on_line=show)
            text = log.read_text(encoding="utf-8", errors="replace")
            found = quantization_metrics(text)
            keep_made(part, variant.path, origin)
        except ActionFailedError as error:
            raise _explained(error, log) from error
        finally:
            part.unlink(missing_ok=True)
        _write_tensors(case_dir / "tensors.csv", quantized_tensors(text))
        before, after = source.stat().st_size, variant.path.stat().st_size
        metrics = (
            Metric("model_size", after, "bytes", Relativity.LOWER, "size of the file"),
            Metric(
                "model_size_before", before, "bytes", description="size of the source's file", verbosity=2
            ),
            Metric("size_ratio", after / before, "ratio", Relativity.LOWER, "after to before", verbosity=2),
            *found,
        )
        details = {
            **quantization_details(text),
            "source": str(source),
            "model_sha256": sha256_of(variant.path),
            **({"imatrix": str(matrix), "imatrix_sha256": sha256_of(matrix)} if matrix else {}),
        }
        output = self.output(variant, context, program, log, metrics, details=details)
        message = f"{variant.name}: {plain_quantity(before, 'bytes')} → {plain_quantity(after, 'bytes')}"
        return StepOutcome(message, (output,), case_dir)


def _write_tensors(path: Path, tensors: Sequence[Tensor]) -> None:
    with write_to(path, newline="") as file:
        table = csv.writer(file)
        table.writerow(["name", "shape", "type_before", "type_after", "bytes_before", "bytes_after"])
        for tensor in tensors:
            shape = "x".join(map(str, tensor.shape))
            sizes = [
                "" if size is None else round(size) for size in (tensor.bytes_before, tensor.bytes_after)
            ]
            table.writerow([plain_cell(tensor.name), shape, tensor.type_before, tensor.type_after, *sizes])


def _check_space(variant: Variant, source: Path) -> None:
    bits, source_bits = bits_of(variant.name), bits_of(source.stem.rpartition("-")[2])
    if bits is None or source_bits is None:
        return
    needed, free = source.stat().st_size * bits / source_bits, shutil.disk_usage(variant.folder).free
    if free < needed:
        raise ActionFailedError(
            f"{variant.name} needs {needed / 1e9:.1f} GB or more, {variant.folder} has {free / 1e9:.1f} GB",
            remedy="free some space, or name another folder for the models",
        )


def _explained(error: ActionFailedError, log: Path) -> ActionFailedError:
    """Return the error with the remedies of this program."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    remedy = error.remedy
    if "requantizing from type" in text:
        remedy = "the source is quantised itself: use a source in F16, BF16 or F32, or set allowRequantize"
    elif re.search(r"(Missing|requires an|without an) importance matrix", text):
        remedy = (
            "this type needs an importance matrix: set imatrix to auto (after a LlamaCppImatrix) or to a file"
        )
    elif "invalid ftype" in text:
        remedy = "llama-quantize --help lists the types that this build knows"
    return ActionFailedError(error.message, remedy=remedy, details=error.details)
