"""Change an honest answer in ways that make an endpoint's numbers look better than they are.

A function's name is the fault's name; its docstring describes the endpoint's behaviour.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from .answer import words_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .answer import Answer

CHEATS: dict[str, Callable[[Answer], None]] = {}
_OTHER_MODEL = "tiny-draft"


def _cheat(function: Callable[[Answer], None]) -> Callable[[Answer], None]:
    CHEATS[function.__name__.lstrip("_")] = function
    return function


@_cheat
def _usage_inflated(answer: Answer) -> None:
    """Claim twice the tokens."""
    answer.claim(2 * len(answer.parts))


@_cheat
def _usage_as_asked(answer: Answer) -> None:
    """Claim the number of tokens requested, but send only a third of them."""
    answer.cut(1 / 3)


@_cheat
def _usage_deflated(answer: Answer) -> None:
    """Claim half of the tokens that are sent."""
    answer.claim(len(answer.parts) / 2)


@_cheat
def _usage_of_prompt(answer: Answer) -> None:
    """Cut the prompt: report three prompt tokens for a longer prompt."""
    if answer.usage is not None:
        answer.usage["prompt_tokens"] = 3


@_cheat
def _usage_of_prompt_varies(answer: Answer) -> None:
    """Cut the prompt occasionally."""
    if answer.usage is not None:
        answer.usage["prompt_tokens"] -= answer.number % 2


@_cheat
def _usage_missing(answer: Answer) -> None:
    """Send no token counts."""
    answer.usage = None


@_cheat
def _usage_missing_and_split(answer: Answer) -> None:
    """Send no token counts, and split each token into two parts."""
    answer.usage = None
    answer.parts = [half for part in answer.parts for half in (part[:2], part[2:])]


@_cheat
def _usage_missing_in_part(answer: Answer) -> None:
    """Send token counts only with every second reply."""
    if answer.number % 2:
        answer.usage = None


@_cheat
def _usage_falls(answer: Answer) -> None:
    """Send decreasing token counts with the parts."""
    answer.usage_of_parts = list(range(len(answer.parts), 0, -1))


@_cheat
def _usage_of_each_part(answer: Answer) -> None:
    """Send a count of 1 with each part, and no count for the whole answer."""
    answer.usage_of_parts, answer.usage = [1] * len(answer.parts), None


@_cheat
def _usage_accumulates(answer: Answer) -> None:
    """Add up the counts of all parts, although each count includes the earlier parts."""
    count = len(answer.parts)
    answer.usage_of_parts = [place * (place + 1) // 2 for place in range(1, count + 1)]
    answer.claim(count * (count + 1) // 2)


@_cheat
def _empty_text(answer: Answer) -> None:
    """Claim tokens but send no text."""
    answer.parts = [""] * len(answer.parts)


@_cheat
def _blank_text(answer: Answer) -> None:
    """Send whitespace as tokens."""
    answer.parts = [" "] * len(answer.parts)


@_cheat
def _keep_alives_as_tokens(answer: Answer) -> None:
    """Send blanks as keep-alives, without token counts, so that they are counted as tokens."""
    answer.usage = None
    answer.parts = [part if place % 4 == 0 else " " for place, part in enumerate(answer.parts)]


@_cheat
def _repeated_word(answer: Answer) -> None:
    """Repeat one word."""
    answer.parts = answer.parts[:1] * len(answer.parts)


@_cheat
def _same_text(answer: Answer) -> None:
    """Send the same answer to every prompt."""
    answer.parts = words_of("any", len(answer.parts))


@_cheat
def _answer_of_another_prompt(answer: Answer) -> None:
    """Send answers to other prompts."""
    answer.parts = words_of(str(answer.number % 5), len(answer.parts))


@_cheat
def _echo(answer: Answer) -> None:
    """Repeat the prompt."""
    count = len(answer.prompt)
    answer.parts = [f" {answer.prompt[place % count]}" for place in range(len(answer.parts))]


@_cheat
def _one_chunk(answer: Answer) -> None:
    """Send all tokens in one part."""
    answer.parts = ["".join(answer.parts)]
    answer.pauses = {0: 0.02}


@_cheat
def _bundles(answer: Answer) -> None:
    """Send the tokens in two parts."""
    half = len(answer.parts) // 2
    answer.parts = ["".join(answer.parts[:half]), "".join(answer.parts[half:])]
    answer.pauses = {1: 0.05}


@_cheat
def _one_burst(answer: Answer) -> None:
    """Send all parts at the same time."""
    answer.together, answer.pauses = True, {0: 0.02}


@_cheat
def _blank_first(answer: Answer) -> None:
    """Send a blank at once and the tokens later."""
    answer.parts[0] = " "
    answer.pauses, answer.together = {1: 0.1}, True


@_cheat
def _word_first(answer: Answer) -> None:
    """Send the same word at once and the tokens later."""
    answer.parts[0] = " Well"
    answer.pauses = {1: 0.5}


@_cheat
def _too_fast(answer: Answer) -> None:
    """Answer faster than any engine could."""
    answer.instant = True


@_cheat
def _other_model(answer: Answer) -> None:
    """Answer with another model, and report its name."""
    answer.model = _OTHER_MODEL


@_cheat
def _other_model_now_and_then(answer: Answer) -> None:
    """Answer every tenth request with another model."""
    if answer.number % 10 == 0:
        answer.model = _OTHER_MODEL


@_cheat
def _no_model(answer: Answer) -> None:
    """Omit the model's name."""
    answer.model = ""


