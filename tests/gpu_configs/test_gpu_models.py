"""Exactly one model sets up each kind of GPU, and measured values override it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.core.yaml_data import yaml_data
from agent.facts.known_gpus import gpu_name_of
from gpu_configs.engine_model import derived_settings, merged
from gpu_configs.gpu_model import GpuModel, complete, gpu_model, gpu_models

FILES = sorted((Path(__file__).parents[2] / "gpu_configs" / "gpus").glob("*.yaml"))
MODEL = "llama3.1-8b"
WITHOUT_ENGINE = {"t4", "v100-16gb", "v100-32gb"}
"""GPUs without an engine: 16 GB do not hold the weights in 16 bits; vLLM does not run on Volta."""
FACTS = {
    "name": "New", "driver_names": ["New"], "memory_gib": 96, "peak_flops": {"bf16": 5e14, "fp8": 1e15},
    "memory_bandwidth_bytes_per_s": 3e12, "power_w": 500, "compute_capability": "9.0", "source": "a test",
}  # fmt: skip


def keys(table: dict[str, Any], *path: str) -> set[tuple[str, ...]]:
    """Return the paths to all values in a table; None is not a value."""
    found: set[tuple[str, ...]] = set()
    for name, value in table.items():
        here = (*path, name)
        if value is not None:
            found |= keys(value, *here) if isinstance(value, dict) else {here}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_forgets_no_key_of_the_model(path: Path) -> None:
    written = yaml_data(path.read_text(encoding="utf-8"))
    kind = complete(written)
    derived = GpuModel.model_validate({**written, "vllm": derived_settings(kind.model_dump())})
    assert set(derived.vllm) == (set() if path.stem in WITHOUT_ENGINE else {MODEL})
    if path.stem in WITHOUT_ENGINE:
        return
    wanted = keys(derived.vllm[MODEL].model_dump())
    assert keys(kind.vllm[MODEL].model_dump()) >= wanted
    # A file with its own model was measured, and names each setting of the measurement.
    for scenario, own in written.get("vllm", {}).get(MODEL, {}).get("scenarios", {}).items():
        expected = derived.vllm[MODEL].scenarios[scenario].model_dump()
        assert {key[0] for key in keys(own)} >= {key[0] for key in keys(expected)}, scenario
        assert set(own["engine"]) >= set(expected["engine"]), scenario


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_was_measured_is_near_the_model(path: Path) -> None:
    written = yaml_data(path.read_text(encoding="utf-8"))
    derived = derived_settings(GpuModel.model_validate(written).model_dump()).get(MODEL)
    for scenario, own in written.get("vllm", {}).get(MODEL, {}).get("scenarios", {}).items():
        assert derived
        if rate := own.get("queries_per_s_per_gpu"):
            assert rate == pytest.approx(derived["scenarios"][scenario]["queries_per_s_per_gpu"], rel=0.25)


def test_a_gpu_without_measurements_is_set_up_from_its_figures() -> None:
    settings = complete(FACTS).vllm[MODEL]
    assert settings.engine["quantization"] == "fp8"
    assert settings.static_fp8 == {"linear_backend": "torch"}
    offline = settings.scenarios["Offline"]
    assert offline.phases == {"free_share": 0.5}
    assert offline.engine["max_cudagraph_capture_size"] == offline.engine["max_num_seqs"]


@pytest.mark.parametrize(
    ("change", "scenario"),
    [
        ({"memory_gib": 48}, "max_num_seqs"),
        ({"peak_flops": {"bf16": 5e14, "fp8": 5e14}}, "queries_per_s_per_gpu"),
        ({"memory_bandwidth_bytes_per_s": 1e12}, "queries_per_s_per_gpu"),
        ({"power_w": 200}, "queries_per_s_per_gpu"),
    ],
)
def test_each_figure_counts(change: dict[str, Any], scenario: str) -> None:
    def value(facts: dict[str, Any]) -> float:
        offline = complete(facts).vllm[MODEL].scenarios["Offline"].model_dump()
        return float({**offline, **offline["engine"]}[scenario])

    assert value({**FACTS, **change}) < value(FACTS)


def test_other_generations_have_other_kernels() -> None:
    ada = complete({**FACTS, "compute_capability": "8.9"}).vllm[MODEL]
    assert ada.engine["attention_backend"] == "TRITON_ATTN"
    assert ada.scenarios["Offline"].phases is None
    ampere = complete({**FACTS, "compute_capability": "8.0", "peak_flops": {"bf16": 3e14}}).vllm[MODEL]
    assert "quantization" not in ampere.engine
    amd = complete({name: value for name, value in FACTS.items() if name != "compute_capability"})
    assert "attention_backend" not in amd.vllm[MODEL].engine


def test_the_h200_is_set_up_as_it_was_measured() -> None:
    kind = gpu_model("NVIDIA H200")
    assert kind is not None
    settings = kind.vllm[MODEL]
    assert settings.static_fp8 == {
        "linear_backend": "torch",
        "worker_extension_cls": "harness.backends.vllm_fast_accumulation.FastAccumulation",
    }
    assert settings.environment == {"VLLM_KV_CACHE_LAYOUT": "HND"}
    assert settings.engine["block_size"] == 192
    assert settings.scenarios["Offline"].engine == {
        "max_num_seqs": 1536, "max_num_batched_tokens": 16384, "max_cudagraph_capture_size": 1536
    }  # fmt: skip


def test_phases_are_one_setting() -> None:
    assert merged({"phases": {"a": 1}, "engine": {"a": 1}}, {"phases": {"b": 2}, "engine": {"b": 2}}) == {
        "phases": {"b": 2}, "engine": {"a": 1, "b": 2}
    }  # fmt: skip


def test_small_gpus_get_short_requests_and_too_small_ones_nothing() -> None:
    ampere = {**FACTS, "memory_gib": 24, "peak_flops": {"bf16": 1e14}, "compute_capability": "8.6"}
    assert complete(ampere).vllm[MODEL].engine["max_model_len"] == 4096
    assert "max_model_len" not in complete(FACTS).vllm[MODEL].engine
    assert not complete({**ampere, "memory_gib": 12}).vllm
    turing = {**ampere, "memory_gib": 48, "peak_flops": {"fp16": 1e14}, "compute_capability": "7.5"}
    assert complete(turing).vllm[MODEL].engine["dtype"] == "half"
    assert not complete({**turing, "compute_capability": "7.0"}).vllm


PARAMETERS, OUTER_PARAMETERS = 8.03e9, 2 * 128256 * 4096
"""Of Llama 3.1 8B, and of its embeddings and output layer, which vLLM does not quantise."""

BESIDE_GIB = {2048: 2.2, 4096: 2.5, 8192: 3.1, 16384: 4.5}
"""Memory for activations and CUDA graphs, by the tokens of a step."""


@pytest.mark.parametrize(("file", "memory_mib"), [("h100", 81559), ("h200", 143771)])
def test_what_vllm_needed_beside_weights_and_cache(file: str, memory_mib: int) -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "results" / f"{file}_llama3.1-8b.json"
    report = json.loads(path.read_text(encoding="utf-8"))
    parts = [part for part in report.values() if isinstance(part, dict)]
    engines = [part["engine"] for part in parts if "num_gpu_blocks" in part.get("engine", {})]
    assert len(engines) >= 3
    for engine in engines:
        cache = engine["num_gpu_blocks"] * engine["block_size"] * 2 * 32 * 8 * 128
        share = memory_mib * 2**20 * engine["gpu_memory_utilization"]
        beside = (share - cache - PARAMETERS - OUTER_PARAMETERS) / 2**30
        assert 1.9 < beside <= BESIDE_GIB[engine["max_num_batched_tokens"]]


@pytest.mark.parametrize(
    ("name", "memory_mib"),
    [
        ("NVIDIA A10", 23028),
        ("NVIDIA A10G", 23028),
        ("NVIDIA A30", 24576),
        ("NVIDIA L4", 23034),
        ("NVIDIA GeForce RTX 3090", 24576),
        ("NVIDIA GeForce RTX 4090", 24564),
        ("NVIDIA RTX A5000", 23028),
    ],
)
def test_the_full_form_fits_into_24_gb(name: str, memory_mib: int) -> None:
    kind = gpu_model(name)
    assert kind is not None
    settings = kind.vllm[MODEL]
    engine = settings.engine
    assert (engine["quantization"], engine["max_model_len"]) == ("fp8", 4096)
    has_fp8 = kind.compute_capability == "8.9"
    assert engine["kv_cache_dtype"] == ("fp8" if has_fp8 else "auto"), "Triton has no fp8 type before 8.9"
    assert ("attention_backend" in engine) == has_fp8, "FlashAttention reads a 16-bit cache"
    weights = PARAMETERS + OUTER_PARAMETERS
    room = memory_mib * 2**20 * engine["gpu_memory_utilization"] - weights - BESIDE_GIB[4096] * 2**30
    per_token = 2 * 32 * 8 * 128 * (1 if has_fp8 else 2)
    sequences = settings.scenarios["Offline"].engine["max_num_seqs"]
    assert room > per_token * (870 + 128) * sequences, "the cache holds all queries at their mean length"


@pytest.mark.parametrize("kind", gpu_models(), ids=lambda kind: kind.name)
def test_every_scenario_has_room_for_queries(kind: GpuModel) -> None:
    settings = kind.settings_for(MODEL)
    for name, scenario in (settings.scenarios if settings else {}).items():
        assert scenario.engine["max_num_seqs"] >= 8, name


COMMON = [
    "0x1eb8", "0x2237", "0x2236", "0x20b7", "0x27b8", "0x1db1", "0x1db5", "0x2230", "0x2235", "0x26b9",
    "0x2684", "0x2b85", "0x2bb1", "0x2bb5", "0x20b0", "0x20b5", "0x2330", "0x2335", "0x2901", "0x2941",
    "0x3182", "0x26b5", "0x2329", "0x233b", "0x2342", "0x2348", "0x31c2", "0x29bc", "0x2c3a",
    "0x2204", "0x2231", "0x232c", "0x2e12",
]  # fmt: skip
"""Fixtures for T4, A10G, A10, A30, L4, V100, RTX A6000, A40, L40S, RTX 4090 and 5090, RTX PRO 6000, A100,
H100, H200, B200, GB200, B300, L40, H20, H200 NVL, GH200, GB300, B100, RTX PRO 4500, RTX 3090, RTX A5000,
H20-3e and GB10."""


@pytest.mark.parametrize("pci_id", COMMON)
def test_a_common_gpu_is_known_before_there_is_a_driver(pci_id: str) -> None:
    assert gpu_model(gpu_name_of(pci_id)) is not None
