"""The profile of Llama 2 70B: its plans on hosts, and a small model of that form, run completely."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

from actions.loadgen.executor import LoadGenExecutor
from actions.loadgen.parameters import LoadGenParameters
from agent.component.registry import component_class
from agent.core.errors import HostError
from agent.facts import Facts, LocalHost
from agent.facts.gpus import Gpu
from agent.profile import Variables, applies_to, check, load, resolve
from dependencies.models.hugging_face_model import HuggingFaceModel
from dependencies.models.quark_quantization import QuarkQuantization
from dependencies.python.environment_image.building import PythonEnvironmentImage
from gpu_configs.vllm_engine import EngineSettings, engine_settings
from tests.lab.vllm_environment import make_environment

if TYPE_CHECKING:
    from agent.profile import Element, Profile

PROFILE = "PERF-GPU-MLPERF-LLAMA2-70B.yaml"
SCENARIOS = ("offline", "server", "interactive")
SIX = [f"{scenario}-{mode}" for scenario in SCENARIOS for mode in ("performance", "accuracy")]
MI300X = Gpu("0000:0c:00.0", name="AMD Instinct MI300X", memory_mib=196592, driver="amdgpu")
TABLE = Path(__file__).parents[2] / "dependencies" / "models" / "tables" / "pandas_2.3_protocol_4.pkl"


def variables(**environment: str) -> Variables:
    return Variables(
        {},
        {
            "PackagePath": lambda name: f"/packages/{name}",
            "EnvironmentVariable": lambda name: environment.get(name, ""),
        },
    )


@cache
def profile_with(**overrides: str) -> Profile:
    profile = load([PROFILE], overrides=overrides)
    check(profile, variables())
    return profile


def enabled(elements: tuple[Element, ...], profile: Profile, **environment: str) -> dict[str, dict[str, Any]]:
    """Return the parameters of the elements that run, by scenario."""
    resolved = [resolve(element, profile, variables(**environment)) for element in elements]
    return {
        values["scenario"]: values
        for element, values in zip(elements, resolved, strict=True)
        if applies_to(element, "linux-x64", parameters=values) is None
    }


def case(profile: Profile, scenario: str, **environment: str) -> LoadGenParameters:
    values = enabled(profile.actions, profile, **environment)[scenario]
    return LoadGenParameters.model_validate(values)


def settings(profile: Profile, scenario: str, *gpus: Gpu) -> EngineSettings:
    asked = case(profile, scenario)
    assert asked.vllm is not None
    return engine_settings(asked.vllm, model=asked.model, scenario=asked.loadgen_scenario, gpus=gpus)


@pytest.mark.parametrize(
    "overrides", [{}, {"Vendor": "nvidia"}, {"Form": "smoke", "Where": "host"}, {"Form": "tiny"}]
)
def test_every_element_can_be_built(overrides: dict[str, str]) -> None:
    profile = profile_with(**overrides)
    for element in profile.elements():
        values = resolve(element, profile, variables())
        if applies_to(element, "linux-x64", parameters=values) is None:
            implementation = component_class(element.type)
            implementation(implementation.Parameters.model_validate(values))
    assert list(enabled(profile.actions, profile)) == SIX


def test_the_full_form_is_the_benchmark() -> None:
    profile = profile_with()
    for scenario in SIX:
        asked = case(profile, scenario)
        assert (asked.model, asked.name_in_loadgen, asked.max_output_tokens) == (
            "llama2-70b-99.9", "llama2-70b", 1024,
        )  # fmt: skip
        assert asked.dataset == "/packages/llama2-70b-open-orca/samples.jsonl"
        assert (asked.samples, asked.min_query_count, asked.ttft_latency_ms) == (None, None, None)
        assert asked.target_qps == "auto"
        assert asked.sample_timeout == 24 * 3600
        assert asked.vllm is not None
        assert asked.vllm.sampling == {"temperature": 0, "min_tokens": 1}
    assert case(profile, "offline-performance").min_duration == 2400
    assert case(profile, "server-performance").min_duration is None
    assert case(profile, "interactive-accuracy").loadgen_scenario == "Interactive"


def test_compliance_runs_have_the_parameters_of_the_performance_runs() -> None:
    profile = profile_with(Compliance="true")
    modes = ("performance", "accuracy", "test06")
    asked = [f"{name}-{mode}" for name in SCENARIOS for mode in modes]
    assert list(enabled(profile.actions, profile)) == asked
    for name in SCENARIOS:
        performance, compliance = (case(profile, f"{name}-{mode}") for mode in ("performance", "test06"))
        assert compliance.mode == "TEST06"
        assert compliance.loadgen_scenario == performance.loadgen_scenario
        assert (compliance.target_qps, compliance.vllm) == (performance.target_qps, performance.vllm)


def test_the_engine_on_eight_mi300x() -> None:
    engine = settings(profile_with(), "offline-performance", *[MI300X] * 8)
    wanted = {"data_parallel_size": 8, "quantization": "fp8", "max_num_seqs": 1792, "load_format": "auto"}
    assert wanted.items() <= engine.engine.items()
    one = settings(profile_with(Gpus="1"), "server-performance", *[MI300X] * 8).engine
    assert "data_parallel_size" not in one
    assert one["max_num_seqs"] == 650
    kept = settings(profile_with(LlmConfig="{quantization: null}"), "offline-performance", MI300X).engine
    assert "quantization" not in kept


def test_a_container_has_amd_s_gpus_and_the_guides_folders() -> None:
    asked = case(profile_with(), "offline-performance", LAB_MODEL="/lab/model").container
    assert asked is not None
    assert (asked.image, asked.gpus, asked.gpu_access.value, asked.ipc) == (
        "vcagent-llama2-70b-amd:1", "all", "amd", "host",
    )  # fmt: skip
    (mount,) = asked.mounts
    assert (mount.source, mount.target, mount.read_only) == (Path("/lab/model"), "/model", True)
    without = case(profile_with(Vendor="nvidia"), "offline-performance").container
    assert without is not None
    assert (without.mounts, without.gpu_access.value) == ((), "device_request")
    assert case(profile_with(Where="host"), "offline-performance").container is None


def test_a_missing_device_of_amd_is_refused_in_the_plan() -> None:
    asked = case(profile_with(), "offline-performance").container
    assert asked is not None
    with pytest.raises(HostError, match="there is no /dev/kfd"):
        asked.require_inputs(Facts(modelled={"amd_devices": ()}))


def test_what_each_vendor_brings() -> None:
    amd, nvidia = profile_with(), profile_with(Vendor="nvidia")
    for_amd = {"InstallAmdDriver"}
    for_nvidia = {"InstallNvidiaDriver", "InstallNvidiaContainerToolkit", "FreeGpuMemory"}
    brought = enabled(amd.dependencies, amd)
    assert (for_amd | for_nvidia) & brought.keys() == for_amd
    image = PythonEnvironmentImage.Parameters.model_validate(brought["BuildImage"])
    assert image.base_packages
    assert {Requirement(one).name for one in image.requirements} == {"mlcommons-loadgen", "rouge_score"}
    assert "CaptureAmdGpuCounters" in enabled(amd.monitors, amd)
    brought = enabled(nvidia.dependencies, nvidia)
    assert (for_amd | for_nvidia) & brought.keys() == for_nvidia
    image = PythonEnvironmentImage.Parameters.model_validate(brought["BuildImage"])
    assert not image.base_packages
    assert "vllm" in {Requirement(one).name for one in image.requirements}
    host = profile_with(Where="host", Environment="/env", InstallDriver="false")
    assert list(enabled(host.dependencies, host)) == ["SelectGpus", "FetchModel", "PrepareOpenOrca"]


def test_the_guides_variables_lead_to_model_and_data() -> None:
    profile = profile_with(ModelFolder="llama2-70b-chat-hf/fp8_quantized")
    brought = enabled(profile.dependencies, profile, LAB_MODEL="/lab/model", LAB_DATASET="/lab/data")
    assert brought["FetchModel"]["path"] == "/lab/model/llama2-70b-chat-hf/fp8_quantized"
    assert brought["FetchModel"]["repository"] == ""
    assert brought["PrepareOpenOrca"]["source"] == "/lab/data"
    brought = enabled(profile.dependencies, profile)
    assert brought["FetchModel"]["repository"] == "meta-llama/Llama-2-70b-chat-hf"
    assert brought["FetchModel"]["revision"] == "e9149a12809580e8602995856f8098ce973d1080"


def test_quark_quantises_the_model_that_is_measured() -> None:
    profile = profile_with(
        Quark="true", CalibrationSource="/lab/calibration.pkl", Vendor="nvidia", Form="smoke"
    )
    brought = enabled(profile.dependencies, profile)
    names = list(brought)
    assert names.index("FetchModel") < names.index("PrepareCalibration") < names.index("QuantiseModel")
    assert brought["PrepareCalibration"]["source"] == "/lab/calibration.pkl"
    assert "amd-quark==0.13" in brought["InstallQuark"]["requirements"]
    quantised = brought["QuantiseModel"]
    assert quantised["source"] == "/packages/llama2-70b-model"
    assert quantised["calibration"] == "/packages/llama2-70b-calibration/samples.jsonl"
    asked = case(profile, "offline-performance")
    assert asked.vllm is not None
    assert asked.vllm.model == "/packages/llama2-70b-fp8"
    amd = profile_with(Quark="true")
    brought = enabled(amd.dependencies, amd)
    assert "InstallQuark" not in brought
    unnamed = QuarkQuantization(QuarkQuantization.Parameters.model_validate(brought["QuantiseModel"]))
    with pytest.raises(HostError, match="Quark has no environment"):
        unnamed.plan(Facts(LocalHost(), modelled={"package_dir": Path("/packages")}))
    own = profile_with(Quark="true", QuarkEnvironment="/rocm")
    assert "InstallQuark" not in enabled(own.dependencies, own)
    without = profile_with()
    assert not {"InstallQuark", "QuantiseModel"} & enabled(without.dependencies, without).keys()


# A guide's llm_config, as AMD's configuration of v5.0 has it.
GUIDE = (
    "{model: /model/llama2-70b-chat-hf/fp8_quantized, tensor_parallel_size: 1, num_scheduler_steps: 9, "
    "quantization: fp8, max_model_len: 2048, swap_space: 0, gpu_memory_utilization: 0.96, "
    "max_seq_len_to_capture: 2048, enforce_eager: True, disable_custom_all_reduce: True, "
    "max_num_batched_tokens: 26624, max_num_seqs: 1024, enable_chunked_prefill: False, block_size: 16, "
    "enable_prefix_caching: False}"
)


def test_a_guide_s_llm_config_reaches_vllm_as_it_is() -> None:
    profile = profile_with(LlmConfig=GUIDE)
    asked = case(profile, "offline-performance")
    assert asked.vllm is not None
    assert asked.vllm.model == "/model/llama2-70b-chat-hf/fp8_quantized"
    found = settings(profile, "offline-performance", *[MI300X] * 8)
    pasted = {"num_scheduler_steps": 9, "swap_space": 0, "max_num_seqs": 1024, "enable_prefix_caching": False}
    assert pasted.items() <= found.engine.items()
    assert "model" not in found.engine
    assert any("no num_scheduler_steps" in word for word in found.origin)
    values = enabled(profile.dependencies, profile)["FetchModel"]
    plan = HuggingFaceModel(HuggingFaceModel.Parameters.model_validate(values)).plan(Facts(modelled={}))
    assert plan.nothing_to_do == "llm_config names the model: /model/llama2-70b-chat-hf/fp8_quantized"


def test_prefix_caching_is_for_the_open_division() -> None:
    asked = {"LlmConfig": "{enable_prefix_caching: true}"}
    with pytest.raises(ValueError, match="closed division forbids reuse across queries"):
        case(profile_with(**asked), "offline-performance")
    allowed = case(profile_with(**asked, Division="open"), "offline-performance")
    assert allowed.vllm is not None
    assert allowed.vllm.llm_config["enable_prefix_caching"] is True


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"Form": "ful"}, "form ful, which is none of full, smoke, tiny"),
        ({"Form": "ful", "Vendor": "nvidia"}, "form ful, which is none of full, smoke, tiny"),
        ({"Division": "shut"}, "division"),
    ],
)
def test_other_words_are_refused(overrides: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        case(profile_with(**overrides), "server-performance")


@pytest.mark.parametrize("form", ["full", "smoke", "tiny"])
def test_another_place_is_refused_in_every_form(form: str) -> None:
    profile = load([PROFILE], overrides={"Where": "docker", "Form": form})
    values = next(
        resolve(one, profile, variables())
        for one in profile.dependencies
        if one.parameters.get("scenario") == "BuildImage"
    )
    with pytest.raises(ValueError, match="where docker is not host or container"):
        PythonEnvironmentImage.Parameters.model_validate(values)


def test_a_form_is_the_same_for_both_vendors() -> None:
    amd, nvidia = (profile_with(Form="smoke", Vendor=vendor) for vendor in ("amd", "nvidia"))
    for scenario in SIX:
        assert case(nvidia, scenario).samples == case(amd, scenario).samples == 64
        assert case(nvidia, scenario).min_query_count == case(amd, scenario).min_query_count
    brought = [enabled(each.dependencies, each)["BuildImage"]["requirements"] for each in (amd, nvidia)]
    assert [any(one.startswith("vllm==") for one in each) for each in brought] == [False, True]


def test_the_tiny_form_is_named_as_what_it_is() -> None:
    profile = profile_with(Form="tiny", TinyModel="/lab/tiny.gguf")
    brought = enabled(profile.dependencies, profile)
    assert not {"SelectGpus", "InstallAmdDriver", "FetchModel"} & brought.keys()
    assert brought["PrepareOpenOrca"]["prompts"] == "text"
    assert brought["BuildImage"]["base"] == "ubuntu:24.04"
    for scenario in SIX:
        asked = case(profile, scenario)
        assert (asked.model, asked.name_in_loadgen, asked.vllm) == ("smollm2-135m", "llama2-70b", None)
        assert asked.server is not None
        assert asked.server.model == "/lab/tiny.gguf"


WRITE_TOKENIZER = (
    "import sys; from tokenizers import Tokenizer, models, pre_tokenizers\n"
    "letters = sorted(pre_tokenizers.ByteLevel.alphabet())\n"
    "tokenizer = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(letters)}, "
    "merges=[]))\n"
    "tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False); tokenizer.save(sys.argv[1])"
)
# The sizes of a small model of Llama 2's form; the stand-in for vLLM reads no weights.
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 172,
    "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 32000,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "torch_dtype": "float16",
}  # fmt: skip
STATIC = {
    "gpu": 0, "asic": {"market_name": "AMD Instinct MI300X"}, "bus": {"bdf": "0000:0c:00.0"},
    "driver": {"name": "amdgpu", "version": "6.14.14"},
}  # fmt: skip
METRIC = {
    "gpu": 0, "usage": {"gfx_activity": {"value": 97, "unit": "%"}},
    "power": {"socket_power": {"value": 641, "unit": "W"}},
}  # fmt: skip
AMD_SMI = f"""#!{sys.executable}
import sys
told = {{"metric": {json.dumps({"gpu_data": [METRIC]})!r}, "static": {json.dumps({"gpu_data": [STATIC]})!r}}}
print(told[sys.argv[1]])
"""
"""An amd-smi of ROCm 7 on a host with one GPU, in the form of tests/parsers/amd_smi."""


@pytest.mark.engine
def test_the_whole_profile_with_a_small_model(accuracy_python: Path, tmp_path: Path) -> None:
    environment = make_environment(accuracy_python, tmp_path / "environment")
    lab = tmp_path / "lab"
    model, data, tools = lab / "model" / "small" / "fp8", lab / "data" / "open_orca", tmp_path / "tools"
    for folder in (model, data, tools):
        folder.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / "model.safetensors").write_bytes(bytes(64))
    subprocess.run([accuracy_python, "-c", WRITE_TOKENIZER, model / "tokenizer.json"], check=True)
    (data / "processed-data.pkl.gz").write_bytes(gzip.compress(TABLE.read_bytes()))
    (tools / "amd-smi").write_text(AMD_SMI)
    (tools / "amd-smi").chmod(0o755)
    user_conf = tmp_path / "user.conf"
    user_conf.write_text(
        "llama2-70b.Offline.min_duration = 1\n"
        "llama2-70b.Server.target_qps = 300\nllama2-70b-interactive.Server.target_qps = 290\n"
    )
    parameters = {
        "Where": "host", "Environment": environment, "Gpu": "false", "OnAmd": "true",
        "InstallDriver": "false", "ModelFolder": "small/fp8", "MaxOutputTokens": 4,
        "OfflineMinDuration": 0.001, "ServerMinDuration": 0.2,
        "OfflineLoad": "100%", "ServerLoad": 300, "InteractiveLoad": 300, "ServerMinQueryCount": 470,
        # The counts decide, and the limits are wide: a busy host is slow, or its warm-up alone.
        "OfflineMinQueryCount": 400, "TtftLatencyMs": 30000, "TpotLatencyMs": 30000, "UserConf": user_conf,
        "ServerAccuracy": "false", "InteractiveAccuracy": "false", "MonitorInterval": 0.2,
        "LlmConfig": "{max_model_len: 2048, enable_prefix_caching: False}",
    }  # fmt: skip
    ended = subprocess.run(
        [
            sys.executable, "-m", "agent", "--profile", PROFILE, "--results-dir", tmp_path / "results",
            "--package-dir", tmp_path / "packages", "--parameters",
            ",,,".join(f"{name}={value}" for name, value in parameters.items()),
        ],
        capture_output=True, text=True, timeout=600, check=False,
        env={
            **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "LAB_MODEL": str(lab / "model"),
            "LAB_DATASET": str(lab / "data"), "COMPANY": "Acme", "SYSTEM_NAME": "small",
        },
    )  # fmt: skip
    run = tmp_path / "results" / "latest"
    assert ended.returncode == 0, ended.stdout + ended.stderr
    names = ["offline-performance", "offline-accuracy", "server-performance", "interactive-performance"]
    summaries = {name: json.loads((run / "mlperf" / name / "summary.json").read_text()) for name in names}
    found = {name: summary["verdict"]["validity"] for name, summary in summaries.items()}
    assert found == {name: "NOT_APPLICABLE" if "accuracy" in name else "VALID" for name in names}
    scores = {metric["name"]: metric["value"] for metric in summaries["offline-accuracy"]["metrics"]}
    assert scores["tokens_per_sample"] == 4
    assert {"rouge1", "rouge2", "rougeL"} <= scores.keys()
    (why,) = (text for text in summaries["offline-accuracy"]["verdict"]["warnings"] if "24576" in text)
    assert why.startswith("3 samples were scored, but MLPerf's target for llama2-70b-99.9 is for 24576")
    numbers = {metric["name"]: metric["value"] for metric in summaries["offline-performance"]["metrics"]}
    assert 0 < numbers["tail_share"] <= 1
    for name, rate in (("server-performance", 300), ("interactive-performance", 290)):
        asked = json.loads((run / "mlperf" / name / "harness_result.json").read_text())["asked"]
        assert asked["target_qps"] == rate, name
    described = (run / "system_description.yaml").read_text()
    assert described.startswith("submitter: Acme\nsystem_name: small\n")
    arguments = (run / "mlperf" / "offline-performance" / "engine.log").read_text()
    assert '"max_model_len": 2048' in arguments
    assert '"load_format": "auto"' in arguments
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert 641 in [record["value"] for record in records if "power" in record["metric"]]


def test_the_executor_plans_on_amd_s_host() -> None:
    asked = case(profile_with(Where="host", Environment="/env"), "server-performance")
    described = LoadGenExecutor(asked.model_copy(update={"dataset": "synthetic"})).plan(
        Facts(
            modelled={
                "gpus": (), "amd_gpus": (), "visible_devices": None, "hip_visible_devices": None,
            }
        )
    )  # fmt: skip
    (step,) = described.steps
    assert "vLLM with /packages/llama2-70b-model" in step.reason
