"""Collect a run's numbers for each variant of a model, by the metadata ``model`` and ``variant``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.core.records import MetricRecord

_LOAD = re.compile(r"load-(\d+)")
_LOAD_METRICS = {
    "output_tokens_per_second": "tokens_per_s",
    "output_tokens_per_second_stderr": "tokens_stderr",
    "output_tokens_per_second_per_user": "tokens_per_s_per_user",
    "ttft_mean": "ttft_s",
    "tpot_mean": "tpot_s",
    "request_failure_ratio": "failure_ratio",
}


@dataclass
class Load:
    """A load test with a number of users; None for values that were not measured.

    Args:
        scenario: the scenario of its records.
        tokens_per_s: output tokens/s of all users together.
        tokens_stderr: its standard error.
        tokens_per_s_per_user: output tokens/s of each user.
        ttft_s: mean time to first token.
        tpot_s: mean time per output token after the first.
        failure_ratio: share of requests that failed.
    """

    scenario: str
    tokens_per_s: float | None = None
    tokens_stderr: float | None = None
    tokens_per_s_per_user: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    failure_ratio: float | None = None


@dataclass
class VariantNumbers:
    """The numbers of one variant; None for values that were not measured.

    Args:
        name: the variant's name, such as ``Q4_K_M``.
        size_bytes: size of its file.
        questions: name of the question set: mmlu, or questions for any other.
        accuracy: ratio of correct answers.
        accuracy_stderr: its standard error.
        perplexity: perplexity of a text.
        perplexity_stderr: its standard error.
        prompt_tokens_per_s: prompt speed of the engine alone, one sequence.
        prompt_stddev: its standard deviation over the repetitions.
        generation_tokens_per_s: generation speed of the engine alone, one sequence.
        generation_stddev: its standard deviation over the repetitions.
        loads: load tests by the number of users.
        scenarios: scenarios of all its records.
    """

    name: str
    size_bytes: float | None = None
    questions: str = ""
    accuracy: float | None = None
    accuracy_stderr: float | None = None
    perplexity: float | None = None
    perplexity_stderr: float | None = None
    prompt_tokens_per_s: float | None = None
    prompt_stddev: float | None = None
    generation_tokens_per_s: float | None = None
    generation_stddev: float | None = None
    loads: dict[int, Load] = field(default_factory=dict)
    scenarios: set[str] = field(default_factory=set)


_METRICS: Mapping[str, tuple[str, str]] = {
    "model_size": ("", "size_bytes"),
    "mmlu_accuracy": ("mmlu", "accuracy"),
    "mmlu_accuracy_stderr": ("mmlu", "accuracy_stderr"),
    "questions_accuracy": ("questions", "accuracy"),
    "questions_accuracy_stderr": ("questions", "accuracy_stderr"),
    "perplexity": ("perplexity", "perplexity"),
    "perplexity_stderr": ("perplexity", "perplexity_stderr"),
    "prompt_tokens_per_second": ("bench", "prompt_tokens_per_s"),
    "prompt_tokens_per_second_stddev": ("bench", "prompt_stddev"),
    "generation_tokens_per_second": ("bench", "generation_tokens_per_s"),
    "generation_tokens_per_second_stddev": ("bench", "generation_stddev"),
}
"""Part of the scenario after model and variant, and the field, by the metric's name."""


def collect(records: Iterable[MetricRecord], model: str) -> dict[str, VariantNumbers]:
    """Return the variants of a model in the order of their first records; the latest value counts.

    If the engine was timed with several lengths, the first length counts.
    """
    variants: dict[str, VariantNumbers] = {}
    timed: dict[tuple[str, str], str] = {}
    for record in records:
        name = record.metadata.get("variant")
        if record.metadata.get("model") != model or not isinstance(name, str):
            continue
        numbers = variants.setdefault(name, VariantNumbers(name))
        numbers.scenarios.add(record.scenario)
        what = record.scenario.partition("#")[0].removeprefix(f"{model}/{name}/")
        if match := _LOAD.fullmatch(what):
            load = numbers.loads.setdefault(int(match[1]), Load(record.scenario))
            if field_name := _LOAD_METRICS.get(record.metric):
                setattr(load, field_name, record.value)
            continue
        where, field_name = _METRICS.get(record.metric, ("", ""))
        if not field_name or (where and what.split("/")[0] != where):
            continue
        if where == "bench" and timed.setdefault((name, field_name), what) != what:
            continue
        setattr(numbers, field_name, record.value)
        if field_name == "accuracy":
            numbers.questions = where
    return variants


def speedup_stddev(
    one: VariantNumbers, baseline: VariantNumbers, what: Literal["prompt", "generation"]
) -> float | None:
    """Return the standard deviation of a speed-up of the engine alone; None unless both rates have one."""
    return _quotient_error(
        *(
            (getattr(each, f"{what}_tokens_per_s"), getattr(each, f"{what}_stddev"))
            for each in (one, baseline)
        )
    )


def load_speedup_stderr(one: VariantNumbers, baseline: VariantNumbers, users: int) -> float | None:
    """Return the standard error of a speed-up with this number of users; None unless both rates have one."""
    loads = [each.loads.get(users, Load("")) for each in (one, baseline)]
    return _quotient_error(*((load.tokens_per_s, load.tokens_stderr) for load in loads))


def _quotient_error(
    above: tuple[float | None, float | None], below: tuple[float | None, float | None]
) -> float | None:
    """Return the error of a quotient of independent numbers, to first order; None unless both are known.

    Taylor, Introduction to Error Analysis, 3.4.

    Args:
        above: the dividend and its error.
        below: the divisor and its error.
    """
    (first, first_error), (second, second_error) = above, below
    if not first or not second or first_error is None or second_error is None:
        return None
    return first / second * math.hypot(first_error / first, second_error / second)
