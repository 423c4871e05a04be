"""Make the importance matrix of a model for quantising its small variants."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from actions.llamacpp.origin import check_origin, keep_made
from actions.llamacpp.programs import build_number, has_final_line, run_program
from actions.llamacpp.source_model import MATRIX_FILE, SourceParameters
from actions.llamacpp.texts import PYTHON_TOPICS_END, text_named
from actions.llamacpp.variant_action import read_log
from actions.llamacpp.variants import takes_matrix
from agent.component.component import Action, ComponentParameters, Plan, Step, StepOutcome
from agent.core.errors import ActionFailedError
from agent.core.file_hash import sha256_of
from agent.core.quantities import plain_quantity
from agent.core.records import Metric, ParsedOutput, Relativity
from agent.core.safe_files import replace_text
from agent.facts.agent_paths import PACKAGE_DIR
from parsers.llamacpp import FORMAT, TOOL
from parsers.llamacpp.build import build_of
from parsers.llamacpp.perplexity import chunks_done, perplexity_metrics

if TYPE_CHECKING:
    from agent.component.component import StepContext
    from agent.facts import Facts

_PROGRAM = "llama-imatrix"
_TEXT = "text.txt"


class ImatrixParameters(SourceParameters):
    """Parameters: the text, and how much of it to use."""

    text: str = Field(
        PYTHON_TOPICS_END,
        min_length=1,
        description="A text file; python-topics-end: the second half of Python's help texts. It "
        "should not be the text used for measuring perplexity.",
    )
    context: int = Field(512, ge=64, description="Tokens per chunk.")
    chunks: int = Field(100, ge=0, description="Number of chunks; 0 for the whole text.")


class LlamaCppImatrix(Action):
    """Run ``llama-imatrix`` on the source of variants; ``LlamaCppQuantize`` uses the matrix."""

    Parameters: ClassVar[type[ComponentParameters]] = ImatrixParameters
    parameters: ImatrixParameters

    def plan(self, facts: Facts) -> Plan:
        """Plan one step; none if no variant is small enough."""
        asked = self.parameters
        small = [name for name in asked.variants if takes_matrix(name)]
        if not small:
            return Plan(nothing_to_do=f"none of {', '.join(asked.variants)} is small enough for a matrix")
        folder = asked.models(facts[PACKAGE_DIR]) / asked.model
        step = Step(
            "imatrix",
            f"{', '.join(small)} are quantised with an importance matrix of {asked.model}",
            self._run,
            " ".join(self._command(Path(_PROGRAM), asked.source, Path(_TEXT), folder / MATRIX_FILE)),
        )
        return Plan((step,))

    def _command(self, program: Path, source: str, text: Path, out: Path) -> list[str]:
        asked = self.parameters
        chunks = ["--chunks", str(asked.chunks)] if asked.chunks else []
        return [
            str(program), "--model", source, "--file", str(text), "--output-file", str(out),
            "--ctx-size", str(asked.context), *chunks, "--no-escape", *asked.run_arguments,
        ]  # fmt: skip

    def _run(self, context: StepContext) -> StepOutcome:
        asked = self.parameters
        source = asked.source_file(context)
        matrix = asked.models(context.package_dir) / asked.model / MATRIX_FILE
        part = matrix.with_name(f"part-{MATRIX_FILE}")  # the program chooses the format by the suffix
        check_origin(matrix, asked.origin)
        program = asked.program(context.package_dir, _PROGRAM)
        case_dir = context.case_dir("llamacpp", f"{asked.model}-imatrix")
        text, log = text_named(asked.text), case_dir / f"{_PROGRAM}.log"
        replace_text(case_dir / _TEXT, text)
        matrix.parent.mkdir(parents=True, exist_ok=True)

        def show(line: str) -> None:
            if done := chunks_done(line):
                context.progress.update(f"importance matrix: chunk {done}", total=asked.chunks or None)

        started = time.monotonic()
        try:
            command = self._command(program, str(source), case_dir / _TEXT, part)
            run_program(command, context, log, on_line=show, has_results=has_final_line)
            if not part.is_file():
                raise ActionFailedError(
                    f"{_PROGRAM} succeeded, but did not write {part}", remedy=f"see {log}"
                )
            keep_made(part, matrix, asked.origin)
        finally:
            part.unlink(missing_ok=True)
        took_s, said = time.monotonic() - started, read_log(log)
        metrics = (
            Metric("imatrix_time", took_s, "seconds", Relativity.LOWER, "time to make the importance matrix"),
            Metric(
                "imatrix_size", matrix.stat().st_size, "bytes", description="size of its file", verbosity=2
            ),
            *(
                replace(metric, name=f"imatrix_{metric.name}", verbosity=3)
                for metric in perplexity_metrics(said)
            ),
        )
        output = ParsedOutput(
            format=FORMAT,
            tool_name=TOOL,
            tool_version=str(build_of(said) or build_number(program, context) or ""),
            scenario=f"{asked.model}/imatrix",
            metrics=tuple(replace(metric, metadata={"model": asked.model}) for metric in metrics),
            details={
                "source": str(source),
                "text": asked.text,
                "text_sha256": hashlib.sha256(text.encode()).hexdigest(),
                "chunks": asked.chunks,
                "imatrix_file": str(matrix),
                "imatrix_sha256": sha256_of(matrix),
            },
            sources=(str(log),),
        )
        return StepOutcome(
            f"{matrix.name} of {asked.text} in {plain_quantity(took_s, 'seconds')}", (output,), case_dir
        )