@_cheat
def _error_text(answer: Answer) -> None:
    """Send an error message as the answer."""
    answer.parts = ["Error: CUDA out of memory", *[" "] * (len(answer.parts) - 1)]


@_cheat
def _error_with_status_200(answer: Answer) -> None:
    """Send an error with status 200."""
    answer.body = {"detail": "the model is overloaded", "status": 503}


@_cheat
def _second_choice(answer: Answer) -> None:
    """Send two choices, and count the tokens of both."""
    answer.indices = (0, 1)
    answer.claim(2 * len(answer.parts))


@_cheat
def _other_choice(answer: Answer) -> None:
    """Send a choice that was not requested."""
    answer.indices = (1,)


@_cheat
def _finish_missing(answer: Answer) -> None:
    """Omit the finish_reason."""
    answer.finish = None


@_cheat
def _finish_filtered(answer: Answer) -> None:
    """Withhold the answer with finish_reason content_filter."""
    answer.finish = "content_filter"


@_cheat
def _finish_length_early(answer: Answer) -> None:
    """Send half of the tokens with finish_reason length."""
    answer.cut(1 / 2)
    answer.claim(len(answer.parts))


@_cheat
def _tool_calls(answer: Answer) -> None:
    """Send a tool call."""
    answer.text_field, answer.finish = "tool_calls", "tool_calls"


@_cheat
def _reasoning(answer: Answer) -> None:
    """Send reasoning instead of text."""
    answer.text_field = "reasoning_content"


@_cheat
def _longer(answer: Answer) -> None:
    """Send more tokens than requested."""
    answer.parts += answer.parts[:3]
    answer.claim(len(answer.parts))


@_cheat
def _longer_and_shorter(answer: Answer) -> None:
    """Alternate between one token too many and one too few, so that the sum is right."""
    if answer.number % 2:
        answer.parts.append(" more")
    else:
        answer.parts.pop()
    answer.claim(len(answer.parts))


@_cheat
def _truncated(answer: Answer) -> None:
    """Send a third of the parts, then the end of the stream."""
    answer.cut(1 / 3)
    answer.finish = None


