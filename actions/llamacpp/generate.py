"""Check that each variant of a model generates text, and how fast, before the rest is measured."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, field_validator
from typing_extensions import override

from actions.llamacpp.programs import run_program
from actions.llamacpp.variant_action import VariantAction, VariantParameters, read_log
from agent.component.component import ComponentParameters, StepOutcome
from agent.core.records import Reason, Validity, Verdict
from agent.core.safe_files import replace_text
from parsers.llamacpp.timings import timing_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actions.llamacpp.variants import Variant
    from agent.component.component import StepContext
    from agent.host.processes import ProcessResult

_LEAST_READABLE = 0.9
_LEAST_DISTINCT_WORDS = 3
_SHOWN = 60


class GenerateParameters(VariantParameters):
    """Parameters: the prompt, and the expected output."""

    prompt: str = Field("The capital of France is the city of", min_length=1, description="The prompt.")
    max_output_tokens: int = Field(64, ge=8, description="Tokens to generate, greedily.")
    expected: str = Field("", description="A regular expression that the output must match; none by default.")
    context: int = Field(2048, ge=64, description="Tokens of the context.")

    @field_validator("expected")
    @classmethod
    def _expression(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"it is not a regular expression: {error}") from error
        return value


class LlamaCppGenerate(VariantAction):
    """Generate with ``llama-completion`` (``llama-cli`` before b7400); nonsense makes the result INVALID."""

    Parameters: ClassVar[type[ComponentParameters]] = GenerateParameters
    parameters: GenerateParameters
    what = "generate"
    reason = "checks that text comes from"

    @property
    @override
    def programs(self) -> tuple[str, ...]:
        return ("llama-completion", "llama-cli")

    @override
    def command(self, variant: Variant, program: Path, case_dir: Path) -> list[str]:
        parameters = self.parameters
        return [
            str(program), "--model", str(variant.path),
            "--prompt", parameters.prompt,
            "--predict", str(parameters.max_output_tokens),
            "--ctx-size", str(parameters.context),
            "--temp", "0", "--seed", "1", "--ignore-eos",
            "-no-cnv", "--no-display-prompt", "--simple-io",
            *parameters.run_arguments,
        ]  # fmt: skip

    @override
    def run(self, variant: Variant, context: StepContext, case_dir: Path) -> StepOutcome:
        self.file_of(variant)
        program = self.program(context)
        log = case_dir / f"{program.name}.log"
        result = run_program(
            self.command(variant, program, case_dir),
            context,
            log,
            has_results=_has_text,
        )
        replace_text(case_dir / "output.txt", result.stdout)
        faults = tuple(text_faults(result.stdout, self.parameters.expected))
        verdict = Verdict(Validity.INVALID if faults else Validity.VALID, faults)
        metrics = timing_metrics(read_log(log))
        shown = " ".join(result.stdout.split())[:_SHOWN]
        details = {"prompt": self.parameters.prompt, "output": shown}
        output = self.output(variant, context, program, log, metrics, details=details, verdict=verdict)
        judged = output.verdict or verdict
        return StepOutcome(f"{variant.name} {judged.validity.value}: {shown}", (output,), case_dir)


def text_faults(text: str, expected: str = "") -> Iterator[Reason]:
    """Yield the faults of a text that a model generated.

    A broken quantisation or a wrong kernel produces no text, one token again and again, or bytes that are not
    text.

    Args:
        text: the generated text.
        expected: a regular expression that the text must match.
    """
    remedy = "make the variant again; if the source generates well, choose another type"
    words = text.split()
    if not words:
        yield Reason("nothing was generated", remedy, code="no_text")
        return
    readable = sum(
        character.isprintable() or character.isspace() for character in text.replace("\ufffd", "\0")
    )
    if readable / len(text) < _LEAST_READABLE:
        yield Reason(f"only {readable / len(text):.0%} of the output is readable", remedy, code="unreadable")
    distinct = len(set(words)) if len(words) > 1 else len(set(words[0]))
    if distinct < _LEAST_DISTINCT_WORDS:
        yield Reason(f"the output repeats {words[0][:_SHOWN]!r}", remedy, code="repetition")
    if expected and not re.search(expected, text):
        yield Reason(
            f"the output does not match {expected!r}: {' '.join(words)[:_SHOWN]}", remedy, code="unexpected"
        )


def _has_text(result: ProcessResult) -> bool:
    return bool(result.stdout.strip())
