"""Run the harness: write its configuration from the parameters, show its progress, read its result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actions.loadgen.compliance import AUDIT_NAME, COMPLIANCE_TESTS, VERIFIED_NAME, write_audit_config
from actions.loadgen.engine import OutOfMemoryError
from actions.loadgen.in_environment.harness.outputs import remove_outputs
from actions.loadgen.parameters import AUTO, as_share
from agent.component.environment_script import interpreter, read_result
from agent.core.errors import ActionFailedError
from agent.core.progress import PROGRESS_EVENT
from agent.core.safe_files import replace_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actions.loadgen.engine import Engine
    from actions.loadgen.parameters import LoadGenParameters
    from actions.loadgen.sample_sets import SampleSet
    from agent.component.component import StepContext
    from agent.core.progress import Progress

CONFIG_NAME = "harness.json"
RESULT_NAME = "harness_result.json"
HARNESS = Path(__file__).with_name("in_environment") / "harness"
"""Package that runs in the benchmark's own environment."""

_BESIDE_THE_HARNESS = (
    CONFIG_NAME,
    "server.log",
    "sample_set.jsonl",
    "rouge*.json",
    "accuracy.txt",
    AUDIT_NAME,
    VERIFIED_NAME,
    "summary.json",
    "benchmark_report_*.html",
)
"""Files written by the action and its report; the harness knows its own files."""
_AUTO_SHARES = {"Offline": 1.15}
"""Shares for an automatic load in Offline: above a short probe's rate, since a long test has less ramp-up."""
_PACED_SHARE = 0.5
"""Share for an automatic load in other scenarios; an accuracy run in Server is paced too."""
_DEFAULT_SHARES = {"Offline": 1.0, "SingleStream": 0.5, "MultiStream": 0.5}
_ENGINE_ERRORS = {
    "connection",
    "engine_error",
    "out_of_memory",
    "cut_stream",
    "stalled",
    "timeout",
    "http_error",
}


def remove_stale(case_dir: Path) -> None:
    """Remove files of an interrupted attempt, which could be mistaken for this one's; keep all others."""
    remove_outputs(case_dir)
    for pattern in _BESIDE_THE_HARNESS:
        for path in case_dir.glob(pattern):
            path.unlink()


def harness_environment() -> dict[str, str]:
    """Return the environment variables by which an environment's Python finds the harness."""
    # A single entry: the environment's own packages come after it.
    return {"PYTHONPATH": str(HARNESS.parent), "PYTHONUNBUFFERED": "1"}


def harness_command(parameters: LoadGenParameters, config: Path | str) -> list[str]:
    """Return the command line of the harness."""
    return [str(interpreter(parameters.environment)), "-m", "harness", str(config)]


def harness_config(
    parameters: LoadGenParameters, engine: Engine, *, samples: SampleSet, case_dir: Path
) -> dict[str, Any]:
    """Return the harness's configuration (``harness.config.HarnessConfig``)."""
    asked = parameters
    is_tuned = (
        asked.target_qps == AUTO and asked.mode == "performance" and asked.loadgen_scenario != "Offline"
    )
    share = None if is_tuned else _load_share(asked)
    settings = {
        "target_qps": asked.target_qps if isinstance(asked.target_qps, float | int) else None,
        "target_latency": None if isinstance(asked.target_latency_ms, str) else asked.target_latency_ms,
        "ttft_latency": asked.ttft_latency_ms,
        "tpot_latency": asked.tpot_latency_ms,
        "min_duration": None if asked.min_duration is None else round(asked.min_duration * 1000),
        "min_query_count": asked.min_query_count,
        "samples_per_query": asked.samples_per_query,
    }
    backend, audit_config = dict(engine.backend), None
    if asked.mode in COMPLIANCE_TESTS:
        audit_config = str(write_audit_config(asked.mode, case_dir))
        if backend["type"] == "openai":
            backend["token_ids"] = True
    return {
        "scenario": asked.loadgen_scenario,
        "mode": "accuracy" if asked.mode == "accuracy" else "performance",
        "model": asked.name_in_loadgen,
        "output_dir": str(case_dir),
        "dataset": str(samples.path),
        "backend": backend,
        "settings": {name: value for name, value in settings.items() if value is not None},
        "user_conf": None if asked.user_conf is None else str(asked.user_conf.absolute()),
        "performance_sample_count": asked.performance_sample_count,
        "max_output_tokens": asked.max_output_tokens,
        "warmup_samples": asked.warmup_samples,
        "load_share": share,
        "tuning": {**asked.tuning, "start_qps": engine.start_qps} if is_tuned else None,
        "sample_timeout_s": asked.sample_timeout,
        "audit_config": audit_config,
    }


