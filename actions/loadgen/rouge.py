"""Judge accuracy by ROUGE, for sets with reference texts; the benchmark's environment computes the scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actions.loadgen.accuracy import Accuracy, not_judged
from actions.loadgen.harness_run import harness_environment
from agent.component.environment_script import program_command, run_script
from agent.core.records import Metric, Reason, Relativity, Validity, Verdict
from agent.core.safe_files import replace_text
from parsers.mlperf_accuracy.targets import SCORES, AccuracyTargets, Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.component.component import StepContext

_HUNDRED = 100
_NO_ABBREVIATIONS = (
    "rougeLsum was computed without NLTK's punkt_tab, by which MLPerf splits sentences: an abbreviation "
    "may have ended one, both in answers and references; add punkt_tab to NLTK_DATA, or llama-index-core, "
    "which includes it, to the environment's requirements"
)


@dataclass(frozen=True)
class Bar:
    """Targets that scores are compared with.

    Args:
        targets: a target for each score.
        source: origin of the targets, for people.
    """

    targets: Mapping[str, Target]
    source: str


def rouge_of(
    case_dir: Path,
    dataset: Path,
    *,
    environment: Path,
    encoding: str,
    tokenizer: Path | None,
    context: StepContext,
) -> dict[str, Any]:
    """Score the accuracy log in a case's folder, in the benchmark's environment.

    Args:
        case_dir: the folder of ``mlperf_log_accuracy.json``; ``rouge_result.json`` and ``accuracy.txt`` are
            written there, the latter in the format that MLPerf's submission checker reads.
        dataset: the samples that were run.
        environment: the environment with rouge_score.
        encoding: encoding of the answers: ``utf-8`` or ``int32``.
        tokenizer: the folder of the model's tokenizer, if answers are tokens.
        context: the context of the step.

    Returns:
        the scores as ``harness.rouge`` computes them.

    Raises:
        ActionFailedError: if they cannot be computed; includes a remedy.
    """
    result = run_script(
        program_command(environment, "harness.rouge"),
        {
            "accuracy_log": str(case_dir / "mlperf_log_accuracy.json"),
            "dataset": str(dataset.absolute()),
            "encoding": encoding,
            "tokenizer": str(tokenizer or ""),
        },
        context=context,
        path=case_dir / "rouge.json",
        env=harness_environment(),
    )
    shown = {name: str(value) if name in SCORES else value for name, value in result.items()}
    names = [*SCORES, "gen_len", "gen_num", "gen_tok_len", "tokens_per_sample"]
    line = {name: shown[name] for name in names if name in shown}
    replace_text(case_dir / "accuracy.txt", f"{line}\n")
    return result


def judge_rouge(
    result: Mapping[str, Any],
    *,
    model: str,
    official: AccuracyTargets | None,
    expected: Mapping[str, float] | None = None,
    threshold: float | None = None,
) -> Accuracy:
    """Judge scores by the model's official targets, or by the profile's expected scores.

    Args:
        result: the result of ``rouge_of``.
        model: the model's name.
        official: the official targets; they only apply to the whole data set.
        expected: scores by name in percent, which replace the official ones, for a part of the set.
        threshold: the minimum share of the targets; 0.99 if None.
    """
    answered = int(result["gen_num"])
    warnings = () if result["sentence_tokenizer"] == "punkt_tab" else (_NO_ABBREVIATIONS,)
    if expected:
        least = 0.99 if threshold is None else threshold
        targets = {name: Target(target=value, least=least) for name, value in expected.items()}
        bar = Bar(targets, "set by the profile")
    elif official is None:
        why = (
            f"MLPerf has no accuracy target for {model} in this round: the scores are recorded but not judged"
        )
        return not_judged(why, *_metrics(result, None))
    elif answered != official.samples:
        why = (
            f"{answered} samples were scored, but MLPerf's target for {official.model} is for "
            f"{official.samples}: the scores are recorded but not judged; set accuracy_reference for these"
        )
        return not_judged(why, *_metrics(result, None))
    else:
        bar = Bar(official.scores, f"MLPerf {official.rounds[0]} to {official.rounds[-1]}, {official.model}")
    reasons = tuple(_missed(result, bar))
    used = warnings if "rougeLsum" in bar.targets else ()
    verdict = Verdict(Validity.INVALID if reasons else Validity.VALID, reasons, used)
    return Accuracy(verdict, tuple(_metrics(result, bar)))


def _missed(result: Mapping[str, Any], bar: Bar) -> Iterator[Reason]:
    for name, target in bar.targets.items():
        value = result.get(name)
        least, most = target.least * target.target, (target.most or math.inf) * target.target
        least_of = f"at least {least:.8g} is needed ({target.least:g} of {target.target:g}, {bar.source})"
        if value is None:
            yield Reason(
                f"{name} is unknown; {least_of}",
                "only token ids can be counted: use a backend that returns them",
                code="accuracy",
            )
        elif value < least:
            yield Reason(
                f"{name} is {value:.8g}; {least_of}",
                "check the weights, the quantisation, the prompt's tokens and max_output_tokens",
                code="accuracy",
            )
        elif value > most:
            yield Reason(
                f"{name} is {value:.8g}; at most {most:.8g} is allowed ({target.most:g} of "
                f"{target.target:g}, {bar.source})",
                "check that generation ends at the end-of-text tokens, and max_output_tokens",
                code="accuracy",
            )


def _metrics(result: Mapping[str, Any], bar: Bar | None) -> Iterator[Metric]:
    samples = {"samples": int(result["gen_num"])}
    for name in SCORES:
        metadata = {**samples, "mlperf_value": result[name], "mlperf_unit": "percent"}
        if name == "rougeLsum":
            metadata["sentence_tokenizer"] = result["sentence_tokenizer"]
        text = f"{name}: mean F-measure of answers and reference texts, with stemming"
        yield Metric(
            name, result[name] / _HUNDRED, "ratio", Relativity.HIGHER, text,
            verbosity=1 if name in ("rouge1", "rougeLsum") else 2, metadata=metadata,
        )  # fmt: skip
        if bar and name in bar.targets:
            target = bar.targets[name]
            least = target.least * target.target / _HUNDRED
            text = f"the minimum: {target.least:g} of {target.target:g} % ({bar.source})"
            yield Metric(f"{name}_threshold", least, "ratio", description=text, verbosity=3)
    yield Metric("gen_len", result["gen_len"], "count", description="characters of all answers", verbosity=2)
    if "gen_tok_len" in result:
        per_sample = result["gen_tok_len"] / result["gen_num"]
        yield Metric("tokens_per_sample", per_sample, "tokens", description="mean length", verbosity=2)
