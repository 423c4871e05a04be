"""The part of vLLM's V1 scheduler that the harness extends: running, then waiting requests, in limits."""

from __future__ import annotations

from typing import Any

__all__ = ["AsyncScheduler"]


class AsyncScheduler:
    """Schedules tokens, without blocks or preemption.

    Source: ``Scheduler.schedule`` of vllm/v1/core/sched/scheduler.py (0.22.1).
    """

    def __init__(self, vllm_config: Any, kv_cache_config: Any, block_size: int) -> None:
        self.vllm_config = vllm_config
        self.kv_cache_config = kv_cache_config
        self.block_size = block_size
        self.max_num_running_reqs: int = vllm_config.scheduler_config.max_num_seqs
        self.max_num_scheduled_tokens: int = vllm_config.scheduler_config.max_num_batched_tokens
        self.running: list[Any] = []
        self.waiting: list[Any] = []

    def schedule(self) -> dict[str, int]:
        """Return the tokens of one step by request."""
        budget, step = self.max_num_scheduled_tokens, {}
        for request in self.running:
            if _all_tokens_are_under_way(request):
                continue
            step[request.request_id] = min(_left(request), budget)
            budget -= step[request.request_id]
        while self.waiting and budget > 0 and len(self.running) < self.max_num_running_reqs:
            request = self.waiting.pop(0)
            self.running.append(request)
            step[request.request_id] = min(_left(request), budget)
            budget -= step[request.request_id]
        return {name: tokens for name, tokens in step.items() if tokens}


def _left(request: Any) -> int:
    return int(request.num_tokens + request.num_output_placeholders - request.num_computed_tokens)


def _all_tokens_are_under_way(request: Any) -> bool:
    last = request.num_prompt_tokens + request.max_tokens
    pending = request.num_output_placeholders
    return bool(pending > 0 and request.num_computed_tokens + 2 - pending >= last)
