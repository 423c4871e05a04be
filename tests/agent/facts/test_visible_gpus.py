"""The GPUs that CUDA_VISIBLE_DEVICES leaves visible, by CUDA's rules."""

from __future__ import annotations

import pytest

from agent.facts import Facts
from agent.facts.amd_gpus import AmdGpu
from agent.facts.gpu_memory import GpuMemory
from agent.facts.gpus import Gpu
from agent.facts.visible_gpus import (
    chosen_devices,
    chosen_variables,
    usable_gpus,
    visible_gpus,
    visible_memory,
    visible_places,
)

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


def host_with_free(*free_gib: int, visible: str | None = None, told: bool = True) -> Facts:
    """Return a host with GPUs of 80 GiB, with the given amounts free."""
    names = [f"NVIDIA {letter}" for letter in "ABCDEFGH"]
    gpus = tuple(Gpu(f"0000:{place:02x}:00.0", name=names[place]) for place, _ in enumerate(free_gib))
    memory = [
        GpuMemory(place, f"GPU-{place}", 80 * 2**30, free * 2**30) for place, free in enumerate(free_gib)
    ]
    return Facts(
        modelled={"gpus": gpus, "gpu_memory": tuple(memory) if told else (), "visible_devices": visible}
    )


@pytest.mark.parametrize(
    ("free_gib", "visible", "count", "devices", "names"),
    [
        ((10, 79, 40, 79), None, 1, "1", "B"),
        ((10, 79, 40, 79), None, 2, "1,3", "BD"),
        ((10, 79, 40, 79), None, 3, "1,2,3", "BCD"),
        ((79, 79, 79, 79), None, 2, "0,1", "AB"),
        ((10, 79, 40, 79), "0,2", 1, "2", "C"),
        ((10, 79, 40, 79), "3,0,2", 2, "3,2", "DC"),
        ((10, 79), None, 2, None, "AB"),
        ((10, 79), None, None, None, "AB"),
        ((10, 79), None, 5, None, "AB"),
    ],
)
def test_of_fewer_than_all_those_with_the_most_free_memory_are_used(
    free_gib: tuple[int, ...], visible: str | None, count: int | None, devices: str | None, names: str
) -> None:
    facts = host_with_free(*free_gib, visible=visible)
    assert chosen_devices(facts, count) == devices
    assert "".join(str(gpu.name)[-1] for gpu in visible_gpus(facts, count)) == names
    assert [gpu.index for gpu in visible_memory(facts, count)] == ["ABCD".index(name) for name in names]


def test_where_nobody_tells_of_memory_the_first_are_used() -> None:
    facts = host_with_free(10, 79, told=False)
    assert chosen_devices(facts, 1) is None
    assert [gpu.name for gpu in visible_gpus(facts, 1)] == ["NVIDIA A"]


def host_with_amd(*, hip: str | None = None, cuda: str | None = None) -> Facts:
    found = tuple(
        AmdGpu(f"0000:{place}c:00.0", "0x74a1", name=f"AMD {letter}", driver="amdgpu", memory_bytes=2**37)
        for place, letter in enumerate("ABC")
    )
    values = {"gpus": (), "amd_gpus": found, "hip_visible_devices": hip, "visible_devices": cuda}
    return Facts(modelled=values)


@pytest.mark.parametrize(
    ("hip", "cuda", "count", "names", "chosen"),
    [
        (None, None, None, "ABC", None),
        (None, None, 2, "AB", "0,1"),
        (None, None, 3, "ABC", None),
        ("2,0", None, None, "CA", None),
        ("2,0", None, 1, "C", "2"),
        (None, "1", None, "B", None),
        ("0", "1,2", None, "A", None),
    ],
)
def test_amd_s_gpus(
    hip: str | None, cuda: str | None, count: int | None, names: str, chosen: str | None
) -> None:
    facts = host_with_amd(hip=hip, cuda=cuda)
    gpus = usable_gpus(facts, count)
    assert "".join(str(gpu.name)[-1] for gpu in gpus) == names
    assert {gpu.memory_mib for gpu in gpus} == {2**17}
    variables = chosen_variables(facts, count)
    assert variables == ({f"{kind}_VISIBLE_DEVICES": chosen for kind in ("CUDA", "HIP")} if chosen else {})


def test_nvidia_s_gpus_come_first() -> None:
    facts = Facts(modelled={"gpus": (Gpu("0000:18:00.0", name="NVIDIA A"),), "visible_devices": None})
    assert [gpu.name for gpu in usable_gpus(facts)] == ["NVIDIA A"]
    assert chosen_variables(facts, None) == {}
