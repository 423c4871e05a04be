"""Measure the perplexity of each variant of a model on a text."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field
from typing_extensions import override

from actions.llamacpp.inputs import require_readable
from actions.llamacpp.programs import has_final_line, run_program
from actions.llamacpp.texts import PYTHON_TOPICS, text_named
from actions.llamacpp.variant_action import VariantAction, VariantParameters, read_log
from agent.component.component import ComponentParameters, Plan, StepOutcome
from agent.core.quantities import plain_quantity
from agent.core.safe_files import replace_text
from parsers.llamacpp.perplexity import chunks_done, perplexity_metrics
from parsers.llamacpp.timings import timing_metrics

if TYPE_CHECKING:
    from actions.llamacpp.variants import Variant
    from agent.component.component import StepContext
    from agent.facts import Facts

_TEXT = "text.txt"


class PerplexityParameters(VariantParameters):
    """Parameters: the text, and its division into chunks."""

    text: str = Field(
        PYTHON_TOPICS,
        min_length=1,
        description=f"A text file, such as wiki.test.raw; {PYTHON_TOPICS} for the help texts of Python.",
    )
    context: int = Field(512, ge=64, description="Tokens per chunk; the second half is scored.")
    chunks: int = Field(0, ge=0, description="Number of chunks; 0 for the whole text.")


class LlamaCppPerplexity(VariantAction):
    """Measure perplexity with ``llama-perplexity``."""

    Parameters: ClassVar[type[ComponentParameters]] = PerplexityParameters
    parameters: PerplexityParameters
    what = "perplexity"
    reason = "measures the perplexity of"

    @property
    @override
    def programs(self) -> tuple[str, ...]:
        return ("llama-perplexity",)

    @override
    def plan(self, facts: Facts) -> Plan:
        """Plan a step for each variant.

        Raises:
            HostError: if the text cannot be read.
        """
        if self.parameters.text != PYTHON_TOPICS:
            require_readable(facts, Path(self.parameters.text))
        return super().plan(facts)

    @override
    def command(self, variant: Variant, program: Path, case_dir: Path) -> list[str]:
        chunks = ["--chunks", str(self.parameters.chunks)] if self.parameters.chunks else []
        return [
            str(program), "--model", str(variant.path),
            "--file", str(case_dir / _TEXT),
            "--ctx-size", str(self.parameters.context),
            *chunks,
            "--no-escape",  # in 2024 a backslash and n in the text became a line feed
            *self.parameters.run_arguments,
        ]  # fmt: skip

    @override
    def run(self, variant: Variant, context: StepContext, case_dir: Path) -> StepOutcome:
        self.file_of(variant)
        program = self.program(context)
        text = text_named(self.parameters.text)
        replace_text(case_dir / _TEXT, text)
        log = case_dir / "llama-perplexity.log"

        def show(line: str) -> None:
            if done := chunks_done(line):
                context.progress.update(f"{variant.name}: chunk {done}")

        command = self.command(variant, program, case_dir)
        run_program(command, context, log, on_line=show, has_results=has_final_line)
        said = read_log(log)
        metrics = perplexity_metrics(said)
        output = self.output(
            variant,
            context,
            program,
            log,
            (*metrics, *timing_metrics(said, verbosity=3)),
            details={
                "text": self.parameters.text,
                "text_sha256": hashlib.sha256(text.encode()).hexdigest(),
                "context": self.parameters.context,
                "chunks": self.parameters.chunks,
            },
        )
        return StepOutcome(
            f"{variant.name}: perplexity {plain_quantity(metrics[0].value, metrics[0].unit)}",
            (output,),
            case_dir,
        )
