"""Merge the results of a test into one parsed output.

The sources are LoadGen's logs, the harness's result and the accuracy score.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from actions.loadgen.accuracy import not_judged
from actions.loadgen.caveats import blame_client, caveats, client_metrics, mlperf_standing
from actions.loadgen.in_environment.harness.backends.vllm_own import CLOSED
from agent.core.mlperf import STANDING
from agent.core.records import Metric, ParsedOutput, Reason, Relativity, Validity, Verdict
from gpu_configs.vllm_engine import SERVER_SCENARIOS
from parsers.loadgen import ACCURACY_NOT_JUDGED
from parsers.replies import Replies, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actions.loadgen.accuracy import Accuracy
    from actions.loadgen.compliance import Verified
    from actions.loadgen.parameters import LoadGenParameters
    from actions.loadgen.sample_sets import SampleSet

_LOADGEN_MODES = {"performance": "PerformanceOnly", "accuracy": "AccuracyOnly", "TEST06": "PerformanceOnly"}
_SEVERITY = (Validity.VALID, Validity.NOT_APPLICABLE, Validity.INVALID, Validity.FAILED)


@dataclass(frozen=True)
class Tested:
    """A finished test.

    Args:
        parameters: the parameters.
        samples: the samples that were sent.
        samples_sha256: the SHA-256 of their file.
        result: ``harness_result.json``.
        exact_tokens: True if every answer must have exactly ``max_output_tokens`` tokens.
        server: facts from the server that was started, and about the model's file.
        limit_samples_per_s: upper bound of the GPUs for this model, if known.
        accuracy: the score, in accuracy mode, if there is a reference.
        compliance: the outcome of a compliance test.
    """

    parameters: LoadGenParameters
    samples: SampleSet
    samples_sha256: str
    result: Mapping[str, Any]
    exact_tokens: bool
    server: Mapping[str, str | int | float] = field(default_factory=dict)
    accuracy: Accuracy | None = None
    compliance: Verified | None = None
    limit_samples_per_s: float | None = None


def merge(parsed: ParsedOutput, tested: Tested) -> ParsedOutput:
    """Return the logs' output with the harness's numbers and a verdict on all that spoils the result."""
    asked = tested.parameters
    client = tested.result.get("client") or {}
    verdict = parsed.verdict or Verdict(
        Validity.FAILED, (Reason("the logs were not judged", code="no_verdict"),)
    )
    if asked.mode == "accuracy" and ACCURACY_NOT_JUDGED in verdict.warnings:
        others = tuple(warning for warning in verdict.warnings if warning != ACCURACY_NOT_JUDGED)
        verdict = Verdict(Validity.VALID, warnings=others)  # the score decides, below
    if tested.compliance is not None and verdict.validity is Validity.NOT_APPLICABLE:
        # LoadGen's limits do not apply to a compliance run: its checks decide.
        verdict = Verdict(Validity.VALID, warnings=verdict.warnings)
    replies = judge(_replies(tested.result))
    spoiled = (
        *_other_test(parsed, asked),
        *_spoiled(tested),
        *replies.reasons,
        *_above_the_limit(parsed, tested),
        *(tested.compliance.reasons() if tested.compliance else ()),
    )
    validity = _worst(verdict.validity, Validity.INVALID) if spoiled else verdict.validity
    reasons = (*blame_client(verdict.reasons, client, parsed.details), *spoiled)
    warnings = (*verdict.warnings, *caveats(tested.result), *_open_division(tested), *replies.warnings)
    metrics = (*parsed.metrics, *_harness_metrics(parsed, tested.result), *client_metrics(client))
    if asked.mode == "accuracy":
        accuracy = tested.accuracy or not_judged(
            f"the data set {tested.samples.name} has no known answers: the answers in outputs.jsonl are "
            "not scored"
        )
        judged = accuracy.verdict
        validity = _worst(validity, judged.validity)
        reasons, warnings = (*judged.reasons, *reasons), (*warnings, *judged.warnings)
        metrics = (*accuracy.metrics, *metrics)
    return replace(
        parsed,
        scenario=f"{asked.model}/{asked.loadgen_scenario}/{asked.mode}",
        metrics=metrics,
        verdict=Verdict(validity, reasons, warnings),
        details={**parsed.details, **dict(_details(tested))},
    )


def _replies(result: Mapping[str, Any]) -> Replies:
    """Return the harness's notes on the replies; empty for an engine in its own process."""
    noted = result.get("replies") or {}
    return Replies(
        counts=noted.get("counts") or {},
        sums=noted.get("sums") or {},
        examples=noted.get("examples") or {},
        recount=noted.get("recount") or {},
        repeats=result.get("repeats") or {},
    )


