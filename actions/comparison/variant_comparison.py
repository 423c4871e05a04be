"""VariantComparison: compare the measured variants of a model side by side."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import BeforeValidator, Field, model_validator

from actions.comparison.accuracy_difference import Difference, paired, unpaired
from actions.comparison.same_test import differing, test_name
from actions.comparison.variant_exhibits import MatrixEffect, exhibits
from actions.comparison.variant_numbers import (
    VariantNumbers,
    collect,
    load_speedup_stderr,
    speedup_stddev,
)
from actions.llamacpp.questions import MMLU, OTHER_QUESTIONS
from actions.llamacpp.variant_action import names_of
from actions.llamacpp.variants import NAME_PATTERN, PLAIN
from agent.component.component import Action, ComponentParameters, Plan, Step, StepContext, StepOutcome
from agent.component.parameter_types import Share  # noqa: TC001 - pydantic reads it
from agent.core.errors import ActionFailedError
from agent.core.records import Metric, ParsedOutput, Reason, Relativity, Validity, Verdict
from agent.store.documents import SummaryDocument
from agent.store.exhibits import write_exhibits
from agent.store.metric_lines import read_records
from agent.store.results import METRICS_FILE, SUMMARY_FILE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from agent.core.records import MetadataValue
    from agent.facts import Facts

    _Case = tuple[Path, Mapping[str, Any]]

_ANSWERS = "answers.jsonl"
QUESTION_SETS = (MMLU, OTHER_QUESTIONS)
_HIGHER, _LOWER, _PLAIN = Relativity.HIGHER, Relativity.LOWER, Relativity.UNDEFINED


class VariantComparisonParameters(ComponentParameters):
    """Parameters: the variants and the baseline."""

    model: str = Field(pattern=f"^{NAME_PATTERN}$", description="The model's name in the records.")
    variants: Annotated[tuple[str, ...], BeforeValidator(names_of)] = Field(
        (), description="Measured variants, if known in advance: the plan then checks them."
    )
    baseline: str = Field(
        "", description="The variant that the others are compared with; by default the first."
    )
    significance: Share = Field(0.05, description="A difference with a smaller p value is more than noise.")

    @model_validator(mode="after")
    def _baseline_is_measured(self) -> VariantComparisonParameters:
        names = self.names
        if names and self.baseline and self.baseline.upper() not in names:
            raise ValueError(f"the baseline {self.baseline} is not one of the variants {', '.join(names)}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The variants known in advance, each once."""
        return tuple(dict.fromkeys(name.upper() for name in self.variants))


