"""MLPerf Inference by LoadGen: one test, a scenario in a mode, against an OpenAI-compatible server."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from actions.llamacpp.server import LlamaCppServer
from actions.mlperf.harness_run import (
    CONFIG_NAME,
    harness_command,
    harness_config,
    interpreter,
    remove_stale,
    run_harness,
)
from actions.mlperf.loadgen_parameters import LoadGenParameters
from actions.mlperf.loadgen_result import Tested, merge
from actions.mlperf.sample_sets import SYNTHETIC, SampleSet, open_sample_set
from actions.mlperf.sample_sets.synthetic import SyntheticSamples
from actions.mlperf.scorers import check_reference, score_run
from agent.component import Action, ComponentParameters, Plan, Step, StepOutcome
from agent.errors import ActionFailedError, HostError
from agent.records import ParsedOutput, Validity
from parsers.loadgen import parse_folder

if TYPE_CHECKING:
    from pathlib import Path

    from actions.mlperf.accuracy import Accuracy
    from agent.component import StepContext
    from agent.facts import Facts

__all__ = ["LoadGenExecutor"]

_GREEDY = {"temperature": 0, "ignore_eos": True, "cache_prompt": False}
_SYNTHETIC_SAMPLES = 256
_OVERHEAD_S = 10.0
_LOADGEN_DURATION_S = 600.0
"""LoadGen's own min_duration (mlcommons/inference, loadgen/mlperf.conf)."""
_HEADLINES = 2


@dataclass(frozen=True)
class _Engine:
    """What answers: where, under which name, and what is known of it."""

    url: str
    model: str
    server: LlamaCppServer | None = None


