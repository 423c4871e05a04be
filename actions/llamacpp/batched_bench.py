"""Measure the speed of each variant with several sequences, engine alone: llama-batched-bench."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, field_validator
from typing_extensions import override

from actions.llamacpp.programs import run_program
from actions.llamacpp.variant_action import VariantAction, VariantParameters, names_of, read_log
from agent.component.component import ComponentParameters, StepOutcome
from agent.core.errors import ActionFailedError
from agent.core.quantities import format_number
from parsers.llamacpp.bench import batched_metrics, batched_rows

if TYPE_CHECKING:
    from pathlib import Path

    from actions.llamacpp.variants import Variant
    from agent.component.component import StepContext
    from agent.host.processes import ProcessResult


class BatchedBenchParameters(VariantParameters):
    """Parameters: lengths of prompt and output, and numbers of concurrent sequences."""

    prompt_tokens: int = Field(2560, ge=1, description="Tokens of each prompt.")
    generated_tokens: int = Field(768, ge=1, description="Tokens of each output.")
    sequences: tuple[int, ...] = Field(
        (1, 2, 4, 8), min_length=1, description="Numbers of concurrent sequences."
    )

    _sequences = field_validator("sequences", mode="before")(names_of)

    @property
    def context(self) -> int:
        """Tokens that the context must hold."""
        return max(self.sequences) * (self.prompt_tokens + self.generated_tokens)


class LlamaCppBatchedBench(VariantAction):
    """Time concurrent sequences with ``llama-batched-bench``; each number of sequences is a scenario."""

    Parameters: ClassVar[type[ComponentParameters]] = BatchedBenchParameters
    parameters: BatchedBenchParameters
    what = "batched-bench"
    reason = "times several sequences of"

    @property
    @override
    def programs(self) -> tuple[str, ...]:
        return ("llama-batched-bench",)

    @override
    def command(self, variant: Variant, program: Path, case_dir: Path) -> list[str]:
        parameters = self.parameters
        return [
            str(program), "--model", str(variant.path),
            "-npp", str(parameters.prompt_tokens),
            "-ntg", str(parameters.generated_tokens),
            "-npl", ",".join(map(str, parameters.sequences)),
            "--ctx-size", str(parameters.context),
            "--output-format", "jsonl",
            *parameters.run_arguments,
        ]  # fmt: skip

    @override
    def run(self, variant: Variant, context: StepContext, case_dir: Path) -> StepOutcome:
        self.file_of(variant)
        program = self.program(context)
        log, wanted = case_dir / "llama-batched-bench.log", self.parameters.sequences
        done = 0

        def show(line: str) -> None:
            nonlocal done
            if match := re.search(r'"pl": (\d+)', line):
                done += 1
                context.progress.update(
                    f"{variant.name}: {match[1]} at once done", done=done, total=len(wanted)
                )

        command = self.command(variant, program, case_dir)
        run_program(command, context, log, on_line=show, has_results=_has_rows)
        rows = batched_rows(read_log(log))
        # The program silently skips sequences that do not fit into the context.
        if missing := sorted(set(wanted) - {int(row["pl"]) for row in rows}):
            raise ActionFailedError(
                f"{', '.join(map(str, missing))} sequences at once were not timed",
                remedy=f"lower them or the lengths; see {log}",
            )
        metrics = batched_metrics(rows, f"{variant.scenario(self.what)}/")
        output = self.output(variant, context, program, log, metrics)
        shown = ", ".join(f"{int(row['pl'])}: {format_number(row['speed_tg'])}" for row in rows)
        return StepOutcome(f"{variant.name}: {shown} tokens/s generated", (output,), case_dir)


def _has_rows(result: ProcessResult) -> bool:
    return bool(batched_rows(result.stdout))