class VariantComparison(Action):
    """Compare variants; must come after the measuring actions.

    Needs records with the metadata model and variant.
    """

    Parameters: ClassVar[type[ComponentParameters]] = VariantComparisonParameters

    def __init__(self, parameters: ComponentParameters) -> None:
        super().__init__(parameters)
        self.asked = cast("VariantComparisonParameters", parameters)

    def plan(self, facts: Facts) -> Plan:  # noqa: ARG002 - the records do not exist yet
        """Plan one step; none if only one variant is known."""
        names = self.asked.names
        if len(names) == 1:
            return Plan(nothing_to_do=f"{names[0]} is the only variant of {self.asked.model}")
        baseline = self.asked.baseline or (names[0] if names else "the first")
        reason = f"sets the variants of {self.asked.model} side by side, against {baseline}"
        return Plan((Step("compare", reason, self._compare, estimate_s=1),))

    def _compare(self, context: StepContext) -> StepOutcome:
        asked = self.asked
        cases = list(_cases(context.run_dir))
        variants = _ordered(collect(read_records(context.run_dir / METRICS_FILE), asked.model), asked)
        for one in variants:
            one.size_bytes = one.size_bytes or _size(one, cases)
        answers = {one.name: _answers(one, cases) for one in variants}
        unlike = list(_unlike(asked.model, variants, cases))
        differences = _differences(
            variants, answers, {name for name, test, _ in unlike if test in QUESTION_SETS}
        )
        pairs = [
            (
                one,
                twin,
                _differences(
                    [twin, one], answers, {name for name, test, _ in unlike if test in QUESTION_SETS}
                ),
            )
            for one in variants
            for twin in variants
            if twin.name == f"{one.name}{PLAIN}"
        ]
        effects = [MatrixEffect(one, twin, found.get(one.name)) for one, twin, found in pairs]
        case_dir = context.case_dir("comparison", asked.model)
        write_exhibits(case_dir, exhibits(variants, differences, asked.significance, effects))
        output = ParsedOutput(
            format="variant_comparison",
            tool_name="vcagent",
            scenario=f"{asked.model}/comparison",
            metrics=(*self._metrics(variants, differences), *self._matrix_metrics(effects)),
            verdict=_verdict(variants, cases, unlike),
            details={"baseline": variants[0].name, "variants": ", ".join(one.name for one in variants)},
            sources=(str(context.run_dir / METRICS_FILE),),
        )
        return StepOutcome(_sentence(variants, differences, asked.significance), (output,), case_dir)

    def _metrics(
        self, variants: Sequence[VariantNumbers], differences: Mapping[str, Difference]
    ) -> Iterator[Metric]:
        baseline = variants[0]
        for one in variants[1:]:
            scenario = f"{self.asked.model}/{one.name}/comparison"
            own: dict[str, MetadataValue] = {
                "model": self.asked.model,
                "variant": one.name,
                "baseline": baseline.name,
            }
            for name, value, before, direction in _ratios(one, baseline):
                if value is not None and before:
                    text = f"to {baseline.name}"
                    yield Metric(
                        name, value / before, "ratio", direction, text, metadata=own, scenario=scenario
                    )
            for name, spread, kind in _spreads(one, baseline):
                text = f"{kind} of {one.name} and {baseline.name}"
                yield Metric(name, spread, "ratio", _LOWER, text, 2, metadata=own, scenario=scenario)
            if (found := differences.get(one.name)) is None:
                continue
            significant = found.p_value < self.asked.significance
            told = {**own, "test": found.test, "larger_than_noise": significant}
            for name, value, direction, verbosity in (
                ("accuracy_difference", found.value, _HIGHER, 1),
                ("accuracy_difference_stderr", found.stderr, _LOWER, 2),
                ("accuracy_difference_p_value", found.p_value, _PLAIN, 2),
            ):
                text = f"to {baseline.name}, {found.test}"
                yield Metric(
                    f"{one.questions or OTHER_QUESTIONS}_{name}",
                    value,
                    "ratio",
                    direction,
                    text,
                    verbosity,
                    metadata=told,
                    scenario=scenario,
                )

    def _matrix_metrics(self, effects: Sequence[MatrixEffect]) -> Iterator[Metric]:
        """Yield the effect of the importance matrix on each variant that was made with and without it."""
        for effect in effects:
            scenario = f"{self.asked.model}/{effect.variant.name}/comparison"
            told: dict[str, MetadataValue] = {"model": self.asked.model, "variant": effect.variant.name}
            text = f"with the importance matrix less without it ({effect.twin.name})"
            if (change := effect.perplexity_change) is not None:
                yield Metric(
                    "imatrix_perplexity_difference",
                    change,
                    "perplexity",
                    _LOWER,
                    text,
                    metadata=told,
                    scenario=scenario,
                )
            if (found := effect.accuracy) is not None:
                told = {**told, "test": found.test, "p_value": found.p_value}
                yield Metric(
                    "imatrix_accuracy_difference",
                    found.value,
                    "ratio",
                    _HIGHER,
                    text,
                    metadata=told,
                    scenario=scenario,
                )


def _ratios(
    one: VariantNumbers, baseline: VariantNumbers
) -> Iterator[tuple[str, float | None, float | None, Relativity]]:
    yield "size_ratio", one.size_bytes, baseline.size_bytes, _LOWER
    yield "perplexity_ratio", one.perplexity, baseline.perplexity, _LOWER
    yield "prompt_speedup", one.prompt_tokens_per_s, baseline.prompt_tokens_per_s, _HIGHER
    yield "generation_speedup", one.generation_tokens_per_s, baseline.generation_tokens_per_s, _HIGHER
    for users in sorted(one.loads.keys() & baseline.loads.keys()):
        load, before = one.loads[users], baseline.loads[users]
        yield f"load_{users}_speedup", load.tokens_per_s, before.tokens_per_s, _HIGHER


def _spreads(one: VariantNumbers, baseline: VariantNumbers) -> Iterator[tuple[str, float, str]]:
    """Yield the spreads of the speed-ups that are known: name, value, and kind in words."""
    whats: tuple[Literal["prompt", "generation"], ...] = ("prompt", "generation")
    for what in whats:
        if (spread := speedup_stddev(one, baseline, what)) is not None:
            yield f"{what}_speedup_stddev", spread, "standard deviation, from the repetitions"
    for users in sorted(one.loads.keys() & baseline.loads.keys()):
        if (spread := load_speedup_stderr(one, baseline, users)) is not None:
            yield f"load_{users}_speedup_stderr", spread, "standard error, from the load tests"


def _ordered(
    variants: Mapping[str, VariantNumbers], asked: VariantComparisonParameters
) -> list[VariantNumbers]:
    """Return the baseline first, then the other variants in their order.

    Raises:
        ActionFailedError: if the baseline or all other variants lack records.
    """
    name = asked.baseline.upper() or next(iter(asked.names or variants), "")
    if name not in variants or len(variants) == 1:
        raise ActionFailedError(
            f"there is nothing to compare: the baseline is {name or 'missing'}; of {asked.model} the run "
            f"measured {', '.join(variants) or 'nothing'}",
            remedy="measure the baseline and another variant before, or name another baseline",
        )
    return [variants[name], *(one for other, one in variants.items() if other != name)]


