"""Measure the speed of each variant of a model with one sequence, engine alone: llama-bench."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, field_validator
from typing_extensions import override

from actions.llamacpp.programs import run_program
from actions.llamacpp.variant_action import VariantAction, VariantParameters, names_of, read_log
from agent.component.component import ComponentParameters, StepOutcome
from agent.core.quantities import plain_quantity
from parsers.llamacpp.bench import bench_metrics, bench_rows

if TYPE_CHECKING:
    from pathlib import Path

    from actions.llamacpp.variants import Variant
    from agent.component.component import StepContext


class BenchParameters(VariantParameters):
    """Parameters: the lengths to time."""

    prompt_tokens: tuple[int, ...] = Field((512,), description="Lengths of the prompts to process.")
    generated_tokens: tuple[int, ...] = Field((128,), description="Lengths of the outputs to generate.")
    depths: tuple[int, ...] = Field((), description="Tokens already in the context.")
    repetitions: int = Field(5, ge=1, description="Number of repetitions of each test.")

    _lengths = field_validator("prompt_tokens", "generated_tokens", "depths", mode="before")(names_of)


class LlamaCppBench(VariantAction):
    """Time prompt processing and generation with ``llama-bench``; each length is a scenario."""

    Parameters: ClassVar[type[ComponentParameters]] = BenchParameters
    parameters: BenchParameters
    what = "bench"
    reason = "times"

    @property
    @override
    def programs(self) -> tuple[str, ...]:
        return ("llama-bench",)

    @override
    def command(self, variant: Variant, program: Path, case_dir: Path) -> list[str]:
        parameters = self.parameters
        depths = ["--n-depth", _listed(parameters.depths)] if parameters.depths else []
        return [
            str(program), "--model", str(variant.path),
            "--n-prompt", _listed(parameters.prompt_tokens),
            "--n-gen", _listed(parameters.generated_tokens),
            *depths,
            "--repetitions", str(parameters.repetitions),
            "--output", "jsonl", "--progress",
            *parameters.run_arguments,
        ]  # fmt: skip

    @override
    def run(self, variant: Variant, context: StepContext, case_dir: Path) -> StepOutcome:
        self.file_of(variant)
        program = self.program(context)
        log = case_dir / "llama-bench.log"

        def show(line: str) -> None:
            if match := re.search(r"benchmark (\d+)/(\d+): starting", line):
                done, total = int(match[1]) - 1, int(match[2])
                context.progress.update(f"{variant.name}: test {match[1]} of {total}", done=done, total=total)

        run_program(self.command(variant, program, case_dir), context, log, on_line=show)
        rows = bench_rows(read_log(log))
        metrics = bench_metrics(rows, f"{variant.scenario(self.what)}/")
        output = self.output(variant, context, program, log, metrics)
        shown = ", ".join(
            f"{(metric.scenario or '').rpartition('/')[2]} {plain_quantity(metric.value, metric.unit)}"
            for metric in metrics
            if metric.verbosity == 1
        )
        return StepOutcome(f"{variant.name}: {shown}", (output,), case_dir)


def _listed(lengths: tuple[int, ...]) -> str:
    return ",".join(map(str, lengths)) or "0"
