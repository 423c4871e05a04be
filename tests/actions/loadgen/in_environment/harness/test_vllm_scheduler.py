"""Steps of prompts or of answers, on a stand-in for the part of vLLM's scheduler that it extends."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

STAND_IN = Path(__file__).parents[4] / "lab" / "vllm_stand_in"
BLOCK = 16


@dataclass
class Request:
    """The scheduler's data about a request; ``delivered`` tokens have returned from the GPU."""

    request_id: str
    num_prompt_tokens: int
    max_tokens: int
    arrival_time: float
    num_computed_tokens: int = 0
    num_output_placeholders: int = 0
    delivered: int = 0

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.delivered

    @property
    def left(self) -> int:
        return self.num_tokens + self.num_output_placeholders - self.num_computed_tokens


class Simulation:
    """Runs steps as the asynchronous engine does: it schedules the next before a step's tokens are back."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.requests: list[Request] = []
        self.trace = ""
        self._under_way: list[Request] = []

    def add(self, count: int, *, prompt: int = 32, answer: int = 4, waited_s: float = 0) -> None:
        for _ in range(count):
            request = Request(str(len(self.requests)), prompt, answer, time.time() - waited_s)
            self.requests.append(request)
            self.scheduler.waiting.append(request)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            left = {request.request_id: request.left for request in self.requests}
            limits = self.scheduler.max_num_running_reqs
            scheduled = self.scheduler.schedule()
            assert self.scheduler.max_num_running_reqs == limits >= len(self.scheduler.running)
            kinds = set()
            placed = []
            for request in self.requests:
                tokens = scheduled.get(request.request_id, 0)
                if tokens:
                    # The last token of a prompt is one row of the attention, like a token of an answer.
                    kinds.add("P" if left[request.request_id] > 1 else "A")
                    request.num_computed_tokens += tokens
                    if request.num_computed_tokens >= request.num_prompt_tokens:
                        request.num_output_placeholders += 1
                        placed.append(request)
            assert len(kinds) <= 1, "a step holds prompts or answers"
            self.trace += kinds.pop() if kinds else "-"
            for request in self._under_way:
                request.delivered += 1
                request.num_output_placeholders -= 1
                if request.delivered == request.max_tokens:
                    self.scheduler.running.remove(request)
            self._under_way = placed


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Simulation]:
    """Return a function that makes a simulation with phases, sequences, tokens per step and cache blocks."""
    monkeypatch.syspath_prepend(str(STAND_IN))
    module = import_module("actions.loadgen.in_environment.harness.backends.vllm_scheduler")

    def make(*, sequences: int = 4, tokens: int = 64, blocks: int = 1001, **phases: float) -> Simulation:
        config = SimpleNamespace(
            additional_config={"phases": phases} if phases else None,
            scheduler_config=SimpleNamespace(max_num_seqs=sequences, max_num_batched_tokens=tokens),
        )
        cache = SimpleNamespace(num_blocks=blocks)
        return Simulation(module.PhasedScheduler(config, cache, BLOCK))

    return make


@pytest.mark.parametrize(
    "phases",
    [
        {},
        {"free_share": 0.5},
        {"waiting_tokens": 64, "longest_wait_s": 0.0, "decode_steps": 2, "prefill_steps": 1},
    ],
)
@pytest.mark.parametrize("blocks", [1001, 13])
def test_everything_is_answered_and_no_step_is_mixed(
    simulation: Callable[..., Simulation], phases: dict[str, float], blocks: int
) -> None:
    run = simulation(sequences=8, blocks=blocks, **phases)
    for number in range(12):
        run.add(2, prompt=10 + 11 * number, answer=1 + number)
        run.step(2)
    for _ in range(500):
        if not (run.scheduler.running or run.scheduler.waiting):
            break
        run.step()
    assert [request.delivered for request in run.requests] == [request.max_tokens for request in run.requests]


@pytest.mark.parametrize(
    ("phases", "trace"),
    [
        # Four prompts in two steps of 64 tokens, then three more tokens each; the last four do the same.
        ({}, "PPAAA-PPAAA-"),
        # One prefill step alternates with at least two decode steps.
        ({"prefill_steps": 1, "decode_steps": 2}, "PAAPAA"),
    ],
)
def test_prompts_and_answers_take_turns(
    simulation: Callable[..., Simulation], phases: dict[str, float], trace: str
) -> None:
    run = simulation(**phases)
    run.add(8)
    run.step(len(trace))
    assert run.trace == trace


def test_prompts_wait_until_a_share_is_free(simulation: Callable[..., Simulation]) -> None:
    eager, patient = simulation(), simulation(free_share=0.75)
    for run in (eager, patient):
        run.add(2, answer=8)
        run.step(2)
        run.add(1)
        run.step(3)
    assert (eager.trace, patient.trace) == ("PAPAA", "PAAAA")


def test_prompts_wait_for_enough_tokens_or_long_enough(simulation: Callable[..., Simulation]) -> None:
    phases = {"waiting_tokens": 64, "longest_wait_s": 30.0}
    few, many, long = simulation(**phases), simulation(**phases), simulation(**phases)
    for run, count, waited_s in ((few, 1, 0.0), (many, 2, 0.0), (long, 1, 60.0)):
        run.add(1, answer=8)
        run.step(2)
        run.add(count, waited_s=waited_s)
        run.step(2)
    assert (few.trace, many.trace, long.trace) == ("PAAA", "PAPA", "PAPA")


def test_a_request_waits_until_its_whole_answer_has_room(simulation: Callable[..., Simulation]) -> None:
    run = simulation(tokens=1024, blocks=1 + 6)
    run.add(3, prompt=32, answer=4)  # three blocks each
    run.step()
    assert [request.num_computed_tokens for request in run.requests] == [32, 32, 0]


def test_a_request_that_never_fits_is_left_to_vllm(simulation: Callable[..., Simulation]) -> None:
    run = simulation(blocks=2)
    run.add(1)
    run.step()
    assert run.trace == "P"


def test_limits_are_put_back_when_vllm_fails(simulation: Callable[..., Simulation]) -> None:
    run = simulation()
    run.add(2)
    run.step()
    running = list(run.scheduler.running)
    run.scheduler.running[0].num_computed_tokens = "broken"
    with pytest.raises(TypeError):
        run.scheduler.schedule()
    assert run.scheduler.max_num_running_reqs == 4
    assert run.scheduler.running == running