def _cases(run_dir: Path) -> Iterator[_Case]:
    """Yield the folder and the summary of each case of the run, in the order in which they ended."""
    summaries = run_dir.glob(f"*/*/{SUMMARY_FILE}")
    for path in sorted(summaries, key=lambda path: path.stat().st_mtime_ns):
        yield path.parent, SummaryDocument.read(path.parent).to_json()


def _of(one: VariantNumbers, cases: Sequence[_Case]) -> list[_Case]:
    return [(folder, summary) for folder, summary in cases if summary["scenario"] in one.scenarios]


def _size(one: VariantNumbers, cases: Sequence[_Case]) -> float | None:
    """Return the size of its file, if the file existed before the run."""
    sizes = [summary["details"].get("model_size") for _, summary in _of(one, cases)]
    return next((float(size) for size in sizes if isinstance(size, int | float) and size), None)


def _answers(one: VariantNumbers, cases: Sequence[_Case]) -> dict[str, bool]:
    """Return whether each question of its last test was answered correctly, by place and text.

    Returns an empty dictionary if that was not recorded.
    """
    for folder, _ in reversed(_of(one, cases)):
        path = folder / _ANSWERS
        if path.is_file():
            rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
            return {f"{place} {row['question']}": bool(row["right"]) for place, row in enumerate(rows)}
    return {}


def _unlike(
    model: str, variants: Sequence[VariantNumbers], cases: Sequence[_Case]
) -> Iterator[tuple[str, str, str]]:
    """Yield variant, test and the settings that differ from the baseline's last test of that name."""
    before = _details(model, variants[0], cases)
    for one in variants[1:]:
        for test, details in _details(model, one, cases).items():
            if names := differing(test, details, before.get(test, {})):
                yield one.name, test, ", ".join(names)


def _details(model: str, one: VariantNumbers, cases: Sequence[_Case]) -> dict[str, Mapping[str, Any]]:
    """Return the details of a variant's last test of each name."""
    prefix = f"{model}/{one.name}"
    return {test_name(summary["scenario"], prefix): summary["details"] for _, summary in _of(one, cases)}


def _differences(
    variants: Sequence[VariantNumbers], answers: Mapping[str, Mapping[str, bool]], unlike: Collection[str]
) -> dict[str, Difference]:
    """Return differences of accuracy, by variant; skip variants in ``unlike``, which had other questions."""
    baseline = variants[0]
    before = answers[baseline.name]
    found = {}
    for one in variants[1:]:
        if one.name in unlike:
            continue
        now = answers[one.name]
        if now and now.keys() == before.keys():
            found[one.name] = paired([now[key] for key in before], list(before.values()))
        elif None not in (known := _known(one, baseline)):
            found[one.name] = unpaired(*cast("tuple[float, float, float, float]", known))
    return found


def _known(one: VariantNumbers, baseline: VariantNumbers) -> tuple[float | None, ...]:
    return one.accuracy, one.accuracy_stderr, baseline.accuracy, baseline.accuracy_stderr


def _verdict(
    variants: Sequence[VariantNumbers],
    cases: Sequence[_Case],
    unlike: Sequence[tuple[str, str, str]],
) -> Verdict:
    """Return the verdict: invalid if a case is invalid, or if tests had different settings."""
    bad = [
        f"{summary['scenario']} is {summary['verdict']['validity']}"
        for one in variants
        for _, summary in _of(one, cases)
        if summary["verdict"]["validity"] in (Validity.INVALID.value, Validity.FAILED.value)
    ]
    reasons = [
        Reason(f"{text}, but is part of the comparison", "see its reasons", code="case_invalid")
        for text in dict.fromkeys(bad)
    ]
    reasons += [
        Reason(
            f"{name} and {variants[0].name} did not take the same test: {test} differs in {settings}",
            "measure all variants with the same settings",
            code="different_tests",
        )
        for name, test, settings in unlike
    ]
    return Verdict(Validity.INVALID if reasons else Validity.VALID, tuple(reasons))


def _sentence(
    variants: Sequence[VariantNumbers], differences: Mapping[str, Difference], significance: float
) -> str:
    parts = []
    for one in variants[1:]:
        told = []
        if one.size_bytes and variants[0].size_bytes:
            told.append(f"{one.size_bytes / variants[0].size_bytes:.0%} of the size")
        if one.generation_tokens_per_s and variants[0].generation_tokens_per_s:
            told.append(
                f"{one.generation_tokens_per_s / variants[0].generation_tokens_per_s:.2f} times as fast"
            )
        if found := differences.get(one.name):
            noise = "more than noise" if found.p_value < significance else "noise"
            told.append(f"{found.value * 100:+.1f} points of right answers ({noise})")
        parts.append(f"{one.name}: {', '.join(told) or 'no numbers that both have'}")
    return f"against {variants[0].name}: " + "; ".join(parts)
