"""The profile, without running it."""

from __future__ import annotations

from typing import Any

from agent.planning import Planner, leaves
from agent.profile import Profile, Variables, check, load, repeat, resolve
from agent.secrets import Secrets

VARIABLES = Variables(
    {}, {"PackageDir": lambda name: f"/packages/{name}", "PackagePath": lambda name: f"/p/{name}"}
)


def profile_with(**overrides: str) -> Profile:
    profile = repeat(load(["PERF-LLAMACPP.yaml"], overrides=overrides), VARIABLES)
    check(profile, VARIABLES)
    planner = Planner(profile, VARIABLES, Secrets())
    for element in (*leaves(profile.dependencies), *leaves(profile.actions)):
        planner.build(element)
    return profile


def scenarios(profile: Profile) -> list[str]:
    return [str(resolve(element, profile, VARIABLES)["scenario"]) for element in leaves(profile.actions)]


def parameters(profile: Profile, kind: str) -> list[dict[str, Any]]:
    elements = (*leaves(profile.dependencies), *leaves(profile.actions))
    return [resolve(element, profile, VARIABLES) for element in elements if element.type == kind]


def test_without_parameters_each_variant_of_the_embedded_model_is_served_and_loaded() -> None:
    profile = profile_with()
    assert scenarios(profile) == [
        "quantize", "generate", "bench", "mmlu", "perplexity",
        "server-F16", "load-F16", "server-Q8_0", "load-Q8_0",
        "server-Q4_K_M", "load-Q4_K_M", "server-Q4_0", "load-Q4_0", "comparison",
    ]  # fmt: skip
    (quantize,) = parameters(profile, "LlamaCppQuantize")
    assert quantize["variants"] == "F16,Q8_0,Q4_K_M,Q4_0"
    for server, test in zip(
        parameters(profile, "LlamaCppServer"), parameters(profile, "LocustLoad"), strict=True
    ):
        assert test["endpoint"] == f"service:{server['scenario']}"
        assert server["context"] > test["inputTokens"] + test["outputTokens"] == 3328


def test_a_folder_is_converted_and_loadgen_asks_the_same_server() -> None:
    profile = profile_with(
        Model="llama3.1-8b", ModelFolder="/models/x", QuantizeFrom="F16", Quantized="Q4_0",
        Variants="F16,Q4_0", LoadgenModel="llama3_1-8b",
    )  # fmt: skip
    found = scenarios(profile)
    assert found[:2] == ["convert", "quantize"]
    assert found[-5:-1] == ["server-Q4_0", "load-Q4_0", "loadgen-Offline-Q4_0", "loadgen-Server-Q4_0"]
    (convert,) = parameters(profile, "LlamaCppConvert")
    assert convert["source"] == "/models/x"
    assert {entry["endpoint"] for entry in parameters(profile, "LoadGenExecutor")} == {
        "service:server-F16",
        "service:server-Q4_0",
    }
    environments = [entry["packageName"] for entry in parameters(profile, "PythonEnvironmentInstallation")]
    assert environments == ["llamacpp-serving", "locust", "llamacpp-converter", "loadgen"]


def test_variants_that_are_there_are_only_measured() -> None:
    assert scenarios(profile_with(QuantizeFrom="", Variants="Q4_0,F16"))[0] == "generate"


def test_the_server_may_run_in_an_image_that_is_built_before() -> None:
    profile = profile_with(ServerImage="x:1", ServerImageBase="debian:12-slim")
    (image,) = parameters(profile, "LlamaCppImage")
    assert (image["image"], image["base"]) == ("x:1", "debian:12-slim")
    assert {server["container"] for server in parameters(profile, "LlamaCppServer")} == {"x:1"}
    assert not parameters(profile_with(ServerImage="x:1"), "LlamaCppImage")
