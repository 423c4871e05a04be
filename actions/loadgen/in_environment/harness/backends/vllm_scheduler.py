"""Schedule prefill and decode in separate steps, for vLLM's V1 engine.

vLLM mixes prompts and running answers in one step. On Hopper that is slow with many answers: the attention
kernel then treats each answer's single row as a tile of a prompt's size (on an H100 with Llama 3.1 8B 1.24 ms
per layer in a mixed step of 8,192 tokens). Here a step contains either prompts or answers.

The engine imports this class by its name (``scheduler_cls``) in its own process. It relies on the V1
scheduler's ``running``, ``waiting`` and ``max_num_running_reqs`` (vLLM 0.22), and on asynchronous scheduling,
which is vLLM's default on GPUs.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

SETTINGS = {
    "free_share": 0.0,
    "waiting_tokens": 0,
    "longest_wait_s": 0.1,
    "decode_steps": 1,
    "prefill_steps": 0,
}
"""Names and default values of the settings.

- ``free_share``: prompts wait until this share of ``max_num_seqs`` is free (0 to 1).
- ``waiting_tokens``: prompts wait until they have this many tokens in total …
- ``longest_wait_s``: … or until the first one has waited this long, in seconds.
- ``decode_steps``: minimum number of decode steps between prefill phases.
- ``prefill_steps``: maximum number of prefill steps in a row; 0 for as many as fit.
"""


_LIMITS = ("max_num_running_reqs", "max_num_active_reqs")
"""Attributes that limit the running requests; newer versions have both."""


class PhasedScheduler(AsyncScheduler):  # type: ignore[misc]  # vLLM is not installed beside the agent
    """Runs either prompts or answers in a step.

    Settings come from ``additional_config["phases"]`` of the engine's arguments.
    """

    running: list[Any]
    max_num_running_reqs: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        asked = (self.vllm_config.additional_config or {}).get("phases", {})
        self._settings = {**SETTINGS, **asked}
        self._tokens_that_fit = (self.kv_cache_config.num_blocks - 1) * self.block_size
        self._prefilled = 0
        self._decoded = 0

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Schedule one step: of prompts if it is their turn and there is room, else of answers."""
        prompts = [request for request in self.running if _has_prompt_left(request)]
        answers = [request for request in self.running if not _has_prompt_left(request)]
        admitted = self._room(len(answers) + len(prompts))
        if (prompts or admitted) and self._is_prompts_turn(answers, prompts, admitted):
            self._prefilled, self._decoded = self._prefilled + 1, 0
            return self._step(prompts, answers, len(prompts) + admitted, args, kwargs)
        self._prefilled, self._decoded = 0, self._decoded + 1
        return self._step(answers, prompts, len(answers), args, kwargs)

    def _step(self, scheduled: list[Any], hidden: list[Any], limit: int, args: Any, kwargs: Any) -> Any:
        """Let vLLM schedule as if only ``scheduled`` were running, with a limit of ``limit`` requests."""
        limits = {name: getattr(self, name) for name in _LIMITS if hasattr(self, name)}
        self.__dict__.update(dict.fromkeys(limits, limit), running=scheduled)
        try:
            return super().schedule(*args, **kwargs)
        finally:
            self.__dict__.update(limits, running=hidden + self.running)

    def _room(self, running: int) -> int:
        """Return the number of waiting requests that fit completely, so that none is preempted."""
        free = self.max_num_running_reqs - running
        if free <= 0 or not self.waiting:
            return 0
        tokens = self._tokens_that_fit - sum(map(self._whole_length, self.running))
        budget, admitted = self.max_num_scheduled_tokens, 0
        for request in self.waiting:
            tokens -= self._whole_length(request)
            if admitted == free or tokens < 0 or budget <= 0:
                break
            budget -= request.num_tokens - request.num_computed_tokens
            admitted += 1
        if admitted or self.running:
            return admitted
        return 1  # vLLM itself must refuse a request that never fits

    def _whole_length(self, request: Any) -> int:
        """Return the tokens of a request's blocks once it is answered."""
        size = self.block_size
        return int(-(-(request.num_prompt_tokens + request.max_tokens) // size) * size)

    def _is_prompts_turn(self, answers: list[Any], prompts: list[Any], admitted: int) -> bool:
        settings = self._settings
        if not any(_has_token_left(request) for request in answers):
            return True
        if self._prefilled:
            return not settings["prefill_steps"] or self._prefilled < settings["prefill_steps"]
        if self._decoded < settings["decode_steps"]:
            return False
        most = self.max_num_running_reqs
        is_room = most - len(answers) >= settings["free_share"] * most
        return bool(prompts) or (is_room and self._is_enough_waiting(admitted))

    def _is_enough_waiting(self, admitted: int) -> bool:
        """Return True if the waiting prompts fill a step, or the first has waited long enough."""
        tokens, wanted = 0, self._settings["waiting_tokens"]
        for request in itertools.islice(self.waiting, admitted):
            if time.time() - request.arrival_time >= self._settings["longest_wait_s"]:
                return True
            tokens += request.num_tokens - request.num_computed_tokens
            if tokens >= wanted:
                return True
        return False


def _has_prompt_left(request: Any) -> bool:
    """Return True if more than one token is not computed: prompt tokens, or tokens lost by a preemption."""
    return bool(request.num_tokens + request.num_output_placeholders - request.num_computed_tokens > 1)


def _has_token_left(request: Any) -> bool:
    """Return True if an answer needs another step, from the view of vLLM's asynchronous scheduler."""
    done = request.num_computed_tokens + 2 - request.num_output_placeholders
    placed = request.num_output_placeholders > 0
    return not (placed and done >= request.num_prompt_tokens + request.max_tokens)
