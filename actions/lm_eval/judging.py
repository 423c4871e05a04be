"""Compare a model's scores with the expected ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent.core.records import Metric, ParsedOutput, Reason, Validity, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actions.lm_eval.parameters import LmEvalParameters

_SCORES = ("acc", "exact_match", "acc_norm")
"""Metrics that judge a task: the first one that the task has."""


def judge(output: ParsedOutput, asked: LmEvalParameters) -> ParsedOutput:
    """Return the output with a verdict, and its scores under the model's name."""
    metrics = tuple(replace(metric, scenario=f"{asked.model}/{metric.scenario}") for metric in output.metrics)
    details = {
        **output.details, "model": asked.model, "backend": asked.backend, "tasks": ", ".join(asked.tasks)
    }  # fmt: skip
    if asked.limit is not None:
        details["limit"] = asked.limit
    return replace(
        output,
        scenario=f"{asked.model}/{'+'.join(asked.tasks)}",
        metrics=(*metrics, *_bars(asked)),
        verdict=_verdict(output, asked),
        details=details,
    )


def _verdict(output: ParsedOutput, asked: LmEvalParameters) -> Verdict:
    if asked.load_format == "dummy":
        why = "the weights are random (load_format dummy): there is no accuracy to measure"
        return Verdict(Validity.NOT_APPLICABLE, warnings=(why,))
    missing = [task for task in asked.tasks if not any(metric.scenario == task for metric in output.metrics)]
    if missing:
        reason = Reason(f"{', '.join(missing)} has no score", "see lm-eval's output", code="no_score")
        return Verdict(Validity.INVALID, (reason,))
    warnings: tuple[str, ...] = ()
    if asked.limit is not None:
        warnings = (f"limit {asked.limit:g}: only a part of the questions, not a score of the whole set",)
    if not asked.reference:
        why = "without a reference, the scores are recorded but not judged"
        return Verdict(Validity.NOT_APPLICABLE, warnings=(why, *warnings))
    reasons = tuple(_missed(output, asked))
    return Verdict(Validity.INVALID if reasons else Validity.VALID, reasons, warnings)


def _missed(output: ParsedOutput, asked: LmEvalParameters) -> Iterator[Reason]:
    for task, expected in asked.reference.items():
        scores = {metric.name: metric for metric in output.metrics if metric.scenario == task}
        score = next((scores[name] for name in _SCORES if name in scores), None)
        least = asked.threshold * expected
        if score is None:
            yield Reason(
                f"{task} has none of {', '.join(_SCORES)}", "remove its reference: it cannot be judged",
                "reference", code="accuracy",
            )  # fmt: skip
        elif score.value < least:
            yield Reason(
                f"{score.name} of {task} is {score.value:.4f}; at least {least:.4f} is needed "
                f"({asked.threshold:g} of {expected:g})",
                "check the weights, the quantisation, num_fewshot and the chat template",
                code="accuracy",
            )


def _bars(asked: LmEvalParameters) -> Iterator[Metric]:
    for task, expected in asked.reference.items():
        text = f"the minimum: {asked.threshold:g} of {expected:g}, set by the profile"
        yield Metric(
            "accuracy_threshold", asked.threshold * expected, "ratio", description=text, verbosity=3,
            scenario=f"{asked.model}/{task}",
        )  # fmt: skip
