"""Endpoints that cheat, each measured by real LoadGen from the request to the verdict."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from actions.loadgen.executor import LoadGenExecutor
from actions.loadgen.in_environment.mock_engine.cheats import CHEATS
from actions.loadgen.parameters import LoadGenParameters
from agent.core.errors import ActionFailedError
from agent.core.records import Validity
from tests.actions.loadgen.test_cheats_within_a_stream import WITHIN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.component.component import StepContext
    from agent.core.records import Verdict

pytestmark = pytest.mark.engine

STREAMED = {
    "answer_of_another_prompt": "shared_text",
    "blank_first": "paused_blank",
    "cache_by_another_name": "prefix_cache",
    "cache_for_similar_prompts": "shared_text",
    "created_of_first_reply": "same_created",
    "each_part_twice": "doubled",
    "blank_text": "blank",
    "empty_text": "blank",
    "error_text": "error_text",
    "finish_filtered": "withheld",
    "finish_length_early": "short_of_length",
    "finish_missing": "unfinished",
    "hidden_cache": "prefix_cache",
    "invisible_rest": "blank_parts",
    "keep_alives_as_tokens": "blank_parts",
    "longer": "too_long",
    "longer_and_shorter": "too_long",
    "one_burst": "burst",
    "one_chunk": "burst",
    "other_choice": "choices",
    "other_model": "other_model",
    "other_model_now_and_then": "other_model",
    "proxy_cache": "stored",
    "reasoning": "blank",
    "role_then_burst": "burst",
    "same_text": "shared_text",
    "second_choice": "choices",
    "stored_reply": "same_id",
    "text_after_the_end": "text_after_end",
    "timings_of_other_tokens": "timed_tokens",
    "timings_too_long": "worked_longer",
    "token_ids": "token_ids",
    "too_fast": "burst",
    "tool_calls": "withheld",
    "truncated": "unfinished",
    "usage_accumulates": "too_long",
    "usage_after_end": "usage_after_end",
    "usage_deflated": "more_parts",
    "usage_falls": "usage_falls",
    "usage_inflated": "too_long",
    "usage_missing_and_split": "too_long",
    "usage_of_each_part": "more_parts",
    "usage_of_prompt_varies": "prompt_varies",
    "usage_of_another_reply": "more_parts",
    "word_first": "paused_alike",
    "words_first": "paused_alike",
}
"""Cheats that make a result INVALID, with the code of the reason."""
WARNED = {
    "bundles": "a part of the stream has 8 tokens on average",
    "created_long_ago": "name a time of creation before their request",
    "echo": "repeat their prompt",
    "fallback": "come from a gateway that tried before without success",
    "few_words_now_and_then": "have fewer bytes of text than tokens",
    "hidden_reasoning": "count tokens that they do not show",
    "logprobs_of_fewer": "contain the probabilities of more or fewer tokens than they count",
    "no_model": "name no model",
    "two_ends": "send further data after the end of their stream",
    "providers_in_turn": "come from another build of the server, or another provider, than the reply before",
    "rejected_prediction": "count tokens that they do not show",
    "repeated_word": "repeat one word",
    "retried_by_gateway": "come from a gateway that tried before without success",
    "usage_as_asked": "a part of the stream has 3.2 tokens on average",
    "usage_missing": "were counted by the parts of the stream",
    "usage_missing_in_part": "were counted by the parts of the stream",
    "usage_of_prompt": "the prompts may have been cut",
    "words_of_prompt_first": "pause after their first words for most of their time",
}
"""Cheats that leave a result VALID, with a warning."""
HARMLESS = (
    "computed_too_fast",
    "early_stop",
    "keep_alives",
    "no_prompt_tokens",
    "role_only_first",
    "same_id_for_two",
    "split_characters",
)
"""Behaviour that does not change the number."""
WHOLE = {
    "answer_of_another_prompt": "shared_text",
    "blank_text": "blank",
    "cache_by_another_name": "prefix_cache",
    "cache_for_similar_prompts": "shared_text",
    "each_part_twice": "doubled",
    "empty_text": "blank",
    "error_text": "error_text",
    "finish_filtered": "withheld",
    "longer_and_shorter": "too_long",
    "other_model": "other_model",
    "second_choice": "choices",
    "timings_of_other_tokens": "timed_tokens",
    "usage_inflated": "too_long",
}
"""Cheats that make a result INVALID if replies are not streamed."""
WHOLE_WARNED = (
    "created_long_ago",
    "fallback",
    "few_words_now_and_then",
    "hidden_reasoning",
    "providers_in_turn",
    "rejected_prediction",
    "retried_by_gateway",
)
"""Cheats that leave a result VALID, with the warning of a streamed one, if replies are not streamed."""
TOKENS = 16
FEW = {"Server": 100, "Offline": 64}
"""Queries that suffice if many replies cheat."""
MANY = 500
"""Queries for a cheat in 1 % of the replies, and for LoadGen's own percentile of 99."""
OWN: dict[str, dict[str, Any]] = {
    "created_of_first_reply": {"target_qps": 30},  # equal times within 2 s prove nothing
    "same_id_for_two": {"min_query_count": MANY},  # so that some of the 999 ids repeat
}
"""Parameters of a cheat's test that differ from the others'."""