@_cheat
def _text_after_the_end(answer: Answer) -> None:
    """Send the end of the stream before half of the tokens."""
    half = len(answer.parts) // 2
    answer.late = answer.parts[half:]
    del answer.parts[half:]


@_cheat
def _token_ids(answer: Answer) -> None:
    """Send fewer token ids than the tokens claimed."""
    answer.token_ids = [1, 2]


@_cheat
def _timings_of_other_tokens(answer: Answer) -> None:
    """Report another number of tokens in the timings."""
    answer.timings = {"predicted_n": 3}


@_cheat
def _timings_too_long(answer: Answer) -> None:
    """Claim a longer computing time than the answer took."""
    answer.timings = {"predicted_n": len(answer.parts), "prompt_ms": 10, "predicted_ms": 900_000}


@_cheat
def _hidden_cache(answer: Answer) -> None:
    """Take most of the prompt from a cache without reporting it."""
    answer.timings = {"prompt_n": 1}


@_cheat
def _stored_reply(answer: Answer) -> None:
    """Send the stored reply to an earlier, equal prompt."""
    answer.reply_id = f"cmpl-{zlib.crc32(' '.join(answer.prompt).encode())}"


@_cheat
def _proxy_cache(answer: Answer) -> None:
    """Act as a proxy that caches replies."""
    answer.headers = "Age: 12\r\n"


@_cheat
def _role_only_first(answer: Answer) -> None:
    """Send a part with a role and no text at once, and the tokens later."""
    answer.begin = [{"choices": [{"index": 0, "text": "", "role": "assistant"}]}]
    answer.pauses = {0: 0.05}


@_cheat
def _keep_alives(answer: Answer) -> None:
    """Send comments between the parts."""
    answer.comments = True


@_cheat
def _two_ends(answer: Answer) -> None:
    """Send the end of the stream twice."""
    answer.ends = 2


@_cheat
def _spliced(answer: Answer) -> None:
    """Join the parts of two answers; the second one keeps its id."""
    _from_half(answer, id="cmpl-of-another")


@_cheat
def _id_of_each_part(answer: Answer) -> None:
    """Give each part an id of its own."""
    answer.edits = {place: {"id": f"{answer.reply_id}-{place}"} for place in range(len(answer.parts) + 2)}


@_cheat
def _two_models(answer: Answer) -> None:
    """Let another model continue the answer."""
    _from_half(answer, model=_OTHER_MODEL)


@_cheat
def _two_builds(answer: Answer) -> None:
    """Let another build of the server continue the answer."""
    _from_half(answer, system_fingerprint="b2")
    answer.edits[0] = {"system_fingerprint": "b1"}


@_cheat
def _other_build(answer: Answer) -> None:
    """Let two builds of the server answer in turn."""
    answer.edits = {0: {"system_fingerprint": f"b{answer.number % 2}"}}


@_cheat
def _created_falls(answer: Answer) -> None:
    """Continue with parts that were made before the first ones."""
    _from_half(answer, created=1_700_000_000)
    answer.edits[0] = {"created": 1_700_000_100}


@_cheat
def _text_after_finish(answer: Answer) -> None:
    """Finish after half of the tokens, and send the other half nevertheless."""
    half = len(answer.parts) // 2
    answer.more = {half: [answer.event(part) for part in answer.parts[half:]]}
    del answer.parts[half:]


@_cheat
def _early_finish(answer: Answer) -> None:
    """Give each part a finish_reason, so that a second answer could follow without a sign."""
    answer.edits = {
        place: {"choices": answer.event(part, "stop")["choices"]} for place, part in enumerate(answer.parts)
    }


@_cheat
def _finish_of_first_part(answer: Answer) -> None:
    """Join a second answer to one of two tokens."""
    answer.edits = {1: {"choices": answer.event(answer.parts[1], "stop")["choices"]}}


@_cheat
def _two_finishes(answer: Answer) -> None:
    """Send a second finish_reason."""
    answer.more = {len(answer.parts): [answer.event("", "stop")]}


