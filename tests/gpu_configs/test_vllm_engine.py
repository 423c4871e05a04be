"""vLLM's settings for a host's GPUs, and claims that it must not make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from actions.loadgen.engine import SMALLER, Engine, OutOfMemoryError
from actions.loadgen.in_environment.harness.backends.vllm_log import OUT_OF_MEMORY, last_words
from actions.loadgen.parameters import HarnessVllmParameters
from agent.core.errors import ActionFailedError, HostError
from agent.core.yaml_data import yaml_data
from agent.facts.gpus import Gpu
from gpu_configs.gpu_model import gpu_model, gpu_models
from gpu_configs.vllm_engine import EngineSettings, VllmParameters, engine_settings, smaller

_FOLDER = Path(__file__).parent / "cases" / "vllm_engine"
CASES, LAST_WORDS = (
    yaml_data((_FOLDER / name).read_text(encoding="utf-8")) for name in ("settings.yaml", "last_words.yaml")
)


def gpus(name: str, count: int = 1, memory_mib: int | None = None) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(bus_id=f"0000:{number:02x}:00.0", name=name, memory_mib=memory_mib) for number in range(count)
    )


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_settings(case: dict[str, Any]) -> None:
    settings = engine_settings(
        VllmParameters(model="/models/m", **case.get("asked", {})),
        model=case.get("model", "llama3.1-8b"),
        scenario=case.get("scenario", "Offline"),
        gpus=gpus(case["gpu"], case.get("count", 1), case.get("memory_mib")) if "gpu" in case else (),
    )
    for name, value in case.get("engine", {}).items():
        assert settings.engine.get(name) == value, name
    assert not set(case.get("absent", ())) & set(settings.engine)
    assert settings.start_qps == case.get("start_qps", settings.start_qps)
    assert all(words in "; ".join(settings.origin) for words in case.get("origin", ()))


@pytest.mark.parametrize(("name", "dtype"), [("NVIDIA A10", "fp8"), ("NVIDIA A100 80GB PCIe", "fp8_e5m2")])
def test_an_fp8_cache_is_refused_where_no_kernel_reads_it(name: str, dtype: str) -> None:
    asked = VllmParameters(model="/models/m", llm_config={"kv_cache_dtype": dtype})
    with pytest.raises(HostError, match=f"kv_cache_dtype {dtype} needs .*8.9 or newer, and A10.* has 8"):
        engine_settings(asked, model="llama3.1-8b", scenario="Offline", gpus=gpus(name))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_num_batched_tokens": 512, "max_num_seqs": 1024}, "512 with max_num_seqs 1024"),
        (
            {"max_num_batched_tokens": "2048", "enable_chunked_prefill": False, "max_model_len": 4096},
            "2048 with max_model_len 4096 without chunked prefill",
        ),
    ],
)
def test_steps_that_vllm_refuses_are_refused_by_the_plan(arguments: dict[str, Any], words: str) -> None:
    asked = VllmParameters(model="/models/m", llm_config=arguments)
    with pytest.raises(HostError, match=f"vLLM refuses max_num_batched_tokens {words}"):
        engine_settings(asked, model="llama3.1-8b", scenario="Offline", gpus=gpus("NVIDIA L4"))


_FP8 = {"type": "float", "num_bits": 8, "strategy": "tensor", "dynamic": False}


def _group(**activations: Any) -> dict[str, Any]:
    return {"group_0": {"weights": _FP8, "input_activations": {**_FP8, **activations}}}


@pytest.mark.parametrize(
    ("method", "more", "is_static_fp8"),
    [
        ("fp8", {"activation_scheme": "static"}, True),
        ("fp8", {"activation_scheme": "dynamic"}, False),
        ("fp8", {"activation_scheme": "static", "weight_block_size": [128, 128]}, False),
        ("modelopt", {"quant_algo": "FP8"}, True),
        ("modelopt", {"quant_algo": "NVFP4"}, False),
        ("compressed-tensors", {"config_groups": _group()}, True),
        ("compressed-tensors", {"config_groups": _group(dynamic=True, strategy="token")}, False),
        (
            "compressed-tensors",
            {"config_groups": {"group_0": {"weights": _FP8, "input_activations": None}}},
            False,
        ),
        ("compressed-tensors", {"config_groups": ["none"]}, False),
        ("awq", {}, False),
        (None, {}, False),
    ],
)
def test_weights_that_come_quantised_tell_their_own_method(
    tmp_path: Path, method: str | None, more: dict[str, Any], *, is_static_fp8: bool
) -> None:
    """vLLM refuses ``quantization: fp8`` for a model of compressed-tensors, and cuBLAS for integers."""
    config = {"quantization_config": {"quant_method": method, **more}} if method else {}
    (tmp_path / "config.json").write_text(json.dumps(config))

    def chosen(**asked: Any) -> EngineSettings:
        parameters = VllmParameters(model=str(tmp_path), parameters_billion=30, **asked)
        hosts_gpus = gpus("NVIDIA H100 80GB HBM3", 2, 81559)
        return engine_settings(parameters, model="llama3.1-8b", scenario="Offline", gpus=hosts_gpus)

    engine = chosen().engine
    assert engine.get("quantization") == (None if method else "fp8")
    assert engine.get("linear_backend") == ("torch" if is_static_fp8 else None)
    assert engine["kv_cache_dtype"] == "fp8"
    assert engine["data_parallel_size"] == 2
    assert (f"quantised already ({method})" in "; ".join(chosen().origin)) is bool(method)
    own = chosen(llm_config={"quantization": "fp8", "linear_backend": "cutlass"}).engine
    assert (own["quantization"], own["linear_backend"]) == ("fp8", "cutlass")
    plain = chosen(llm_config={"quantization": None}).engine
    assert plain["data_parallel_size" if method else "tensor_parallel_size"] == 2


def test_what_vllm_keeps_compiled_tells_the_extension_of_its_workers(tmp_path: Path) -> None:
    """Separate the caches: vLLM's key omits the extension, so it would use another run's graphs."""
    scheme = {"quant_method": "fp8", "activation_scheme": "static"}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": scheme}))

    def chosen(**asked: Any) -> EngineSettings:
        parameters = VllmParameters(model=str(tmp_path), **asked)
        return engine_settings(
            parameters, model="llama3.1-8b", scenario="Offline", gpus=gpus("NVIDIA H200", 1, 143771)
        )

    own = chosen(llm_config={"additional_config": {"mine": 1}})
    extension = own.engine["worker_extension_cls"]
    assert extension == "harness.backends.vllm_fast_accumulation.FastAccumulation"
    assert own.engine["additional_config"] == {
        "mine": 1, "worker_extension_cls": extension, "phases": {"free_share": 0.5}
    }  # fmt: skip
    without = chosen(llm_config={"worker_extension_cls": None}).engine
    assert "worker_extension_cls" not in {**without, **without["additional_config"]}


def test_variables_of_the_gpu_are_under_those_asked_for() -> None:
    def chosen(**asked: Any) -> dict[str, str]:
        parameters = VllmParameters(model="m", **asked)
        hosts_gpus = gpus("NVIDIA H200", 1, 143771)
        settings = engine_settings(parameters, model="llama3.1-8b", scenario="Server", gpus=hosts_gpus)
        return dict(settings.environment)

    assert chosen() == {"VLLM_KV_CACHE_LAYOUT": "HND"}
    asked = {"VLLM_KV_CACHE_LAYOUT": "NHD", "VLLM_LOGGING_LEVEL": "DEBUG"}
    assert chosen(environment=asked) == asked


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("disable_log_stats", False),
        ("stream_interval", 1),
    ],
)
def test_what_the_harness_decides_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=f"{name} is the harness's to set"):
        HarnessVllmParameters(model="m", llm_config={name: value})
    assert HarnessVllmParameters(model="m", llm_config={"enable_prefix_caching": False})


@pytest.mark.parametrize(
    ("driver_name", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("NVIDIA GH200 144G HBM3e", "GH200 144GB"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA H20-3e", "H20-3e"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 D", "RTX 4090"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB300", "GB300"),
        ("AMD Instinct MI300X", "MI300X"),
        ("Tesla P40", None),
        (None, None),
    ],
)
def test_a_kind_of_gpu_is_known_by_what_the_driver_calls_it(
    driver_name: str | None, name: str | None
) -> None:
    found = gpu_model(driver_name)
    assert (found.name if found else None) == name


def test_every_kind_has_settings_for_the_benchmark_and_a_source() -> None:
    for kind in gpu_models():
        assert kind.source, kind.name
        known = kind.vllm.get("llama3.1-8b")
        if known is None:  # too small, or too old
            assert kind.memory_gib <= 16 or float(kind.compute_capability or 0) < 7.5, kind.name
            continue
        assert set(known.scenarios) >= {"Offline", "Server", "Interactive", "SingleStream"}
        is_fp8 = known.engine.get("quantization") == "fp8"
        has_fp8 = "fp8" in kind.peak_flops
        assert is_fp8 == (has_fp8 or kind.memory_gib <= 24), kind.name
        assert (known.engine["kv_cache_dtype"] == "fp8") == has_fp8, kind.name


def test_less_memory_is_asked_for_after_it_ran_out() -> None:
    asked = {
        "max_num_seqs": 960,
        "max_num_batched_tokens": 16384,
        "gpu_memory_utilization": 0.94,
        "dtype": "auto",
    }
    assert smaller(asked) == {
        "max_num_seqs": 480, "max_num_batched_tokens": 8192, "gpu_memory_utilization": 0.89, "dtype": "auto",
    }  # fmt: skip


@pytest.mark.parametrize("case", LAST_WORDS, ids=[case["case"] for case in LAST_WORDS])
def test_the_retry_keeps_the_share_where_the_cache_had_no_room_in_it(case: dict[str, Any]) -> None:
    engine = Engine({"type": "vllm", "engine": {"gpu_memory_utilization": 0.9}}, exact_tokens=True)
    again = engine.after(OutOfMemoryError(f"vLLM did not start: {case['log']}"))
    assert again is not None
    assert again.backend["engine"]["gpu_memory_utilization"] == (0.9 if case.get("keeps_share") else 0.85)
    assert again.backend["engine"]["max_num_batched_tokens"] == 4096


def test_only_memory_is_a_reason_to_try_again() -> None:
    engine = Engine({"type": "vllm", "engine": {"max_num_seqs": 64}}, exact_tokens=True)
    again = engine.after(OutOfMemoryError("no memory"))
    assert again is not None
    assert again.backend["engine"]["max_num_seqs"] == 32
    assert "max_num_seqs 32" in str(again.facts[SMALLER])
    assert engine.after(ActionFailedError("a bad prompt")) is None
    assert Engine({"type": "openai"}, exact_tokens=False).after(OutOfMemoryError("no memory")) is None


@pytest.mark.parametrize("case", LAST_WORDS, ids=[case["case"] for case in LAST_WORDS])
def test_the_last_words_of_vllm_are_the_cause(tmp_path: Path, case: dict[str, Any]) -> None:
    log = tmp_path / "engine.log"
    log.write_text(case["log"])
    assert last_words(log).startswith(case["words"])
    assert bool(OUT_OF_MEMORY.search(last_words(log))) == case["memory"]


def test_no_log_has_no_last_words(tmp_path: Path) -> None:
    assert last_words(tmp_path / "engine.log") == ""


def test_engine_arguments_in_layers() -> None:
    layers = [{"max_num_seqs": 32, "quantization": "fp8", "max_model_len": ""}, {"quantization": None}]
    asked = VllmParameters.model_validate({"model": "m", "llm_config": layers})
    assert asked.llm_config == {"max_num_seqs": 32, "quantization": None}
