"""The profiles for GPUs: their plans on a host, and the tiny form of one, run completely."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

from actions.loadgen.executor import LoadGenExecutor
from agent.component.registry import component_class
from agent.core.errors import HostError
from agent.facts import Facts
from agent.facts.gpus import Gpu
from agent.profile import Variables, applies_to, check, load, resolve
from dependencies.models.hugging_face_model import HuggingFaceModelParameters
from dependencies.nvidia.cuda_versions import compatible_driver
from dependencies.nvidia.free_gpu_memory import FreeGpuMemory
from dependencies.nvidia.gpu_selection import GpuSelection
from dependencies.python.environment_image.building import PythonEnvironmentImage
from gpu_configs.gpu_model import gpu_models
from gpu_configs.vllm_engine import EngineSettings, engine_settings

if TYPE_CHECKING:
    from actions.loadgen.parameters import LoadGenParameters
    from agent.profile import Element, Profile

VARIABLES = Variables({}, {"PackagePath": lambda name: f"/packages/{name}"})
LLAMA3 = "PERF-GPU-MLPERF-LLAMA3.yaml"
H100 = Gpu("0000:18:00.0", name="NVIDIA H100 80GB HBM3", memory_mib=81559, driver="580.159.04")
FIVE = ["server-performance", "server-accuracy", "offline-performance", "offline-accuracy", "mmlu"]


@cache
def profile_with(name: str, **overrides: str) -> Profile:
    profile = load([name], overrides=overrides)
    check(profile, VARIABLES)
    return profile


def enabled(elements: tuple[Element, ...], profile: Profile) -> dict[str, dict[str, Any]]:
    """Return the parameters of the elements that run, by scenario."""
    resolved = [resolve(element, profile, VARIABLES) for element in elements]
    return {
        values["scenario"]: values
        for element, values in zip(elements, resolved, strict=True)
        if applies_to(element, "linux-x64", parameters=values) is None
    }


def case(profile: Profile, scenario: str) -> LoadGenParameters:
    values = enabled(profile.actions, profile)[scenario]
    return LoadGenExecutor.Parameters.model_validate(values)  # type: ignore[return-value]


def settings(profile: Profile, scenario: str, *gpus: Gpu) -> EngineSettings:
    return settings_of(case(profile, scenario), *gpus)


def settings_of(asked: LoadGenParameters, *gpus: Gpu) -> EngineSettings:
    assert asked.vllm is not None
    return engine_settings(asked.vllm, model=asked.model, scenario=asked.loadgen_scenario, gpus=gpus)


def asked_engine(asked: LoadGenParameters, *gpus: Gpu) -> tuple[Any, ...]:
    """Return all that decides whether a test can take over the engine of the test before."""
    engine = settings_of(asked, *gpus)
    data = "" if "max_model_len" in engine.engine else (asked.dataset, asked.samples)
    return engine.engine, engine.environment, asked.max_output_tokens, data


@pytest.mark.parametrize("form", ["smoke", "full", "tiny"])
def test_every_element_can_be_built(form: str) -> None:
    profile = profile_with(LLAMA3, Form=form)
    for element in profile.elements():
        implementation = component_class(element.type)
        implementation(implementation.Parameters.model_validate(resolve(element, profile, VARIABLES)))
    assert list(enabled(profile.actions, profile)) == FIVE


def test_the_smoke_form_is_small_and_valid() -> None:
    profile = profile_with(LLAMA3)
    server = case(profile, "server-performance")
    assert (server.min_query_count or 0) >= 459
    assert (server.samples, server.input_tokens_max, server.target_qps) == (64, 896, "50%")
    engine = settings(profile, "offline-performance", H100).engine
    small = {"max_model_len": 1024, "max_num_seqs": 32, "gpu_memory_utilization": 0.9}
    assert small.items() <= engine.items()
    assert engine["quantization"] == "fp8"
    assert enabled(profile.dependencies, profile)["FreeGpuMemory"]["memoryShare"] == 0.9


@cache
def smoke_cases() -> dict[str, LoadGenParameters]:
    profile = profile_with(LLAMA3, LoadFormat="dummy", InteractivePerformance="true")
    return {name: case(profile, name) for name in (*FIVE[:4], "interactive-performance")}


@pytest.mark.parametrize("gpu", [kind.driver_names[0] for kind in gpu_models() if kind.vllm])
def test_the_smoke_forms_tests_ask_for_one_engine(gpu: str) -> None:
    card = Gpu("0000:18:00.0", name=gpu, memory_mib=81559, driver="580.159.04")
    asked = {name: asked_engine(case, card) for name, case in smoke_cases().items()}
    first = asked["server-performance"]
    assert first[0]["max_num_batched_tokens"] == 8192
    assert not {"max_cudagraph_capture_size", "scheduler_cls"} & set(first[0])
    assert all(one == first for one in asked.values())


def test_with_compliance_the_full_form_loads_one_engine_per_scenario() -> None:
    profile = profile_with(
        LLAMA3, Form="full", Compliance="true", InteractivePerformance="true", InteractiveAccuracy="true"
    )
    tests = [name for name in enabled(profile.actions, profile) if name != "mmlu"]
    loads = [list(group) for _, group in groupby(tests, lambda name: asked_engine(case(profile, name), H100))]
    assert loads == [
        [f"{scenario}-{mode}" for mode in ("performance", "accuracy", "test06")]
        for scenario in ("server", "offline", "interactive")
    ]


def test_the_plan_shows_the_settings_of_the_run() -> None:
    profile = profile_with(LLAMA3, LlmConfig="{enforce_eager: true}")
    values = enabled(profile.dependencies, profile)["SelectGpus"]
    plan = GpuSelection(GpuSelection.Parameters.model_validate(values)).plan(
        Facts(modelled={"gpus": (H100,), "visible_devices": None})
    )
    for scenario in ("Offline", "Server"):
        shown = plan.nothing_to_do.split(f"{scenario}: ")[1].split(". ")[0]
        engine = settings(profile, f"{scenario.lower()}-performance", H100).engine
        for name in ("max_num_seqs", "max_model_len", "enforce_eager", "gpu_memory_utilization"):
            assert f"{name} {engine[name]}" in shown
    assert "Server: gpu_configs" in plan.nothing_to_do
    assert "about 48 queries/s expected, where target_qps auto begins" in plan.nothing_to_do
    assert "about 53 queries/s expected. Server" in plan.nothing_to_do


def test_the_full_form_is_the_benchmark() -> None:
    profile = profile_with(LLAMA3, Form="full")
    server = case(profile, "server-performance")
    assert server.dataset == "/packages/llama3-cnn-dailymail/samples.jsonl"
    unset = (server.samples, server.min_duration, server.min_query_count, server.input_tokens_max)
    assert unset == (None, None, None, None)
    assert (server.ttft_latency_ms, server.tpot_latency_ms, server.target_qps) == (None, None, "auto")
    eight = settings(profile, "server-performance", *[H100] * 8)
    assert eight.engine["data_parallel_size"] == 8
    assert eight.engine["gpu_memory_utilization"] == 0.94
    assert "max_model_len" not in eight.engine
    assert eight.start_qps == 8 * 48


@pytest.mark.parametrize("name", ["NVIDIA L4", "NVIDIA GeForce RTX 4090"])
def test_the_full_form_fits_on_a_card_of_24_gb(name: str) -> None:
    profile = profile_with(LLAMA3, Form="full")
    card = Gpu("0000:18:00.0", name=name, memory_mib=23034, driver="580.159.04")
    for scenario in ("server-performance", "offline-performance"):
        engine = settings(profile, scenario, card).engine
        assert (engine["kv_cache_dtype"], engine["max_model_len"]) == ("fp8", 4096)
        # 8e9 weights of one byte each, and a cache of at least 50,000 tokens (64 KiB each in fp8).
        assert 23034 * 2**20 * engine["gpu_memory_utilization"] - 9e9 > 50_000 * 64 * 2**10
    values = enabled(profile.dependencies, profile)["SelectGpus"]
    plan = GpuSelection(GpuSelection.Parameters.model_validate(values)).plan(
        Facts(modelled={"gpus": (card,), "visible_devices": None})
    )
    assert "max_model_len 4096" in plan.nothing_to_do


def test_without_data_lengths_are_those_of_the_data_set() -> None:
    profile = profile_with(LLAMA3, Form="full", DataSource="synthetic")
    offline = case(profile, "offline-performance")
    lengths = (offline.input_tokens, offline.input_tokens_max)
    assert (offline.dataset, offline.samples, *lengths) == ("synthetic", 13368, 870, 2540)
    assert "PrepareCnnDailyMail" not in enabled(profile.dependencies, profile)


def test_the_shipped_texts_fit_the_smoke_form_or_are_refused_in_the_plan() -> None:
    facts = Facts(modelled={"gpus": (H100,), "visible_devices": None})
    profile = profile_with(LLAMA3, DataSource="shipped")
    for scenario in FIVE[:4]:
        assert LoadGenExecutor(case(profile, scenario)).plan(facts).steps
    without_tokenizer = profile_with(LLAMA3, DataSource="shipped", LoadFormat="dummy")
    with pytest.raises(HostError, match="is text, but skip_tokenizer_init"):
        LoadGenExecutor(case(without_tokenizer, "server-performance")).plan(facts)


def test_random_weights_have_random_tokens() -> None:
    profile = profile_with(LLAMA3, LoadFormat="dummy")
    assert case(profile, "server-accuracy").dataset == "synthetic"
    assert settings(profile, "server-accuracy").engine["load_format"] == "dummy"
    assert enabled(profile.actions, profile)["mmlu"]["loadFormat"] == "dummy"


@pytest.mark.parametrize(
    ("overrides", "is_shipped"),
    [
        ({"LoadFormat": "dummy"}, True),
        ({"LoadFormat": "dummy", "ModelPath": "/models/mine"}, False),
        ({"LoadFormat": "dummy", "Repository": "org/other"}, False),
        ({}, False),
    ],
)
def test_random_weights_of_the_benchmark_s_model_need_no_licence(
    overrides: dict[str, str],
    is_shipped: bool,  # noqa: FBT001 - a case's outcome
) -> None:
    profile = profile_with(LLAMA3, **overrides)
    asked = HuggingFaceModelParameters.model_validate(enabled(profile.dependencies, profile)["FetchModel"])
    engine = settings(profile, "offline-performance", H100).engine
    assert engine.get("skip_tokenizer_init", False) is is_shipped
    if is_shipped:
        assert (asked.repository, asked.load_format) == ("", "dummy")
        assert asked.path is not None
        assert json.loads((asked.path / "config.json").read_text())["num_hidden_layers"] == 32


def test_switches_and_overrides() -> None:
    profile = profile_with(
        LLAMA3, ServerAccuracy="false", Mmlu="false", InteractivePerformance="true", Samples="10",
        Form="full", UserConf="/etc/hosts", LlmConfig="{enforce_eager: true, max_num_seqs: 7}", Gpu="false",
        Environment="/env",
    )  # fmt: skip
    names = ["server-performance", "offline-performance", "offline-accuracy", "interactive-performance"]
    assert list(enabled(profile.actions, profile)) == names
    interactive = case(profile, "interactive-performance")
    assert (interactive.samples, interactive.user_conf) == (10, Path("/etc/hosts"))
    engine = settings(profile, "interactive-performance", H100).engine
    assert (engine["enforce_eager"], engine["max_num_seqs"]) == (True, 7)
    assert list(enabled(profile.dependencies, profile)) == ["FetchModel", "PrepareCnnDailyMail"]


@pytest.mark.parametrize(
    ("name", "asked", "share"),
    [
        (LLAMA3, {}, 0.9),
        (LLAMA3, {"Form": "full"}, 0.94),
        (LLAMA3, {"Form": "full", "MemoryShare": "0.8"}, 0.8),
        (LLAMA3, {"LlmConfig": "{gpu_memory_utilization: 0.7}", "MemoryShare": "0.8"}, 0.7),
        (LLAMA3, {"Form": "full", "LlmConfig": "{gpu_memory_utilization: 0.7}"}, 0.7),
    ],
)
def test_the_memory_that_must_be_free_is_what_the_engine_takes(
    name: str, asked: dict[str, str], share: float
) -> None:
    profile = profile_with(name, **asked)
    engine = settings(profile, "offline-performance", H100).engine
    assert engine["gpu_memory_utilization"] == share
    values = enabled(profile.dependencies, profile)["FreeGpuMemory"]
    assert FreeGpuMemory(FreeGpuMemory.Parameters.model_validate(values)).share((H100,)) == share


@pytest.mark.parametrize("own", ["", "/usr"])
def test_a_container_is_for_the_tests_and_all_else_is_the_hosts(own: str) -> None:
    profile = profile_with(LLAMA3, Container="{image: i, gpus: all}", ContainerEnvironment=own)
    host = "/packages/llama3-vllm"
    for scenario in ("server-performance", "offline-accuracy"):
        test = case(profile, scenario)
        assert test.container is not None
        assert str(test.environment) == (own or host)
    values = [*enabled(profile.dependencies, profile).values(), *enabled(profile.actions, profile).values()]
    others = [value for value in values if "environment" in value and "container" not in value]
    assert len(others) >= 2
    assert {str(value["environment"]) for value in others} == {host}
    assert "InstallVllm" in enabled(profile.dependencies, profile)


@pytest.mark.parametrize("form", ["smoke", "full", "tiny"])
def test_one_image_has_all_ten_steps(form: str) -> None:
    profile = profile_with(LLAMA3, Form=form, Where="container")
    brought, tests = enabled(profile.dependencies, profile), enabled(profile.actions, profile)
    assert list(tests) == FIVE
    image = brought["BuildImage"]["image"]
    for values in tests.values():
        assert (values["container"]["image"], values["environment"]) == (image, "/opt/vcagent")
        assert values["container"]["gpus"] == ("none" if form == "tiny" else "all")
    assert tests["mmlu"]["serverEnvironment"] == "/opt/vcagent"
    asked = PythonEnvironmentImage.Parameters.model_validate(brought["BuildImage"])
    names = {Requirement(one).name for one in asked.requirements}
    assert {"mlcommons-loadgen", "lm-eval", "rouge_score"} < names
    assert ("vllm" in names) is (form != "tiny")
    assert "InstallDocker" in brought
    on_gpus = {"InstallNvidiaDriver", "InstallNvidiaContainerToolkit"}
    assert on_gpus & brought.keys() == (set() if form == "tiny" else on_gpus)
    on_the_host = {"InstallVllm", "InstallTinyEngine", "InstallTinyMmlu", "InstallCompiler"}
    assert not on_the_host & brought.keys()
    if form != "tiny":
        assert brought["FetchModel"]["environment"] == "/packages/llama3-data"
        assert brought["InstallNvidiaDriver"]["minimumDriver"] == compatible_driver("13.0")


def test_on_the_host_nothing_of_docker_is_touched_and_another_place_is_refused() -> None:
    profile = profile_with(LLAMA3)
    names = {"InstallDocker", "InstallNvidiaContainerToolkit", "BuildImage", "InstallDataTools"}
    assert not names & enabled(profile.dependencies, profile).keys()
    wrong = profile_with(LLAMA3, Where="docker")
    element = next(one for one in wrong.dependencies if one.type == "PythonEnvironmentImage")
    with pytest.raises(ValueError, match="where docker is not host or container"):
        PythonEnvironmentImage.Parameters.model_validate(resolve(element, wrong, VARIABLES))


@pytest.mark.parametrize("form", ["smoke", "full", "tiny"])
def test_an_image_s_own_environment_is_used_in_every_form(form: str) -> None:
    profile = profile_with(LLAMA3, Form=form, Container="{image: my/vllm:1}", ContainerEnvironment="/usr")
    assert str(case(profile, "offline-performance").environment) == "/usr"


def test_the_full_form_brings_the_driver_and_refuses_what_it_does_not_know() -> None:
    smoke, full = (
        enabled(one.dependencies, one) for one in (profile_with(LLAMA3), profile_with(LLAMA3, Form="full"))
    )
    assert "InstallNvidiaDriver" not in smoke
    assert list(full)[:3] == ["FindGpus", "InstallNvidiaDriver", "SelectGpus"]
    assert (smoke["SelectGpus"]["allowUnknown"], full["SelectGpus"]["allowUnknown"]) == (True, False)
    without = profile_with(LLAMA3, Form="full", Gpu="false")
    assert "InstallNvidiaDriver" not in enabled(without.dependencies, without)
    component = GpuSelection(GpuSelection.Parameters.model_validate(full["FindGpus"]))
    plan = component.plan(Facts(modelled={"gpus": (H100, H100), "visible_devices": None}))
    assert plan.nothing_to_do.startswith("2 x NVIDIA H100 80GB HBM3. Offline: gpu_configs has llama3.1-8b")


def test_the_driver_and_the_compiler_that_the_pinned_list_needs() -> None:
    profile = profile_with(LLAMA3, Form="full")
    elements = enabled(profile.dependencies, profile).values()
    asked = {values["minimumDriver"] for values in elements if "minimumDriver" in values}
    assert asked == {compatible_driver("13.0")}
    assert "python3-dev" in enabled(profile.dependencies, profile)["InstallCompiler"]["packages-apt"]
    image = {"Container": "{image: vllm:1}", "ContainerEnvironment": "/usr", "Mmlu": "false"}
    for others in ({"Environment": "/env"}, image):
        own = profile_with(LLAMA3, **others)
        elements = enabled(own.dependencies, own).values()
        assert {values["minimumDriver"] for values in elements if "minimumDriver" in values} == {""}


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="form ful, which is none of smoke, full, tiny"):
        case(profile_with(LLAMA3, Form="ful"), "server-performance")


def test_versions_are_pinned() -> None:
    for element in load([LLAMA3]).dependencies:
        if element.parameters.get("packageName", "llama3-tiny-mmlu") != "llama3-tiny-mmlu":
            assert all("==" in requirement for requirement in element.parameters.get("requirements", ()))
    profile = profile_with(LLAMA3, Where="container")
    requirements = enabled(profile.dependencies, profile)["BuildImage"]["requirements"]
    assert all("==" in requirement for requirement in requirements)


ARTICLES = (
    ("The town council voted to rebuild the old stone bridge. It will cost four million pounds.",
     "An old bridge will be rebuilt for four million pounds."),
    ("A school grows vegetables on its roof. Pupils sell them at a market every Friday.",
     "Pupils sell vegetables from the roof of their school."),
    ("More puffins were counted than in any year since 1990. Warmer water brought fish back.",
     "Puffin numbers are the highest since 1990."),
)  # fmt: skip


@pytest.mark.engine
def test_the_tiny_form_run_whole(accuracy_python: Path, tiny_gguf: Path, tmp_path: Path) -> None:
    news = tmp_path / "news.jsonl"
    rows = [{"article": article, "highlights": summary} for article, summary in ARTICLES * 4]
    news.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    environment = accuracy_python.parent.parent
    parameters = {
        "Form": "tiny", "Model": "tiny", "TinyModel": tiny_gguf,
        "Environment": environment, "MmluEnvironment": environment, "DataSource": news,
        # The count decides: if others use the processor, a test may be much faster than its warm-up.
        "Samples": 12, "MinDuration": 0.5, "OfflineLoad": "200%", "OfflineMinQueryCount": 400,
        "MaxOutputTokens": 4, "MmluLimit": 3,
    }  # fmt: skip
    ended = subprocess.run(
        [
            sys.executable, "-m", "agent", "--profile", LLAMA3, "--results-dir", tmp_path / "results",
            "--package-dir", tmp_path / "packages", "--parameters",
            ",,,".join(f"{name}={value}" for name, value in parameters.items()),
        ],
        capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    run = tmp_path / "results" / "latest"
    summaries = {}
    for name in FIVE:
        folder = run / ("mmlu" if name == "mmlu" else "mlperf") / name
        assert (folder / "run.log").stat().st_size > 0
        assert [path.name for path in folder.glob("benchmark_report_*.html")]
        summaries[name] = json.loads((folder / "summary.json").read_text())
    for name in FIVE[:4]:
        folder = run / "mlperf" / name
        assert {"mlperf_log_detail.txt", "mlperf_log_summary.txt"} <= {path.name for path in folder.iterdir()}
    found = {name: summary["verdict"]["validity"] for name, summary in summaries.items()}
    assert found == {
        "server-performance": "VALID", "server-accuracy": "NOT_APPLICABLE", "offline-performance": "VALID",
        "offline-accuracy": "NOT_APPLICABLE", "mmlu": "NOT_APPLICABLE",
    }  # fmt: skip
    assert {"throughput", "latency", "ttft", "tpot"} <= summaries["server-performance"]["headline"].keys()
    scores = {metric["name"] for metric in summaries["offline-accuracy"]["metrics"]}
    assert {"rouge1", "rouge2", "rougeL", "rougeLsum", "gen_len"} <= scores
    rollup = json.loads((run / "rollup" / "run_rollup.json").read_text())
    assert len(rollup["cases"]) == 5
    assert (run / "report.html").exists()