def _load_share(asked: LoadGenParameters) -> float | None:
    """Return the load as a share of the warm-up's measurement; None if the load is a number."""
    if asked.target_qps == AUTO:
        return _AUTO_SHARES.get(asked.loadgen_scenario, _PACED_SHARE)
    loads = (asked.target_qps, asked.target_latency_ms)
    share = next((share for share in map(as_share, loads) if share is not None), None)
    return _DEFAULT_SHARES[asked.loadgen_scenario] if loads == (None, None) else share


def run_harness(
    parameters: LoadGenParameters, config: Mapping[str, Any], *, context: StepContext, case_dir: Path
) -> dict[str, Any]:
    """Run one LoadGen test and return ``harness_result.json``.

    Raises:
        ActionFailedError: if the test has no result; includes the harness's reason and remedy.
        InterruptedRunError: if the run was asked to stop.
    """
    path = case_dir / CONFIG_NAME
    replace_text(path, json.dumps(config, indent=2) + "\n")
    shown = _ShownProgress(context.progress)
    ended = context.processes.run(
        harness_command(parameters, path),
        log=context.log,
        env=harness_environment(),
        timeout_s=parameters.timeout,
        check=False,
        on_line=shown.line,
    )
    if ended.timed_out:
        raise ActionFailedError(
            f"the test did not end within {parameters.timeout:g} s and was stopped",
            remedy="give it more time (--set SCENARIO.timeout=04:00:00, with this element's scenario), "
            "or less to do (minDuration, minQueryCount)",
        )
    result = read_result(case_dir / RESULT_NAME)
    if result is None:
        how = f"signal {-ended.exit_code}" if ended.exit_code < 0 else f"exit code {ended.exit_code}"
        raise ActionFailedError(
            f"the harness ended with {how} and left no result",
            remedy=f"its output is in {ended.log}",
            details=tuple((ended.stderr or ended.stdout).splitlines()[-10:]),
        )
    if ended.exit_code != 0 or result.get("status") != "completed":
        raise _failure(result, ended.exit_code)
    return result


def _failure(result: Mapping[str, Any], exit_code: int) -> ActionFailedError:
    error = result.get("error") or {}
    kind = str(error.get("kind", "internal"))
    message = str(error.get("message") or f"the harness ended with exit code {exit_code}")
    done = f" after {result['completed']} of {result['issued']} samples" if result.get("issued") else ""
    what = "the engine failed" if kind in _ENGINE_ERRORS else "the harness failed"
    failure = OutOfMemoryError if kind == "out_of_memory" else ActionFailedError
    return failure(f"{what}{done} ({kind}): {message}", remedy=error.get("remedy") or "see the step's log")


class _ShownProgress:
    """Turns the harness's progress lines into the step's progress."""

    _PHASES: Mapping[str, str] = {
        "connect": "connecting",
        "load": "loading the engine",
        "warmup": "warming up",
        "drain": "finishing",
    }

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def line(self, line: str) -> None:
        """Process a line of output; lines that are not progress only go to the log."""
        if not line.startswith(PROGRESS_EVENT):
            return
        try:
            told = json.loads(line)
            phase, completed, elapsed_s = str(told["phase"]), int(told["completed"]), float(told["elapsed_s"])
        except (ValueError, KeyError, TypeError):
            return  # truncated: the next line repeats it
        shown = told.get("note") or self._PHASES.get(phase, "running")
        message = f"{shown}: {told.get('detail') or f'{completed} samples'}"
        if elapsed_s > 0 and completed:
            message += f", {completed / elapsed_s:.1f} samples/s"
        self._progress.update(message, done=completed, total=told.get("expected"))
