"""LmEvalExecutor: its command, its verdicts, and the real lm-eval against small servers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from actions.lm_eval.command import SHIPPED_TASKS, lm_eval_command, lm_eval_environment
from actions.lm_eval.executor import (
    LmEvalExecutor,
    _ShownProgress,
    check_echo,
    remedy_of,
    results_at_the_top,
)
from actions.lm_eval.judging import judge
from actions.lm_eval.parameters import LmEvalParameters
from agent.core.errors import ActionFailedError, HostError
from agent.core.records import ParsedOutput, Validity
from agent.facts import Facts
from agent.facts.gpus import Gpu
from parsers.lm_eval import PARSER
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.component.component import StepContext, StepOutcome

ECHO_SERVER = Path(__file__).parents[2] / "lab" / "echo_server.py"
REAL = Path(__file__).parents[2] / "parsers" / "lm_eval" / "v0_4_13_group.json"


def asked(**parameters: Any) -> LmEvalParameters:
    given = {"model": "m", "environment": "/env", "model_path": "/models/m", **parameters}
    return LmEvalParameters.model_validate(given)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, ["-m lm_eval --model vllm --model_args pretrained=/models/m --tasks mmlu", "--batch_size auto"]),
        (
            {"load_format": "dummy", "model_args": {"dtype": "bfloat16", "gpu_memory_utilization": 0.9}},
            ["pretrained=/models/m,load_format=dummy,dtype=bfloat16,gpu_memory_utilization=0.9"],
        ),
        (
            {"backend": "local-completions", "endpoint": "http://h:1/v1/", "model": "llama3.1-8b"},
            ["base_url=http://h:1/v1/completions,model=llama3.1-8b,tokenizer=/models/m", "--batch_size 1"],
        ),
        (
            {"backend": "llama-cpp", "endpoint": "http://h:1", "model_path": "", "batch_size": 4},
            ["with_llama_cpp.py --model llama-cpp --model_args base_url=http://h:1 ", "--batch_size 4"],
        ),
        (
            {"tasks": "mmlu, arc_easy", "num_fewshot": 5, "limit": 100, "chat_template": True},
            ["--tasks mmlu,arc_easy", "--num_fewshot 5 --limit 100 --apply_chat_template"],
        ),
    ],
)
def test_the_command_line(parameters: dict[str, Any], words: list[str]) -> None:
    command = " ".join(lm_eval_command(asked(**parameters), url=parameters.get("endpoint", ""), output="out"))
    assert [part for part in words if part not in command] == []


def test_offline_nothing_asks_a_hub_and_a_key_is_no_argument() -> None:
    parameters = asked(offline=True, backend="local-completions", endpoint="http://h")
    variables = lm_eval_environment(parameters, "secret-key")
    assert variables["HF_HUB_OFFLINE"] == variables["HF_DATASETS_OFFLINE"] == "1"
    assert variables["OPENAI_API_KEY"] == "secret-key"
    assert variables["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    assert "secret-key" not in " ".join(lm_eval_command(parameters, url="http://h", output="o"))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"model_path": ""}, "model_path is missing"),
        ({"endpoint": "http://h"}, "have no effect with vllm"),
        ({"backend": "local-completions"}, "give the endpoint"),
        ({"backend": "local-completions", "server": {"model": "a.gguf"}}, "use backend llama-cpp"),
        ({"backend": "hf", "load_format": "dummy"}, "load_format dummy is only for vllm"),
        ({"model_args": {"pretrained": "x"}}, "set by another parameter"),
        ({"model_args": {"dtype": "a,b"}}, "cannot be written"),
        ({"reference": {"arc": 0.5}}, "arc is not one of the tasks mmlu"),
        ({"batch_size": "many"}, "batch_size"),
        ({"tasks": []}, "tasks"),
    ],
)
def test_what_cannot_be_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        asked(**parameters)


def test_task_files_and_keys_are_looked_for_before_anything(context: StepContext, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="include_path"):
        LmEvalExecutor(asked(include_path=tmp_path / "none")).plan(
            Facts(modelled={"package_dir": tmp_path / "packages"})
        )
    with pytest.raises(HostError, match="api_key_env names NO_SUCH_KEY"):
        LmEvalExecutor(asked(api_key_env="NO_SUCH_KEY")).plan(context.facts)


@pytest.mark.parametrize(
    ("parameters", "validity", "words"),
    [
        ({}, Validity.NOT_APPLICABLE, "without a reference"),
        ({"reference": {"local_knowledge": 0.9}}, Validity.VALID, ""),
        (
            {"reference": {"local_knowledge": 0.96}, "threshold": 1},
            Validity.INVALID,
            "acc of local_knowledge is",
        ),
        ({"limit": 6}, Validity.NOT_APPLICABLE, "a part of the questions"),
        ({"load_format": "dummy"}, Validity.NOT_APPLICABLE, "weights are random"),
        ({"tasks": ["local_knowledge", "mmlu"]}, Validity.INVALID, "mmlu has no score"),
    ],
)
def test_scores_are_judged_by_what_is_expected(
    parameters: dict[str, Any], validity: Validity, words: str
) -> None:
    (parsed,) = PARSER.parse(REAL)
    output = judge(parsed, asked(**{"tasks": ["local_knowledge"], **parameters}))
    assert output.verdict is not None
    said = [*(reason.message for reason in output.verdict.reasons), *output.verdict.warnings]
    assert (output.verdict.validity, words in " ".join(said)) == (validity, True), said
    assert {str(metric.scenario).split("/")[0] for metric in output.metrics} == {"m"}


@pytest.fixture
def echo_server(tmp_path: Path) -> Iterator[str]:
    """Start an endpoint that knows the answers about geography."""
    rows = questions("geography")
    text = tmp_path / "known.txt"
    text.write_text(
        "".join(f"Question: {row['question']}\nAnswer: {row['choices'][row['answer']]}\n" for row in rows)
    )
    process = subprocess.Popen([sys.executable, ECHO_SERVER, text], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    process.terminate()
    process.communicate(timeout=LIMIT_S)


def questions(task: str) -> list[dict[str, Any]]:
    path = SHIPPED_TASKS / "local_knowledge" / f"{task}_test.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def run(accuracy_python: Path, context: StepContext) -> Callable[..., StepOutcome]:
    def run_with(**parameters: Any) -> StepOutcome:
        given = {
            "environment": accuracy_python.parent.parent,
            "model_path": "",
            "offline": True,
            **parameters,
        }
        (step,) = LmEvalExecutor(asked(**given)).plan(context.facts).steps
        outcome = step.run(context)
        assert outcome is not None
        return outcome

    return run_with


def only(outcome: StepOutcome) -> ParsedOutput:
    (output,) = outcome.outputs
    return output


@pytest.mark.engine
def test_lm_eval_on_an_endpoint_that_echoes(
    run: Callable[..., StepOutcome], echo_server: str, context: StepContext
) -> None:
    outcome = run(
        backend="local-completions", endpoint=echo_server, tasks="local_geography local_chemistry",
        reference={"local_geography": 1.0}, limit=8,
    )  # fmt: skip
    output = only(outcome)
    assert output.validity is Validity.VALID
    found = {metric.scenario: metric.value for metric in output.metrics if metric.name == "acc"}
    # It knows nothing about chemistry: all answers are equally likely, and the first is taken.
    first = [row["answer"] == 0 for row in questions("chemistry")[:8]]
    assert found == {"m/local_geography": 1.0, "m/local_chemistry": sum(first) / 8}
    assert "local_geography Acc 100 %" in outcome.message
    told = context.progress.told  # type: ignore[attr-defined]
    assert ("Requesting API: 64 of 64", 64, 64) in told


def test_the_start_of_vllm_and_the_questions_are_shown(context: StepContext) -> None:
    shown = _ShownProgress(context.progress)
    for line in (
        "INFO 11-29 01:20:05 [core.py:77] Initializing a V1 LLM engine (v0.22.1) with config: model='/m'",
        "INFO 11-29 01:20:06 [cuda.py:12] Using FlashAttention version 3",
        "Capturing CUDA graphs (decode, FULL):  24%|██▍       | 12/51 [00:01<00:03, 12.71it/s]",
        "Running loglikelihood requests:  25%|██▌       | 228/912 [00:02<00:06, 99.1it/s]",
    ):
        shown.line(line)
    told = context.progress.told  # type: ignore[attr-defined]
    assert told == [
        ("loading the engine: starting its processes", None, None),
        ("loading the engine: capturing graphs, 12 of 51", None, None),
        ("Running loglikelihood requests: 228 of 912", 228, 912),
    ]


@pytest.mark.engine
def test_lm_eval_on_llama_cpps_server(
    run: Callable[..., StepOutcome], bench_python: Path, tiny_gguf: Path
) -> None:
    server = {"model": str(tiny_gguf), "parallel": 2, "context": 256}
    output = only(
        run(
            backend="llama-cpp", server=server, server_environment=bench_python.parent.parent,
            tasks="local_geography", limit=2, num_fewshot=0,
        )
    )  # fmt: skip
    assert output.validity is Validity.NOT_APPLICABLE
    assert {metric.name for metric in output.metrics} >= {"acc"}


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("/opt/e/bin/python: No module named lm_eval", "add lm-eval to the environment"),
        ("ModuleNotFoundError: No module named 'vllm'", "add vllm to the environment"),
        ("ValueError: Tasks not found: no_such_task", "include_path"),
        ("ConnectionError: Couldn't reach 'cais/mmlu' on the Hub (OfflineModeIsEnabled)", "include_path"),
        ("huggingface_hub.errors.GatedRepoError: 401 Client Error.", "HF_TOKEN"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "gpu_memory_utilization"),
        ("something else", ""),
    ],
)
def test_failures_are_explained(said: str, remedy: str) -> None:
    assert remedy in remedy_of(said)
    assert bool(remedy) == bool(remedy_of(said))


@pytest.mark.engine
def test_llama_cpps_own_server_is_known_to_echo_nothing(
    bench_python: Path, tiny_gguf: Path, context: StepContext, tmp_path: Path
) -> None:
    from actions.llamacpp.server import LlamaCppServer
    from actions.llamacpp.server_parameters import ServerParameters

    parameters = ServerParameters(model=str(tiny_gguf), parallel=1, context=64)
    with (
        LlamaCppServer(
            parameters, name="m", python=bench_python, processes=context.processes, log=tmp_path / "log"
        ) as server,
        pytest.raises(ActionFailedError) as caught,
    ):
        check_echo(server.url, "m")
    assert "echo" in str(caught.value)


def test_an_endpoint_that_is_not_there_is_told() -> None:
    with pytest.raises(ActionFailedError, match="returns no completion"):
        check_echo("http://127.0.0.1:9", "m")


def test_random_weights_are_asked_nothing(context: StepContext) -> None:
    (step,) = (
        LmEvalExecutor(asked(load_format="dummy", scenario="mmlu", folder="mmlu")).plan(context.facts).steps
    )
    outcome = step.run(context)
    assert outcome is not None
    (output,) = outcome.outputs
    assert (output.validity, output.metrics) == (Validity.NOT_APPLICABLE, ())
    assert "the weights are random" in output.verdict.warnings[0]  # type: ignore[union-attr]
    assert outcome.case_dir == context.run_dir / "mmlu" / "mmlu"
    assert (outcome.case_dir / "run.log").exists()


def test_results_stand_in_the_case_s_folder(tmp_path: Path) -> None:
    inner = tmp_path / "__packages__llama3-model"
    inner.mkdir()
    (inner / "results_2026-04-01T12-00-00.json").write_text("{}")
    (inner / "samples_mmlu_2026.jsonl").write_text("")
    other = tmp_path / "kept" / "notes.txt"
    other.parent.mkdir()
    other.write_text("mine")
    results_at_the_top(tmp_path)
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {"results_2026-04-01T12-00-00.json", "samples_mmlu_2026.jsonl", "kept/notes.txt"}
    assert not inner.exists()


@pytest.mark.parametrize(("devices", "set_to"), [("1,3", "1,3"), (None, None)])
def test_the_gpus_that_were_chosen_are_those_that_it_sees(devices: str | None, set_to: str | None) -> None:
    asked = LmEvalParameters.model_validate({"model": "m", "environment": "/e", "model_path": "/m"})
    assert lm_eval_environment(asked, "", devices).get("CUDA_VISIBLE_DEVICES") == set_to


@pytest.mark.parametrize(
    ("memory_mib", "parameters", "words"),
    [
        (23028, {}, "pretrained=/models/m,max_num_batched_tokens=1024 "),
        (23028, {"model_args": {"max_num_batched_tokens": 256}}, "=/models/m,max_num_batched_tokens=256 "),
        (23028, {"model_args": {"max_num_seqs": 2048}}, "max_num_batched_tokens=2048,max_num_seqs=2048 "),
        (
            23028,
            {"model_args": {"enable_chunked_prefill": "false", "max_model_len": 4096}},
            "max_num_batched_tokens=4096,enable_chunked_prefill=false,max_model_len=4096 ",
        ),
        (
            23028,
            {"model_args": {"enable_chunked_prefill": False}},
            "pretrained=/models/m,enable_chunked_prefill=False ",
        ),
        (46068, {}, "pretrained=/models/m "),
        (None, {}, "pretrained=/models/m "),
        (23028, {"backend": "hf"}, "pretrained=/models/m "),
    ],
)
def test_the_logits_of_long_prompts_fit_into_24_gib(
    memory_mib: int | None, parameters: dict[str, Any], words: str
) -> None:
    gpu = Gpu("0000:3b:00.0", name="NVIDIA A10", memory_mib=memory_mib)
    facts = Facts(None, {"gpus": (gpu,), "amd_gpus": (), "visible_devices": None})
    (step,) = LmEvalExecutor(asked(**parameters)).plan(facts).steps
    assert words in (step.command or "")
