"""Choose the scorer of an accuracy run by the kind of its samples' references."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from actions.loadgen.accuracy import Accuracy, not_judged
from actions.loadgen.exact_match import Reference, find_reference, judge_answers, score
from actions.loadgen.rouge import judge_rouge, rouge_of
from agent.core.errors import HostError
from parsers.mlperf_accuracy.targets import targets_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actions.loadgen.parameters import LoadGenParameters
    from actions.loadgen.sample_sets import SampleSet
    from agent.component.component import StepContext

_EXACT_MATCH_SHARE = 0.9


def check_reference(asked: LoadGenParameters, samples: SampleSet) -> None:
    """Check that the expected accuracy can be compared with the set's kind of score.

    Raises:
        HostError: if it cannot be compared.
    """
    expected = asked.accuracy_reference
    if isinstance(expected, dict) and (samples.answers or not samples.has_references):
        raise HostError(
            f"accuracy_reference gives {', '.join(expected)}, but {samples.name} has no reference texts",
            remedy="give a share, 0 to 1, or a set whose samples have a reference",
        )
    if isinstance(expected, float) and samples.has_references and not samples.answers:
        raise HostError(
            f"accuracy_reference is a share, but {samples.name} is scored by ROUGE",
            remedy="give scores in percent, such as {rouge1: 38.8, rougeLsum: 35.8}",
        )


def score_run(
    asked: LoadGenParameters,
    samples: SampleSet,
    result: Mapping[str, Any],
    case_dir: Path,
    *,
    model_sha256: str,
    context: StepContext,
) -> Accuracy | None:
    """Score an accuracy run by the set's answers or reference texts; return None if it has neither.

    Args:
        asked: the parameters.
        samples: the samples that were run.
        result: ``harness_result.json``.
        case_dir: the folder with the answers.
        model_sha256: the SHA-256 of the model's file, if known.
        context: the step.

    Raises:
        ActionFailedError: if the answers cannot be scored.
    """
    engine = result.get("engine") or {}
    if engine.get("load_format") == "dummy":
        return not_judged("the weights are random (load_format dummy): there is no accuracy to measure")
    expected = asked.accuracy_reference
    if samples.answers:
        fewer = result["asked"].get("accuracy_sample_count_override")
        scored = score(case_dir / "outputs.jsonl", samples, fewer)
        if isinstance(expected, float):
            reference: Reference | None = Reference(expected, "given by the profile")
        else:
            reference = find_reference(asked.model, model_sha256, samples, scored)
        share = _EXACT_MATCH_SHARE if asked.accuracy_threshold is None else asked.accuracy_threshold
        return judge_answers(scored, reference, share, model=asked.model, set_name=samples.name)
    if samples.has_references:
        rouge = rouge_of(
            case_dir,
            samples.path,
            environment=asked.environment,
            encoding=str(result["data_encoding"]),
            tokenizer=asked.tokenizer or (Path(asked.vllm.model) if asked.vllm else None),
            context=context,
        )
        return judge_rouge(
            rouge,
            model=asked.model,
            official=targets_of(asked.model, asked.mlperf_round),
            expected=expected if isinstance(expected, dict) else None,
            threshold=asked.accuracy_threshold,
        )
    return None