@_cheat
def _usage_after_end(answer: Answer) -> None:
    """Correct the token counts after the end of the stream."""
    answer.more = {-1: [{"choices": [], "usage": dict(answer.usage or {})}]}
    answer.claim(len(answer.parts) - 1)


@_cheat
def _usage_again_after_end(answer: Answer) -> None:
    """Repeat the token counts after the end of the stream."""
    answer.more = {-1: [{"choices": [], "usage": answer.usage}]}


@_cheat
def _usage_differs(answer: Answer) -> None:
    """Send two different token counts at the end."""
    count = len(answer.parts)
    answer.more = {count + 1: [{"choices": [], "usage": dict(answer.usage or {})}]}
    answer.claim(count / 2)


@_cheat
def _prompt_differs(answer: Answer) -> None:
    """Send two different counts of the prompt's tokens."""
    answer.more = {0: [{"choices": [], "usage": {"prompt_tokens": 99, "completion_tokens": 1}}]}


@_cheat
def _total_tokens(answer: Answer) -> None:
    """Send a total that includes tokens that are in neither count."""
    if answer.usage is not None:
        answer.usage["total_tokens"] = answer.usage["prompt_tokens"] + len(answer.parts) + 40


@_cheat
def _invisible_text(answer: Answer) -> None:
    """Send zero-width characters as tokens."""
    answer.parts = ["\u200b"] * len(answer.parts)


@_cheat
def _invisible_first(answer: Answer) -> None:
    """Send a zero-width character at once and the tokens later."""
    answer.parts[0] = "\u200b"
    answer.pauses = {1: 0.05}


@_cheat
def _hit_of_a_cache(answer: Answer) -> None:
    """Act as a proxy that reports that its cache had the reply."""
    answer.headers = "X-Cache: HIT from proxy\r\n"