def _worst(*validities: Validity) -> Validity:
    return max(validities, key=_SEVERITY.index)


def _other_test(parsed: ParsedOutput, asked: LoadGenParameters) -> Iterator[Reason]:
    """Yield a reason if the logs are of another scenario or mode than requested."""
    scenario = "Server" if asked.loadgen_scenario in SERVER_SCENARIOS else asked.loadgen_scenario
    wanted = {"scenario": scenario, "mode": _LOADGEN_MODES[asked.mode]}
    for name, value in wanted.items():
        found = parsed.details.get(name, value)
        if found != value:
            yield Reason(
                f"LoadGen's logs are of another test: their {name} is {found}, not {value} as requested",
                "check that nothing else writes to this case's folder, and run it again",
                code="other_test",
            )


def _spoiled(tested: Tested) -> Iterator[Reason]:
    """Yield faults that LoadGen cannot detect."""
    result, most = tested.result, tested.parameters.max_output_tokens
    cached = result.get("cached_tokens")
    if cached and tested.parameters.division == CLOSED:
        yield Reason(
            f"the engine took {cached} prompt tokens from a cache of earlier prompts",
            "switch prefix caching off in the engine: MLPerf's rules forbid it across queries",
            "cache_prompt",
            False,
            "prefix_cache",
        )
    tokens, completed = int(result.get("output_tokens", 0)), int(result.get("completed", 0))
    must_be_exact = tested.exact_tokens and tested.parameters.mode != "accuracy"
    if must_be_exact and tokens != completed * most:
        yield Reason(
            f"{tokens} output tokens came for {completed} samples; exactly {most} each, {completed * most}, "
            "were enforced",
            "check that the engine honours ignore_eos and that prompt and output fit into its context",
            "max_output_tokens",
            most,
            "output_tokens",
        )
    elif tokens > completed * most:
        yield Reason(
            f"{tokens} output tokens came for {completed} samples; at most {most} each were requested",
            "check how the engine counts tokens",
            "max_output_tokens",
            most,
            "output_tokens",
        )
    noted = result.get("replies") or {}
    shortest, longest = noted.get("tokens_min"), noted.get("tokens_max")
    if must_be_exact and tokens == completed * most and shortest is not None and shortest != longest:
        yield Reason(
            f"answers have {shortest} to {longest} output tokens; exactly {most} each were enforced",
            "check how the engine counts tokens",
            "max_output_tokens",
            most,
            "output_tokens",
        )
    if set_by_s := result.get("clock_set_by_s"):
        yield Reason(
            f"the host's clock was set during the test, by {', '.join(f'{step:+g}' for step in set_by_s)} s: "
            "LoadGen uses this clock",
            "wait for a synchronised clock (chronyc waitsync), then run the test again",
            code="clock_set",
        )
    issued = int(result.get("issued", 0))
    if completed != issued or not issued:
        yield Reason(
            f"{completed} of {issued} samples were answered", "see the step's log", code="unanswered"
        )


