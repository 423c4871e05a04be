"""The length of vLLM's steps, and the other arguments that limit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.core.errors import HostError, LiftedBy

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOKENS = "max_num_batched_tokens"
_SEQUENCES = "max_num_seqs"
_LENGTH = "max_model_len"


def fitting_steps(engine: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return vLLM's arguments, with derived step lengths that suit the arguments of a profile.

    vLLM refuses steps of fewer tokens than ``max_num_seqs``, and without chunked prefill also steps of fewer
    tokens than ``max_model_len`` (``SchedulerConfig.verify_max_model_len``, vllm/config/scheduler.py).

    Args:
        engine: all arguments: derived ones, and those of the profile over them.
        asked: the profile's arguments, which are kept.

    Raises:
        HostError: if the profile's own arguments contradict each other.
    """
    fitted = dict(engine)
    if (tokens := _count(engine.get(_TOKENS))) is None:
        return fitted
    sequences = _count(engine.get(_SEQUENCES)) or 0
    if tokens < sequences and _TOKENS in asked and _SEQUENCES not in asked:
        sequences = fitted[_SEQUENCES] = tokens
    is_whole = _is_off(engine.get("enable_chunked_prefill"))
    length = _count(engine.get(_LENGTH)) if is_whole else 0
    if _TOKENS not in asked:
        if length is None:
            del fitted[_TOKENS]  # only vLLM knows the model's length
        else:
            fitted[_TOKENS] = max(tokens, sequences, length)
    elif tokens < sequences:
        raise _too_short(tokens, f"{_SEQUENCES} {sequences}", sequences)
    elif length and tokens < length and _LENGTH in asked:
        raise _too_short(tokens, f"{_LENGTH} {length} without chunked prefill", length)
    elif length and tokens < length:
        fitted[_LENGTH] = tokens
    return fitted


def _too_short(tokens: int, other: str, least: int) -> HostError:
    return HostError(
        f"vLLM refuses {_TOKENS} {tokens} with {other}",
        remedy=f"set {_TOKENS} to at least {least}, or leave it out",
        lifted_by=LiftedBy.NOTHING,
    )


def _count(value: Any) -> int | None:
    """Return a positive number, also from a text; None for anything else, which vLLM judges."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if number > 0 else None


def _is_off(value: Any) -> bool:
    return value is not None and str(value).strip().lower() in {"false", "0"}
