"""Measure the accuracy of each variant of a model on multiple-choice questions: MMLU, or others."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from actions.llamacpp.in_environment.parquet_rows import NO_PYARROW
from actions.llamacpp.multiple_choice_file import Style, task_file
from actions.llamacpp.programs import has_final_line, run_program
from actions.llamacpp.questions import SUFFIXES, question_files, read_questions, sample, set_name
from actions.llamacpp.variant_action import VariantAction, VariantParameters, names_of, read_log
from agent.component.component import ComponentParameters, Plan, StepOutcome
from agent.component.parameter_types import OptionalPath  # noqa: TC001 - pydantic reads it
from agent.core.errors import ActionFailedError, HostError, LiftedBy
from agent.core.quantities import plain_quantity
from agent.core.records import Metric, Relativity
from agent.core.safe_files import replace_bytes, write_to
from agent.facts.agent_paths import PACKAGE_DIR, lift_of_path
from agent.facts.base import Fact
from parsers.llamacpp.multiple_choice import multiple_choice_metrics, task_results, tasks_done
from parsers.llamacpp.timings import timing_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actions.llamacpp.question import Question
    from actions.llamacpp.variants import Variant
    from agent.component.component import StepContext
    from agent.core.records import MetadataValue
    from agent.facts import Facts

_PARQUET_ROWS = Path(__file__).with_name("in_environment") / "parquet_rows.py"
_TASKS = "tasks.bin"
_REMEDY = "give environment: a PythonEnvironmentInstallation with pyarrow; or export JSON lines"
_OWN = "general-knowledge"


def _suffixes(dataset: str) -> Fact[frozenset[str]]:
    """Return the fact of the file name suffixes in a data set; empty if the data set does not exist."""
    command = ["find", "-L", dataset, "-type", "f", "-name", "*.*", "-printf", "%f\\n"]
    return Fact(
        f"suffixes[{dataset}]",
        f"find {dataset} -type f",
        lambda host: frozenset(Path(name).suffix for name in (host.output(command) or "").splitlines()),
    )


class MMLUParameters(VariantParameters):
    """Parameters: the questions, and how to ask them."""

    dataset: str = Field(
        _OWN,
        min_length=1,
        description="A shipped set, a file, or a folder such as a copy of cais/mmlu.",
    )
    split: str = Field("test", pattern=r"^\w+$", description="Split of a folder.")
    subjects: tuple[str, ...] = Field((), description="Only these subjects; by default all.")
    questions: int = Field(
        0, ge=0, description="Number of questions, the same share of each subject; 0 for all."
    )
    seed: int = Field(1, description="Seed of the choice: the same seed chooses the same questions.")
    shots: int = Field(0, ge=0, description="Examples before each question, from the split dev of a folder.")
    answers: Style = Field(
        "text",
        description="text: the answer's own words are scored; letters: its letter, as MMLU's paper does.",
    )
    context: int = Field(
        2048,
        ge=128,
        description="Context of each of the four sequences, in tokens; must hold all answers of a question.",
    )
    environment: OptionalPath = Field(
        None, description="A Python environment with pyarrow, for Parquet files."
    )

    _subjects = field_validator("subjects", mode="before")(names_of)

    @model_validator(mode="after")
    def _examples(self) -> MMLUParameters:
        if self.shots and (self.dataset == _OWN or Path(self.dataset).suffix in SUFFIXES):
            raise ValueError(
                f"{self.dataset} is one file, which has no split dev for examples: set shots to 0, or name a "
                "folder with both splits"
            )
        return self


class LlamaCppMMLU(VariantAction):
    """Score questions with ``llama-perplexity --multiple-choice``: the best answer per token counts."""

    Parameters: ClassVar[type[ComponentParameters]] = MMLUParameters
    parameters: MMLUParameters
    what = "questions"
    reason = "asks multiple-choice questions of"

    @property
    @override
    def programs(self) -> tuple[str, ...]:
        return ("llama-perplexity",)

    def plan(self, facts: Facts) -> Plan:
        """Plan a step for each variant.

        Raises:
            HostError: if the data set does not exist, or no environment is set that can read it.
        """
        asked = self.parameters
        # Other data sets are shipped or relative to the working folder; dependencies may still have to create
        # these.
        if "/" in asked.dataset and not Path(asked.dataset).is_relative_to(facts[PACKAGE_DIR]):
            found = facts[_suffixes(asked.dataset)]
            if found.isdisjoint(SUFFIXES):
                raise HostError(
                    f"{asked.dataset} is neither a file nor a folder with questions",
                    remedy=f"correct dataset; supported suffixes: {', '.join(SUFFIXES)}",
                    lifted_by=lift_of_path(facts, Path(asked.dataset)),
                )
            if ".parquet" in found and asked.environment is None:
                raise HostError(
                    f"{asked.dataset} is Parquet, and no environment is set that can read it",
                    remedy=_REMEDY,
                    lifted_by=LiftedBy.NOTHING,
                )
        return super().plan(facts)

    @override
    def command(self, variant: Variant, program: Path, case_dir: Path) -> list[str]:
        return [
            str(program), "--model", str(variant.path),
            "--multiple-choice", "--binary-file", str(case_dir / _TASKS),
            "--ctx-size", str(self.parameters.context),
            *self.parameters.run_arguments,
        ]  # fmt: skip

    @override
    def run(self, variant: Variant, context: StepContext, case_dir: Path) -> StepOutcome:
        self.file_of(variant)
        program = self.program(context)
        questions, examples = self._questions(context, case_dir)
        tasks = task_file(questions, self.parameters.answers, examples)
        replace_bytes(case_dir / _TASKS, tasks)
        log = case_dir / "llama-perplexity.log"

        def show(line: str) -> None:
            if done := tasks_done(line):
                context.progress.update(f"{variant.name}: question {done}", done=done, total=len(questions))

        command = self.command(variant, program, case_dir)
        run_program(command, context, log, on_line=show, has_results=has_final_line)
        text = read_log(log)
        name = set_name(self.parameters.dataset, questions)
        metrics = multiple_choice_metrics(text, name)
        results = task_results(text)
        if len(results) != len(questions):
            raise ActionFailedError(
                f"{len(results)} of {len(questions)} questions were scored",
                remedy=f"raise context if a question is too long; see {log}",
            )
        with write_to(case_dir / "answers.jsonl") as file:
            for question, right in zip(questions, results, strict=True):
                file.write(
                    json.dumps({"subject": question.subject, "question": question.text, "right": right})
                    + "\n"
                )
        details: dict[str, MetadataValue] = {
            "dataset": self.parameters.dataset,
            "split": self.parameters.split,
            "questions": len(questions),
            "shots": self.parameters.shots,
            "answers": self.parameters.answers,
            "tasks_sha256": hashlib.sha256(tasks).hexdigest(),
        }
        found = (*metrics, *_by_subject(name, questions, results), *timing_metrics(text, verbosity=3))
        output = self.output(variant, context, program, log, found, details=details)
        output = replace(output, scenario=variant.scenario(name))
        share = plain_quantity(metrics[0].value, metrics[0].unit)
        message = f"{variant.name}: {share} of {len(questions)} questions"
        return StepOutcome(message, (output,), case_dir)

    def _questions(self, context: StepContext, case_dir: Path) -> tuple[list[Question], list[Question]]:
        """Return the questions and their few-shot examples."""
        parameters = self.parameters
        questions = self._read(parameters.split, context, case_dir)
        known = sorted({question.subject for question in questions})
        if unknown := sorted(set(parameters.subjects) - set(known)):
            raise ActionFailedError(
                f"{parameters.dataset} has no subject {', '.join(unknown)}",
                remedy=f"it has {', '.join(known)}",
            )
        if parameters.subjects:
            questions = [question for question in questions if question.subject in parameters.subjects]
        questions = sample(questions, parameters.questions, parameters.seed)
        if not parameters.shots:
            return questions, []
        examples: dict[str, list[Question]] = defaultdict(list)
        for question in self._read("dev", context, case_dir):
            examples[question.subject].append(question)
        if lacking := sorted({q.subject for q in questions if len(examples[q.subject]) < parameters.shots}):
            raise ActionFailedError(
                f"the split dev has fewer than {parameters.shots} examples of {', '.join(lacking)}",
                remedy="lower shots, or complete the data set",
            )
        return questions, [one for subject in examples.values() for one in subject[: parameters.shots]]

    def _read(self, split: str, context: StepContext, case_dir: Path) -> list[Question]:
        files = question_files(self.parameters.dataset, split)
        if split == "dev" and len(files) == 1 and files == question_files(self.parameters.dataset, "test"):
            raise ActionFailedError(
                f"{self.parameters.dataset} is one file, which has no split dev for examples",
                remedy="set shots to 0, or name a folder with both splits",
            )
        return [
            question
            for file in files
            for question in read_questions(file, lambda file: self._parquet(file, context, case_dir))
        ]

    def _parquet(self, file: Path, context: StepContext, case_dir: Path) -> str:
        environment = self.parameters.environment
        if environment is None:
            raise ActionFailedError(
                f"{file} is Parquet, and no environment is set that can read it",
                remedy=_REMEDY,
            )
        out = case_dir / "questions.jsonl"
        command = [str(environment / "bin" / "python"), str(_PARQUET_ROWS), str(file), str(out)]
        result = context.processes.run(command, log=context.log, check=False)
        if result.exit_code:
            raise ActionFailedError(
                f"{file} could not be read: {result.stderr.strip().splitlines()[-1:] or 'no pyarrow'}",
                remedy=f"add pyarrow to the environment {environment}"
                if result.exit_code == NO_PYARROW
                else "check that the file is complete",
            )
        return out.read_text(encoding="utf-8")


def _by_subject(name: str, questions: Sequence[Question], results: Sequence[bool]) -> list[Metric]:
    """Return the accuracy of each subject, if there are several."""
    subjects: dict[str, list[bool]] = defaultdict(list)
    for question, right in zip(questions, results, strict=True):
        subjects[question.subject].append(right)
    if len(subjects) < 2:  # noqa: PLR2004 - several
        return []
    return [
        Metric(
            f"{name}_accuracy_{subject or 'other'}",
            sum(rights) / len(rights),
            "ratio",
            Relativity.HIGHER,
            verbosity=3,
            metadata={"subject": subject, "questions": len(rights)},
        )
        for subject, rights in sorted(subjects.items())
    ]