@_cheat
def _each_part_twice(answer: Answer) -> None:
    """Send half of the tokens, each of them twice."""
    answer.parts = [part for part in answer.parts[: len(answer.parts) // 2] for _ in (1, 2)]


@_cheat
def _invisible_rest(answer: Answer) -> None:
    """Send the answer in two parts, and zero-width characters between them in place of tokens."""
    count = len(answer.parts)
    answer.parts = [answer.parts[0], *["\u200b"] * (count - 2), "".join(answer.parts[1:])]


@_cheat
def _words_first(answer: Answer) -> None:
    """Send the same three words at once and the tokens later."""
    answer.parts[:3] = [" Well", " then", " so"]
    answer.pauses = {3: 0.5}


@_cheat
def _words_of_prompt_first(answer: Answer) -> None:
    """Send the prompt's first words at once and the tokens later."""
    answer.parts[:3] = [f" {word}" for word in (*answer.prompt[1::-1], answer.prompt[2])]
    answer.pauses = {3: 0.5}


@_cheat
def _role_then_burst(answer: Answer) -> None:
    """Send the role at once, and all tokens later in one part."""
    _role_only_first(answer)
    _one_chunk(answer)


@_cheat
def _hidden_reasoning(answer: Answer) -> None:
    """Count the tokens of reasoning that is not sent."""
    if answer.usage is not None:
        answer.usage["completion_tokens_details"] = {"reasoning_tokens": 4}
    del answer.parts[:4]


@_cheat
def _rejected_prediction(answer: Answer) -> None:
    """Count the tokens of a draft that was rejected."""
    if answer.usage is not None:
        answer.usage["completion_tokens_details"] = {"rejected_prediction_tokens": 4}
    del answer.parts[:4]


@_cheat
def _cache_by_another_name(answer: Answer) -> None:
    """Report the prompt's cached tokens in DeepSeek's field only."""
    if answer.usage is not None:
        answer.usage.pop("prompt_tokens_details")
        answer.usage["prompt_cache_hit_tokens"] = 8


@_cheat
def _logprobs_of_fewer(answer: Answer) -> None:
    """Send the probabilities of half as many tokens as are counted."""
    answer.edits = {
        place: {"choices": [{"index": 0, "text": part, "logprobs": {"tokens": [part]}}]}
        for place, part in enumerate(answer.parts[::2])
    }


@_cheat
def _created_of_first_reply(answer: Answer) -> None:
    """Send the stored reply to an earlier, equal prompt with an id of its own, but the old time."""
    created = 1_700_000_000 + zlib.crc32(" ".join(answer.prompt).encode()) % 1000
    answer.edits = {place: {"created": created} for place in range(len(answer.parts) + 2)}


@_cheat
def _created_long_ago(answer: Answer) -> None:
    """Send replies that were made an hour before they were asked for."""
    answer.headers = "Date: Wed, 15 Nov 2023 00:00:00 GMT\r\n"
    answer.edits = {
        place: {"created": 1_700_002_800 - answer.number} for place in range(len(answer.parts) + 2)
    }


@_cheat
def _fallback(answer: Answer) -> None:
    """Act as a gateway that let another model answer under the requested name."""
    answer.headers = "x-litellm-attempted-fallbacks: 1\r\n"


@_cheat
def _retried_by_gateway(answer: Answer) -> None:
    """Act as a gateway that hides failures by retrying."""
    answer.headers = "x-portkey-retry-attempt-count: 2\r\n"


@_cheat
def _providers_in_turn(answer: Answer) -> None:
    """Let two providers answer in turn."""
    provider = "Alpha" if answer.number % 2 else "Beta"
    answer.edits = {place: {"provider": provider} for place in range(len(answer.parts) + 2)}


@_cheat
def _few_words_now_and_then(answer: Answer) -> None:
    """Claim all tokens, but send two short ones with every fifth reply."""
    if answer.number % 5 == 0:
        answer.parts = [" ok", f" {answer.number}"]


@_cheat
def _usage_of_another_reply(answer: Answer) -> None:
    """Send the token counts of another reply, which was shorter or longer."""
    count = len(answer.parts)
    answer.cut(1 if answer.number % 2 else 1 / 2)
    answer.claim(count / 2 if answer.number % 2 else count)


@_cheat
def _cache_for_similar_prompts(answer: Answer) -> None:
    """Send the same answer to prompts that differ in one word."""
    alike = [word for word in answer.prompt if not word.isdigit()]
    answer.parts = words_of(" ".join(alike), len(answer.parts))


@_cheat
def _same_id_for_two(answer: Answer) -> None:
    """Draw ids at random from a thousand, as Ollama does."""
    answer.reply_id = f"chatcmpl-{zlib.crc32(str(answer.number).encode()) % 999}"


@_cheat
def _split_characters(answer: Answer) -> None:
    """Send the two halves of a character in two parts."""
    answer.parts[2:4] = ["\ud83d", "\ude00"]


@_cheat
def _no_prompt_tokens(answer: Answer) -> None:
    """Count 0 prompt tokens."""
    if answer.usage is not None:
        answer.usage["prompt_tokens"] = 0


@_cheat
def _early_stop(answer: Answer) -> None:
    """End every fourth answer after half of its tokens, as if the model had ended it."""
    if answer.number % 4 == 0:
        answer.cut(1 / 2)
        answer.claim(len(answer.parts))
        answer.finish = "stop"


@_cheat
def _computed_too_fast(answer: Answer) -> None:
    """Claim a tenth of the time that the answer took."""
    answer.timings = {"predicted_n": len(answer.parts), "predicted_ms": 5.0, "predicted_per_second": 3200.0}


def _from_half(answer: Answer, **fields: Any) -> None:
    """Change fields of all events from the middle of the answer on."""
    count = len(answer.parts)
    answer.edits = {place: dict(fields) for place in range(count // 2, count + 2)}
