"""Systems: each file is read, hosts find theirs, others get a scaled starting point that is marked as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.core.errors import HostError
from gpu_configs.systems import GpuSet, chosen_system, load_system, match_system, shipped_systems

if TYPE_CHECKING:
    from pathlib import Path

SYSTEMS = shipped_systems()
H100 = "NVIDIA H100 80GB HBM3"


def test_the_systems_that_ship() -> None:
    assert [system.name for system in SYSTEMS] == [
        "A100_PCIe_40GBx8", "A100_SXM4_40GBx8", "A100_SXM4_80GBx8", "GB200_NVLx4",
        "H100_SXM_80GBx8", "H200_SXM_141GBx8", "ND_H100_v5",
    ]  # fmt: skip
    names = {system.name for system in SYSTEMS}
    for system in SYSTEMS:
        assert system.sections
        assert not system.like or system.like in names
        for section in system.sections:
            rate = {"Offline": "offline_expected_qps", "Server": "server_target_qps"}.get(section.scenario)
            assert (rate or "single_stream_expected_latency_ns") in section.default


@pytest.mark.parametrize(
    ("gpus", "name", "factor"),
    [
        (GpuSet("NVIDIA A100-SXM4-40GB", 40960, 8), "A100_SXM4_40GBx8", 1),
        (GpuSet("NVIDIA A100-SXM4-80GB", 81920, 8), "A100_SXM4_80GBx8", 1),
        (GpuSet(H100, 81559, 8), "H100_SXM_80GBx8", 1),
        (GpuSet(H100, 81559, 8, "Microsoft Corporation"), "ND_H100_v5", 1),
        (GpuSet("NVIDIA H200", 143771, 8), "H200_SXM_141GBx8", 1),
        (GpuSet("NVIDIA GB200", 189471, 4), "GB200_NVLx4", 1),
        (GpuSet(H100, 81559, 3), "H100_80GB_HBM3x3", 0.375),
        (GpuSet("NVIDIA H100 NVL", 95830, 2), "H100_NVLx2", 0.25),
        (GpuSet("NVIDIA A100 80GB PCIe", 81920, 8), "A100_80GB_PCIex8", 1),
    ],
)
def test_a_host_finds_its_system(gpus: GpuSet, name: str, factor: float) -> None:
    match = match_system(gpus, SYSTEMS)
    assert match
    assert (match.name, match.factor) == (name, factor)
    assert bool(match.caveats) is (match.system.name != name)


def test_rates_are_scaled_and_nothing_else() -> None:
    match = match_system(GpuSet(H100, 81559, 4), SYSTEMS)
    assert match
    tuned = match.tuned("bert", "Server", "high_accuracy", "v4.1")
    assert tuned
    assert tuned.settings["server_target_qps"] == 24800
    assert tuned.settings["gpu_batch_size"] == 512
    assert tuned.caveats == (
        f"a scaled starting point from H100_SXM_80GBx8: this host has {GpuSet(H100, 81559, 4)}",
    )


def test_rounds_have_their_own_settings_and_a_system_may_lean_on_another() -> None:
    match = match_system(GpuSet(H100, 81559, 8, "Microsoft Corporation"), SYSTEMS)
    assert match
    azure = match.tuned("gptj", "Offline", "default", "v3.1")
    assert azure
    assert azure.settings["offline_expected_qps"] == 106
    assert azure.caveats == ()
    bert = match.tuned("bert", "Offline", "default", "v4.1")  # from H100_SXM_80GBx8
    assert bert
    assert bert.settings["offline_expected_qps"] == 75200
    other = match.tuned("bert", "Offline", "default", "v3.1")
    assert other
    assert other.caveats == ("the settings are those of v4.1, not of v3.1",)
    assert match.tuned("resnet50", "Offline", "default", "v4.1") is None


def test_a_system_that_is_named_is_scaled_and_says_so() -> None:
    systems = {system.name: system for system in shipped_systems()}
    named = systems["H100_SXM_80GBx8"]
    four = GpuSet("NVIDIA H100 80GB HBM3", 81559, 4)
    tuned = chosen_system(named, four, tuple(systems.values())).tuned("bert", "Offline", "default", "v4.1")
    assert tuned is not None
    assert tuned.settings["offline_expected_qps"] == 37600
    assert tuned.caveats == (f"a scaled starting point from H100_SXM_80GBx8: this host has {four}",)
    same = chosen_system(named, None, ()).tuned("bert", "Offline", "default", "v4.1")
    assert same is not None
    assert same.caveats == ()


def test_a_gpu_of_no_known_family_has_no_system() -> None:
    assert match_system(GpuSet("NVIDIA Quantum 9000", 1, 8), SYSTEMS) is None
    assert match_system(GpuSet("NVIDIA L40S", 46068, 8), SYSTEMS) is None


@pytest.mark.parametrize(
    "text", ["name: 1x", "[", "name: a\ngpu: {names: [], memory_gib: 1, count: 1, known_as: b}"]
)
def test_what_is_no_system_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "system.yaml"
    path.write_text(text)
    with pytest.raises(HostError, match="is not a system"):
        load_system(path)