@pytest.fixture
def verdict_of(
    context: StepContext, bench_python: Path, mock_server: Callable[..., str], tmp_path: Path
) -> Callable[..., Verdict]:
    """Return a function that runs a test against a mock engine with a cheat, and returns the verdict."""
    prompts, conf = tmp_path / "prompts.jsonl", tmp_path / "user.conf"
    rows = (
        {"prompt": f"question {number} of many, of which none is like any other and all are of some length"}
        for number in range(32)
    )
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    conf.write_text("*.Server.target_latency_percentile = 90\n")  # early stopping needs 44 queries, not 459

    def run(
        fault: str, *, scenario: str = "Server", server: dict[str, Any] | None = None, **asked: Any
    ) -> Verdict:
        url = mock_server(
            fault=fault, model="tiny", echo=False, first_token_s=0.005, token_s=0.005, **(server or {})
        )
        limits = {"ttft_latency_ms": 600_000, "tpot_latency_ms": 60_000} if scenario == "Server" else {}
        asked = {"min_query_count": FEW[scenario], **OWN.get(fault, {}), **asked}
        parameters = LoadGenParameters.model_validate(
            {
                "model": "tiny",
                "loadgen_scenario": scenario,
                "environment": bench_python.parent.parent,
                "endpoint": url,
                "dataset": str(prompts),
                "max_output_tokens": TOKENS,
                "target_qps": 150,
                "min_duration": 0.01,
                "warmup_samples": 0,
                "max_in_flight": 64 if scenario == "Server" else 16,
                **({"user_conf": conf} if scenario == "Server" and asked["min_query_count"] < MANY else {}),
                **limits,
                **asked,
            }
        )
        (step,) = LoadGenExecutor(parameters).plan(context.facts).steps
        outcome = step.run(context)
        assert outcome is not None
        (output,) = outcome.outputs
        assert output.verdict is not None
        return output.verdict

    return run


def codes(verdict: Verdict) -> set[str]:
    return {reason.code for reason in verdict.reasons}


def of_the_endpoint(verdict: Verdict) -> tuple[str, ...]:
    """Return the warnings, without that of a host too busy to see the tokens of a stream one by one."""
    return tuple(text for text in verdict.warnings if "came with all tokens at once" not in text)


def test_no_way_to_cheat_is_left_out() -> None:
    assert {*STREAMED, *WARNED, *HARMLESS, *WITHIN} | {"error_with_status_200"} == set(CHEATS)
    assert len(CHEATS) >= 85


@pytest.mark.parametrize("scenario", ["Server", "Offline"])
def test_an_honest_endpoint_is_valid(verdict_of: Callable[..., Verdict], scenario: str) -> None:
    verdict = verdict_of("none", scenario=scenario, min_query_count=MANY)
    assert (verdict.validity, verdict.reasons, of_the_endpoint(verdict)) == (Validity.VALID, (), ())


@pytest.mark.parametrize(("fault", "code"), STREAMED.items())
def test_a_stream_that_cheats_is_invalid(verdict_of: Callable[..., Verdict], fault: str, code: str) -> None:
    verdict = verdict_of(fault)
    # Tokens counted with each part give a log with 0 s per token, which cannot be read as a result.
    assert verdict.validity is (Validity.FAILED if fault == "usage_of_each_part" else Validity.INVALID)
    assert code in codes(verdict)


@pytest.mark.parametrize(("fault", "text"), WARNED.items())
def test_what_may_be_a_cheat_is_a_warning(verdict_of: Callable[..., Verdict], fault: str, text: str) -> None:
    verdict = verdict_of(fault)
    assert (verdict.validity, verdict.reasons) == (Validity.VALID, ())
    assert text in "\n".join(verdict.warnings)


@pytest.mark.parametrize("fault", HARMLESS)
def test_what_changes_no_number_is_valid(verdict_of: Callable[..., Verdict], fault: str) -> None:
    verdict = verdict_of(fault)
    assert (verdict.validity, of_the_endpoint(verdict)) == (Validity.VALID, ())


@pytest.mark.parametrize(("fault", "code"), WHOLE.items())
def test_a_whole_reply_that_cheats_is_invalid(
    verdict_of: Callable[..., Verdict], fault: str, code: str
) -> None:
    verdict = verdict_of(fault, scenario="Offline")
    assert verdict.validity is Validity.INVALID
    assert code in codes(verdict)


@pytest.mark.parametrize("fault", WHOLE_WARNED)
def test_what_may_be_a_cheat_in_a_whole_reply_is_a_warning(
    verdict_of: Callable[..., Verdict], fault: str
) -> None:
    verdict = verdict_of(fault, scenario="Offline")
    assert (verdict.validity, verdict.reasons) == (Validity.VALID, ())
    assert WARNED[fault] in "\n".join(verdict.warnings)


def test_a_whole_reply_that_came_too_fast_is_invalid(verdict_of: Callable[..., Verdict]) -> None:
    verdict = verdict_of("too_fast", scenario="Offline", max_output_tokens=2000, max_in_flight=1)
    assert codes(verdict) == {"too_fast"}


def test_an_error_with_status_200_is_no_answer(verdict_of: Callable[..., Verdict]) -> None:
    with pytest.raises(ActionFailedError, match="no usage"):
        verdict_of("error_with_status_200", scenario="Offline")
    with pytest.raises(ActionFailedError, match="ended its stream after 0 parts"):
        verdict_of("error_with_status_200")


def test_requests_that_are_dropped_and_sent_again_are_a_warning(verdict_of: Callable[..., Verdict]) -> None:
    verdict = verdict_of("drop", server={"share": 0.01}, min_query_count=MANY)
    assert verdict.validity is Validity.VALID
    assert "the server closed the connection of 5 of 500 requests before any reply" in verdict.warnings[0]


def test_a_few_replies_are_enough_where_none_may_be_so(verdict_of: Callable[..., Verdict]) -> None:
    verdict = verdict_of("text_after_the_end", server={"share": 0.01}, min_query_count=MANY)
    assert codes(verdict) == {"text_after_end"}
