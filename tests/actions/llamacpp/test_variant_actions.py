"""Plans and refusals of llama.cpp's actions; test_offline_chain.py runs the programs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from actions.llamacpp.batched_bench import LlamaCppBatchedBench
from actions.llamacpp.bench import LlamaCppBench
from actions.llamacpp.convert import LlamaCppConvert
from actions.llamacpp.generate import LlamaCppGenerate, text_faults
from actions.llamacpp.mmlu import LlamaCppMMLU
from actions.llamacpp.perplexity import LlamaCppPerplexity
from actions.llamacpp.programs import fitted, program_environment, remedy_for, run_program
from actions.llamacpp.quantize import LlamaCppQuantize
from actions.llamacpp.variants import Variant, variant_files
from agent.core.errors import ActionFailedError, HostError
from agent.facts import Facts

if TYPE_CHECKING:
    from agent.component.component import Action, Plan, StepContext

PACKAGES = Path("/packages")


def plan(kind: type[Action], **parameters: Any) -> Plan:
    action = kind(kind.Parameters.model_validate({"model": "smol", "threads": 2, **parameters}))
    return action.plan(Facts(modelled={"package_dir": PACKAGES}))


@pytest.mark.parametrize(
    ("dataset", "suffixes", "problem"),
    [
        ("/data/mmlu", {".parquet", ".md", ".json"}, "is Parquet, and no environment"),
        ("/data/x.parquet", {".parquet"}, "is Parquet, and no environment"),
        ("/data/none", set(), "is neither a file nor a folder with questions"),
        ("/data/csv", {".csv"}, ""),
        ("general-knowledge", None, ""),
        ("/packages/from-a-hub", set(), ""),
    ],
)
def test_questions_that_cannot_be_read_are_told_in_the_plan(
    dataset: str, suffixes: set[str] | None, problem: str
) -> None:
    asked = {"model": "smol", "variants": "F16", "dataset": dataset}
    action = LlamaCppMMLU(LlamaCppMMLU.Parameters.model_validate(asked))
    facts = Facts(modelled={"package_dir": PACKAGES, f"suffixes[{dataset}]": frozenset(suffixes or ())})
    if not problem:
        assert action.plan(facts).steps
        return
    with pytest.raises(HostError, match=problem):
        action.plan(facts)


@pytest.mark.parametrize("dataset", ["general-knowledge", "/data/x.jsonl"])
def test_one_file_has_no_examples(dataset: str) -> None:
    with pytest.raises(ValidationError, match="no split dev"):
        LlamaCppMMLU.Parameters.model_validate(
            {"model": "smol", "variants": "F16", "shots": 5, "dataset": dataset}
        )


@pytest.mark.parametrize(
    ("kind", "parameters", "names", "parts"),
    [
        (
            LlamaCppQuantize,
            {"variants": "q4_k_m,Q8_0"},
            ["quantize-q4_k_m", "quantize-q8_0"],
            "F16 /packages/models/smol/smol-Q4_K_M.part Q4_K_M 2",
        ),
        (LlamaCppGenerate, {"variant": "F16"}, ["generate-f16"], "--predict 64 --ctx-size 2048 --temp 0"),
        (
            LlamaCppBench,
            {"variants": ["F16"], "promptTokens": "16,32", "generatedTokens": 8, "depths": [128]},
            ["bench-f16"],
            "--n-prompt 16,32 --n-gen 8 --n-depth 128 --repetitions 5",
        ),
        (
            LlamaCppBatchedBench,
            {"variants": "F16"},
            ["batched-bench-f16"],
            "-npp 2560 -ntg 768 -npl 1,2,4,8 --ctx-size 26624",
        ),
        (
            LlamaCppMMLU,
            {"variants": "F16", "gpuLayers": 999},
            ["questions-f16"],
            "--threads 2 --n-gpu-layers 999",
        ),
        (
            LlamaCppPerplexity,
            {"variants": "F16", "chunks": 4},
            ["perplexity-f16"],
            "--ctx-size 512 --chunks 4",
        ),
    ],
)
def test_plans(kind: type[Action], parameters: dict[str, Any], names: list[str], parts: str) -> None:
    steps = plan(kind, **parameters).steps
    assert [step.name for step in steps] == names
    assert parts in steps[0].command
    assert "smol" in steps[0].reason


def test_a_disk_that_is_too_full_is_told_before_the_work(
    context: StepContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "llama-quantize"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    source = tmp_path / "big-f16.gguf"
    source.write_bytes(b"GGUF")
    os.truncate(source, 16 * 10**9)
    usage = shutil.disk_usage(tmp_path)._replace(free=3 * 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    parameters = {"variants": "Q4_K_M", "source": str(source), "modelsDir": tmp_path, "llamacpp": tmp_path}
    (step,) = plan(LlamaCppQuantize, **parameters).steps
    with pytest.raises(ActionFailedError, match=r"Q4_K_M needs 4\.0 GB or more, .* has 3\.0 GB"):
        step.run(context)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("command", "told", "left"),
    [
        ("cli -no-cnv --simple-io", "-cnv,  --conversation\n--simple-io", "cli --simple-io"),
        ("cli -no-cnv --simple-io", "-cnv, -no-cnv, --no-conversation", "cli -no-cnv --simple-io"),
        ("bench --output jsonl --progress -r 1", "-o, --output <csv|json|md>", "bench --output json -r 1"),
        ("bench --output jsonl", "-o, --output <csv|json|jsonl|md>", "bench --output jsonl"),
        ("batched --output-format jsonl -npl 1", "-npl n0,n1", "batched -npl 1"),
        ("cli -no-cnv", "", "cli -no-cnv"),
    ],
)
def test_what_a_build_of_2024_does_not_know_is_left_out(command: str, told: str, left: str) -> None:
    assert " ".join(fitted(command.split(), told)) == left


def test_a_variant_s_file_and_scenario(tmp_path: Path) -> None:
    variant = Variant("smollm2-135m", "Q4_K_M", tmp_path)
    assert variant.path == tmp_path / "smollm2-135m" / "smollm2-135m-Q4_K_M.gguf"
    assert variant.scenario("mmlu") == "smollm2-135m/Q4_K_M/mmlu"
    variant.folder.mkdir()
    variant.path.touch()
    (variant.folder / "smollm2-135m-F16.part").touch()
    assert variant_files(tmp_path, "smollm2-135m") == [variant]


@pytest.mark.parametrize(("model", "variant"), [("../etc", "F16"), ("m", "F16/.."), ("", "F16"), ("m", "")])
def test_a_name_does_not_lead_out_of_the_folder(model: str, variant: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name"):
        Variant(model, variant, PACKAGES)
    with pytest.raises(ValidationError):
        plan(LlamaCppGenerate, model=model, variants=variant)


def test_a_variant_that_is_not_there(context: StepContext) -> None:
    (step,) = plan(LlamaCppMMLU, variants="Q4_0", modelsDir=str(context.package_dir)).steps
    with pytest.raises(ActionFailedError, match=r"smol-Q4_0\.gguf does not exist; variants of smol: none"):
        step.run(context)


def test_programs_that_are_not_there(context: StepContext) -> None:
    variant = Variant("smol", "Q4_0", context.package_dir)
    variant.folder.mkdir(parents=True)
    variant.path.write_bytes(b"GGUF")
    (step,) = plan(LlamaCppGenerate, variants="Q4_0", modelsDir=str(context.package_dir)).steps
    with pytest.raises(ActionFailedError, match="has no llama-completion or llama-cli") as refusal:
        step.run(context)
    assert "LlamaCppInstallation" in (refusal.value.remedy or "")


@pytest.mark.parametrize(
    ("text", "expected", "codes"),
    [
        (" Paris, which lies on the river Seine.", "Paris", []),
        ("", "", ["no_text"]),
        (" \n ", "", ["no_text"]),
        ("!!!!!!!!!!!!!!!!!!!!!!!", "", ["repetition"]),
        (" the the the the the the", "", ["repetition"]),
        ("\ufffd\x01\ufffd\x02 a b c", "", ["unreadable"]),
        (" Lyon, of course, as all know", "Paris", ["unexpected"]),
        ("北京是中国的首都。", "", []),
    ],
)
def test_what_is_wrong_with_a_text(text: str, expected: str, codes: list[str]) -> None:
    assert [reason.code for reason in text_faults(text, expected)] == codes


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "is not a model in Hugging Face's format"),
        ({"config.json": "{}"}, "names no architecture"),
        ({"config.json": '{"architectures": ["LlamaForCausalLM"]}'}, "has no weights"),
        (
            {
                "config.json": '{"architectures": ["LlamaForCausalLM"]}',
                "model.safetensors": "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            },
            "is a Git LFS pointer",
        ),
        (
            {
                "config.json": '{"architectures": ["LlamaForCausalLM"]}',
                "model-00001-of-00002.safetensors": "weights",
                "model.safetensors.index.json": '{"weight_map": {"a": "model-00002-of-00002.safetensors"}}',
            },
            "lacks model-00002-of-00002.safetensors",
        ),
        (
            {
                "config.json": '{"architectures": ["LlamaForCausalLM"]}',
                "model.safetensors": "weights",
                "model.safetensors.index.json": '{"weight_map": {"a": "mod',
            },
            r"index\.json cannot be read",
        ),
    ],
)
def test_folders_that_cannot_be_converted(
    context: StepContext, tmp_path: Path, files: dict[str, str], message: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, text in files.items():
        (source / name).write_text(text)
    parameters = {"model": "m", "source": source, "environment": "/nowhere"}
    action = LlamaCppConvert(LlamaCppConvert.Parameters.model_validate(parameters))
    with pytest.raises(HostError, match=message):
        action.plan(Facts(modelled={"package_dir": context.package_dir}))


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("CUDA error: no kernel image is available for execution on the device", "cudaArchitectures"),
        ("CUDA error: the provided PTX was compiled with an unsupported toolchain.", "cudaArchitectures"),
        ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", "smaller variant"),
        ("CUDA error: the resource allocation failed", "smaller variant"),
        ("CUDA error: invalid argument", "dmesg"),
        ("CUDA error: an illegal instruction was encountered", "dmesg"),
        ("error: invalid argument: --fast", "see --help"),
        ("Illegal instruction", "another processor"),
        ("llama-perplexity was ended by signal 9", "ran out of memory"),
    ],
)
def test_what_to_do_about_a_program_that_failed(said: str, remedy: str) -> None:
    assert remedy in (remedy_for(said) or "")


def test_what_programs_get_beside_the_environment() -> None:
    assert program_environment({}) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "GGML_NO_BACKTRACE": "1",
        "GOMP_SPINCOUNT": "300",
    }
    own = {"OMP_WAIT_POLICY": "active", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    assert program_environment(own)["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
    assert "GOMP_SPINCOUNT" not in program_environment(own)


@pytest.mark.parametrize(("silent", "runs"), [(0, 1), (1, 2), (2, 3), (3, 3)])
def test_a_program_that_ends_without_its_results_runs_again(
    context: StepContext, tmp_path: Path, silent: int, runs: int
) -> None:
    script = f"echo >>{tmp_path}/runs; test $(wc -l <{tmp_path}/runs) -le {silent} || echo result"
    log = tmp_path / "program.log"
    result = run_program(["/bin/sh", "-c", script], context, log, has_results=lambda one: bool(one.stdout))
    assert result.stdout == ("result\n" if silent < runs else "")
    assert log.read_text().count("exit code 0") == runs
