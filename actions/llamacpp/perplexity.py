"""How well each variant of a model predicts a text."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field
from typing_extensions import override

from actions.llamacpp.inputs import require_readable
from actions.llamacpp.programs import has_final_line, run_program
from actions.llamacpp.variant_action import VariantAction, VariantParameters, read_log
from agent.component.component import ComponentParameters, Plan, StepOutcome
from agent.core.errors import ActionFailedError
from agent.core.safe_files import replace_text
from parsers.llamacpp.perplexity import chunks_done, perplexity_metrics
from parsers.llamacpp.timings import timing_metrics

if TYPE_CHECKING:
    from actions.llamacpp.variants import Variant
    from agent.component.component import StepContext
    from agent.facts import Facts

PYTHON_TOPICS = "python-topics"
"""The help texts that come with Python (``pydoc_data.topics``): some 700 kB of English on every host."""

_TEXT = "text.txt"


class PerplexityParameters(VariantParameters):
    """Which text, and how it is cut."""

    text: str = Field(
        PYTHON_TOPICS,
        min_length=1,
        description=f"A text file, such as wiki.test.raw; {PYTHON_TOPICS} for the help texts of Python.",
    )
    context: int = Field(512, ge=64, description="Tokens of a chunk; its second half is scored.")
    chunks: int = Field(0, ge=0, description="How many chunks; 0 for all of the text.")


class LlamaCppPerplexity(VariantAction):
    """Measures perplexity with ``llama-perplexity``."""

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
        """A step for each variant.

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
            "--no-escape",  # in 2024 a backslash and n of the text became a new line
            *self.parameters.run_arguments,
        ]  # fmt: skip

    @override
    def run(self, variant: Variant, context: StepContext, case_dir: Path) -> StepOutcome:
        self.file_of(variant)
        program = self.program(context)
        text = self._text()
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
        return StepOutcome(f"{variant.name}: perplexity {metrics[0].value:.4f}", (output,), case_dir)

    def _text(self) -> str:
        if self.parameters.text == PYTHON_TOPICS:
            from pydoc_data.topics import topics

            return "\n\n".join(topics[name] for name in sorted(topics))
        path = Path(self.parameters.text)
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ActionFailedError(
                f"the text {path} cannot be read: {error}",
                remedy=f"name a text file in UTF-8, or {PYTHON_TOPICS}",
            ) from error