class LoadGenExecutor(Action):
    """Runs LoadGen once and says whether its result counts.

    Raises:
        TypeError: if the parameters are not its own.
    """

    Parameters: ClassVar[type[ComponentParameters]] = LoadGenParameters

    def __init__(self, parameters: ComponentParameters) -> None:
        super().__init__(parameters)
        self.asked = cast("LoadGenParameters", parameters)

    def plan(self, facts: Facts) -> Plan:  # noqa: ARG002 - any host can be a client
        """One step; what can be known to be wrong before it is a refusal.

        The environment is not looked for: a dependency may still have to make it.

        Raises:
            HostError: if the data set, user.conf or key cannot be read.
        """
        asked = self.asked
        self._check_files()
        engine = f"llama.cpp with {asked.server.model}" if asked.server else asked.endpoint
        step = Step(
            name=f"{asked.loadgen_scenario}-{asked.mode}".lower(),
            reason=f"measures the {asked.mode} of {asked.model} in LoadGen's {asked.loadgen_scenario} "
            f"scenario on {engine}",
            run=self._run,
            command=shlex.join(harness_command(asked, f"mlperf/{asked.case}/{CONFIG_NAME}")),
            estimate_s=_OVERHEAD_S + self._timed_s(),
        )
        return Plan((step,))

    def _timed_s(self) -> float:
        """Seconds that the timed part lasts at least; an accuracy run ends with its samples."""
        if self.asked.mode == "accuracy":
            return 0.0
        return _LOADGEN_DURATION_S if self.asked.min_duration is None else self.asked.min_duration

    def _check_files(self) -> None:
        asked = self.asked
        if asked.dataset != SYNTHETIC:
            samples = open_sample_set(asked.dataset)
            check_reference(asked, samples)
            if asked.samples and asked.samples > len(samples.ids):
                raise HostError(
                    f"{asked.samples} samples are asked for, but {asked.dataset} holds {len(samples.ids)}",
                    remedy="lower samples, or leave it out for all of them",
                )
        for name in ("user_conf", "api_key_file"):
            path = cast("Path | None", getattr(asked, name))
            if path is not None and not (path.is_file() and os.access(path, os.R_OK)):
                raise HostError(f"{name} {path} is not a readable file", remedy="correct the path")
        if asked.api_key_env and asked.api_key_env not in os.environ:
            raise HostError(
                f"api_key_env names {asked.api_key_env}, which is not set",
                remedy=f"export {asked.api_key_env}=…",
            )

    def _run(self, context: StepContext) -> StepOutcome:
        asked = self.asked
        python = interpreter(asked.environment)
        if not python.exists():
            raise ActionFailedError(
                f"the environment {asked.environment} has no {python.name}",
                remedy="add a PythonEnvironmentInstallation to the dependencies, or correct environment",
            )
        case_dir = context.case_dir("mlperf", asked.case)
        remove_stale(case_dir)
        samples = self._samples(case_dir)
        with ExitStack() as stack:
            engine = self._engine(stack, context, case_dir)
            backend = self._backend(engine)
            config = harness_config(asked, samples=samples, case_dir=case_dir, backend=backend)
            try:
                result = run_harness(asked, config, context=context, case_dir=case_dir)
            except ActionFailedError as error:
                raise _with_last_words(error, engine.server) from error
            tested = self._tested(samples, result, engine, backend["request"])
            if asked.mode == "accuracy":
                tested = replace(tested, accuracy=self._accuracy(tested, case_dir, context))
        output = merge(parse_folder(case_dir, result["asked"]), tested)
        return StepOutcome(_sentence(output), (output,), case_dir)

    def _samples(self, case_dir: Path) -> SampleSet:
        asked, path = self.asked, case_dir / "sample_set.jsonl"
        if asked.dataset == SYNTHETIC:
            longest = asked.input_tokens_max or asked.input_tokens
            count = asked.samples or _SYNTHETIC_SAMPLES
            SyntheticSamples(count, asked.input_tokens, longest, asked.seed).write(path)
            written = open_sample_set(str(path))
            return SampleSet(SYNTHETIC, path, written.ids)
        samples = open_sample_set(asked.dataset)
        return samples.first(asked.samples, path) if asked.samples else samples

    def _engine(self, stack: ExitStack, context: StepContext, case_dir: Path) -> _Engine:
        asked = self.asked
        if asked.server is None:
            return _Engine(asked.endpoint, asked.endpoint_model)
        context.progress.update("starting llama.cpp's server")
        server = LlamaCppServer(
            asked.server,
            name=asked.model,
            python=interpreter(asked.environment),
            processes=context.processes,
            log=case_dir / "server.log",
            stop=context.stop,
        )
        stack.enter_context(server)
        return _Engine(server.url, server.name, server)

    def _backend(self, engine: _Engine) -> dict[str, Any]:
        asked = self.asked
        return {
            "type": "openai",
            "url": engine.url,
            "model": engine.model or None,
            "model_like": None if engine.model else asked.model,
            "request": {**(_GREEDY if engine.server else {}), **asked.request},
            "api_key_env": asked.api_key_env or None,
            "api_key_file": None if asked.api_key_file is None else str(asked.api_key_file.absolute()),
            "connect_timeout_s": asked.connect_timeout,
            "max_in_flight": asked.max_in_flight,
        }

    def _tested(
        self,
        samples: SampleSet,
        result: dict[str, Any],
        engine: _Engine,
        request: dict[str, Any],
    ) -> Tested:
        asked, server = self.asked, engine.server
        facts: dict[str, str | int | float] = {}
        if server is not None:
            facts = {
                **server.facts,
                "model_file": str(server.model_path),
                "model_sha256": server.model_sha256(),
                "parallel": server.parameters.parallel,
                "context": server.parameters.context,
            }
        return Tested(
            parameters=asked,
            samples=samples,
            samples_sha256=samples.sha256,
            result=result,
            exact_tokens=request.get("ignore_eos") is True,
            server=facts,
        )

    def _accuracy(self, tested: Tested, case_dir: Path, context: StepContext) -> Accuracy | None:
        return score_run(
            self.asked,
            tested.samples,
            tested.result,
            case_dir,
            model_sha256=str(tested.server.get("model_sha256", "")),
            context=context,
        )


def _with_last_words(error: ActionFailedError, server: LlamaCppServer | None) -> ActionFailedError:
    """The error, with how the server ended if it did: that is the cause, the rest follows from it."""
    death = server.death() if server else None
    if server is None or death is None:
        return error
    return ActionFailedError(
        f"llama.cpp's server {death} during the test; {error.message}",
        remedy=f"its output is in {server.log}; signal 9 without a word there: the host had no memory left",
        details=server.last_words(),
    )


def _sentence(output: ParsedOutput) -> str:
    """The outcome in a line."""
    verdict = output.verdict
    assert verdict is not None  # noqa: S101 - merge always gives one
    shown = ", ".join(
        f"{metric.name} {metric.value:.4g} {metric.unit}" for metric in output.metrics[:_HEADLINES]
    )
    why = (
        f" ({verdict.reasons[0].message})"
        if verdict.reasons and verdict.validity is not Validity.VALID
        else ""
    )
    return f"{output.scenario} {verdict.validity.value}{why}: {shown}"