def _open_division(tested: Tested) -> Iterator[str]:
    """Yield a note if answers came with a prefix cache, which only the open division allows."""
    cached = tested.result.get("cached_tokens")
    is_on = (tested.result.get("engine") or {}).get("enable_prefix_caching")
    if tested.parameters.division != CLOSED and (cached or is_on):
        yield (
            f"prefix caching is on ({cached or 0} prompt tokens came from the cache): a result for the open "
            "division only"
        )


def _above_the_limit(parsed: ParsedOutput, tested: Tested) -> Iterator[Reason]:
    """Yield a reason for a rate above any GPU of this kind: a counting bug, or answers from a cache."""
    rates = {metric.name: metric.value for metric in parsed.metrics}
    rate, limit = rates.get("samples_per_second"), tested.limit_samples_per_s
    if rate is not None and limit is not None and rate > limit:
        yield Reason(
            f"{rate:.4g} samples/s are above the arithmetic limit of the GPUs for this model, {limit:.4g}",
            "look for a cache, for prompts or answers that are cut, and for a wrong count of tokens",
            code="above_roofline",
        )


def _harness_metrics(parsed: ParsedOutput, result: Mapping[str, Any]) -> Iterator[Metric]:
    taken = {metric.name for metric in parsed.metrics}
    warmup, found = result.get("warmup") or {}, result.get("tuning") or {}
    bad = found.get("lowest_invalid_qps")
    rows: tuple[tuple[str, Any, str, Relativity, str], ...] = (
        ("output_token_count", result.get("output_tokens"), "count", Relativity.UNDEFINED, "output tokens"),
        ("input_token_count", result.get("input_tokens"), "count", Relativity.UNDEFINED, "input tokens"),
        ("retry_count", result.get("retries"), "count", Relativity.LOWER,
         "requests sent again because the connection was closed before any reply"),
        ("cached_input_token_count", result.get("cached_tokens"), "count", Relativity.LOWER,
         "input tokens that the engine took from a prefix cache"),
        ("warmup_samples_per_second", warmup.get("samples_per_second"), "samples/s", Relativity.HIGHER,
         "rate of the warm-up with all of its samples in flight"),
        ("warmup_latency", warmup.get("latency_s"), "seconds", Relativity.LOWER,
         "median latency of a single query in the warm-up"),
        ("load_bracket_width", bad and bad / found["target_qps"] - 1, "ratio", Relativity.LOWER,
         "distance of the lowest invalid target_qps above the one found"),
    )  # fmt: skip
    for name, value, unit, relativity, description in rows:
        if value is not None and name not in taken:
            yield Metric(name, float(value), unit, relativity, description, verbosity=2)


def _details(tested: Tested) -> Iterator[tuple[str, str | int | float | bool]]:
    asked, result = tested.parameters, tested.result
    engine = result.get("engine") or {}
    facts: dict[str, Any] = {
        "model": asked.model,
        "division": asked.division,
        "loadgen_model": result.get("loadgen_model"),
        "endpoint_model": engine.get("model"),
        "data_set": tested.samples.name,
        "data_set_samples": len(tested.samples.ids),
        "data_set_sha256": tested.samples_sha256,
        "max_output_tokens": asked.max_output_tokens,
        "warmup_samples": (result.get("warmup") or {}).get("samples"),
        "load_share": (result.get("load_share") or {}).get("share"),
        "token_count_source": ", ".join(result.get("token_count_sources") or {}),
        "user_conf": str(asked.user_conf) if asked.user_conf else None,
        **(tested.compliance.details() if tested.compliance else {}),
        STANDING: mlperf_standing(result),
        **{f"server_{name}": value for name, value in tested.server.items()},
        **{f"engine_{name}": value for name, value in engine.items()},
        **{f"client_{name}": value for name, value in (result.get("client") or {}).items()},
        **{f"{name}_version": value for name, value in (result.get("versions") or {}).items()},
    }
    for name, value in facts.items():
        if isinstance(value, str | int | float | bool) and value != "":
            yield name, value
