"""What CUDA_VISIBLE_DEVICES leaves, as CUDA reads it."""

from __future__ import annotations

import pytest

from agent.facts import Facts
from agent.facts.gpu_memory import GpuMemory
from agent.facts.gpus import Gpu
from agent.facts.visible_gpus import visible_gpus, visible_memory, visible_places

UUIDS = ("GPU-aa11", "GPU-ab22", "GPU-cc33")


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (None, (0, 1, 2)),
        ("", ()),
        ("0", (0,)),
        ("2, 0", (2, 0)),
        ("0,7,1", (0,)),
        ("0,-1,1", (0,)),
        ("GPU-cc33,GPU-aa11", (2, 0)),
        ("GPU-cc", (2,)),
        ("GPU-a", ()),
        ("MIG-aa11", ()),
    ],
)
def test_the_first_word_that_names_no_gpu_ends_the_list(text: str | None, places: tuple[int, ...]) -> None:
    assert visible_places(text, UUIDS) == places


def test_before_a_driver_answers_nothing_is_left_out() -> None:
    gpus = (Gpu("0000:18:00.0"), Gpu("0000:2a:00.0"))
    assert visible_gpus(Facts(modelled={"gpus": gpus, "visible_devices": "0"})) == gpus


def test_a_gpu_whose_memory_nobody_tells_keeps_its_place() -> None:
    memory = (GpuMemory(1, "GPU-b", 10, 5),)
    facts = Facts(modelled={"gpu_memory": memory, "visible_devices": "0,1"})
    assert visible_memory(facts) == memory
