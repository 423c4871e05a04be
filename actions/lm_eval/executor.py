"""Run lm-eval: MMLU and other question sets, on vLLM, transformers, an endpoint, or llama.cpp's server."""

from __future__ import annotations

import json
import os
import re
import shlex
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from actions.llamacpp.server import LlamaCppServer
from actions.lm_eval.bundled_data import data_download, provide
from actions.lm_eval.command import lm_eval_command, lm_eval_environment, sized_for, tasks_folder
from actions.lm_eval.contained import in_container
from actions.lm_eval.judging import judge
from actions.lm_eval.parameters import LmEvalParameters
from actions.loadgen.in_environment.harness.backends.vllm_log import news_of
from agent.component.component import Action, ComponentParameters, Plan, Step, StepOutcome
from agent.component.downloads import not_carried
from agent.core.errors import ActionFailedError, HostError, LiftedBy
from agent.core.quantities import metric_text
from agent.core.records import ParsedOutput
from agent.facts.agent_paths import lift_of_path
from agent.facts.bundle import bundle_of
from agent.facts.visible_gpus import chosen_devices, usable_gpus
from gpu_configs.model_identity import own_name
from parsers.lm_eval import parse_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.component import StepContext
    from agent.component.downloads import Download
    from agent.core.progress import Progress
    from agent.core.records import MetadataValue
    from agent.facts import Facts

_PROGRESS = re.compile(r"(?:^|\s)([\w .()-]+?):\s.*?(\d+)/(\d+) \[")
_TIMEOUT_S = 120.0
_NOT_HERE = (
    "a data set or model is not on this host, and the hub cannot be reached: fill its cache on a host with a "
    "network, or use task files with local data (include_path)"
)
_REMEDIES = (
    (r"No module named '?lm_eval", "add lm-eval to the environment's requirements"),
    (r"No module named '?(\w+)", "add {0} to the environment's requirements"),
    (r"Tasks? (?:were )?not found|Could not find task|No tasks specified", "correct tasks, or include_path"),
    (
        r"Couldn't reach|OfflineModeIsEnabled|LocalEntryNotFoundError|ConnectionError|Max retries exceeded",
        _NOT_HERE,
    ),
    (r"gated repo|GatedRepoError|401 Client Error", "set HF_TOKEN, and accept the licence on the hub"),
    (r"[Oo]ut of memory|OutOfMemoryError", "lower batch_size or gpu_memory_utilization (model_args)"),
)


class LmEvalExecutor(Action):
    """Run lm-eval once and record the model's scores.

    Raises:
        TypeError: if the parameters are of another component.
    """

    Parameters: ClassVar[type[ComponentParameters]] = LmEvalParameters

    def __init__(self, parameters: ComponentParameters) -> None:
        super().__init__(parameters)
        self.asked = cast("LmEvalParameters", parameters)

    def downloads(self, facts: Facts) -> tuple[Download, ...]:
        """Return the data sets of the tasks; with ``offline`` they are on the host.

        Raises:
            HostError: if lm-eval would fetch a model itself.
        """
        asked, image = self.asked, super().downloads(facts)
        if asked.offline or asked.load_format == "dummy":
            return image
        if asked.model_path and not Path(asked.model_path).is_absolute():
            raise not_carried(
                f"the model {asked.model_path}, which lm-eval fetches",
                "fetch it with a HuggingFaceModel, and give its folder as model_path: {PackagePath:name}",
            )
        return (*image, data_download(asked))

    def uses_gpus(self, facts: Facts) -> bool:
        """Return True for an engine in lm-eval's process, and for a llama.cpp server with layers on GPUs."""
        asked = self.asked
        own = asked.backend in {"vllm", "hf"} and asked.model_args.get("device") != "cpu"
        return super().uses_gpus(facts) or own or bool(asked.server and asked.server.gpu_layers)

    def uses_loopback(self) -> bool:
        """Return True also for vLLM, whose processes talk to each other over TCP."""
        return super().uses_loopback() or (self.asked.backend == "vllm" and self.asked.container is None)

    def plan(self, facts: Facts) -> Plan:
        """Plan one step.

        Raises:
            HostError: if the task files or the key are missing.
        """
        asked = self.asked
        if asked.include_path and not asked.include_path.is_dir():
            raise HostError(
                f"include_path {asked.include_path} is not a folder",
                remedy="correct the path",
                lifted_by=lift_of_path(facts, asked.include_path),
            )
        if asked.api_key_env and asked.api_key_env not in os.environ:
            raise HostError(
                f"api_key_env names {asked.api_key_env}, which is not set",
                remedy=f"export {asked.api_key_env}=…",
                lifted_by=LiftedBy.NOTHING,
            )
        asked = self._sized(asked, facts)
        url = asked.endpoint or "http://127.0.0.1"
        step = Step(
            "lm-eval",
            f"measures {asked.model} on {', '.join(asked.tasks)} with {asked.backend}",
            self._run,
            shlex.join(lm_eval_command(asked, url=url, output=f"{asked.folder}/{asked.case}")),
        )
        return Plan((step,))

    def _run(self, context: StepContext) -> StepOutcome:
        asked = self.asked
        if asked.load_format == "dummy":  # hours of questions would give no information
            output = judge(ParsedOutput("lm_eval", "lm-eval"), asked)
            return StepOutcome(_sentence(output), (output,), context.case_dir(asked.folder, asked.case))
        python = asked.environment / "bin" / "python"
        if asked.container is None and not python.exists():
            raise ActionFailedError(
                f"the environment {asked.environment} has no {python.name}",
                remedy="add a PythonEnvironmentInstallation with lm-eval to the dependencies",
            )
        case_dir = context.case_dir(asked.folder, asked.case)
        for stale in case_dir.glob("**/results*.json"):
            stale.unlink()
        image: dict[str, MetadataValue] = {}
        with ExitStack() as stack:
            if asked.container is not None:
                context, image = in_container(asked, asked.container, case_dir, context, stack)
            url = asked.endpoint
            if asked.server:
                context.progress.update("starting llama.cpp's server")
                server = LlamaCppServer(
                    asked.server,
                    name=asked.model,
                    python=(asked.server_environment or asked.environment) / "bin" / "python",
                    processes=context.processes,
                    log=case_dir / "server.log",
                    stop=context.stop,
                    contained=asked.container is not None,
                )
                url = stack.enter_context(server).url
            key = os.environ.get(asked.api_key_env, "") if asked.api_key_env else ""
            if asked.backend == "local-completions":
                check_echo(url, asked.endpoint_model or asked.model, key)
            self._evaluate(context, case_dir, url, key, provide(asked, context))
        results_at_the_top(case_dir)
        named = own_name(asked.model, asked.model_path) if asked.model_path else asked.model
        output = judge(parse_folder(case_dir)[-1], asked.model_copy(update={"model": named}))
        output = replace(output, details={**output.details, **image})
        return StepOutcome(_sentence(output), (output,), case_dir)

    def _sized(self, asked: LmEvalParameters, facts: Facts) -> LmEvalParameters:
        return sized_for(asked, usable_gpus(facts, asked.gpus)) if asked.backend == "vllm" else asked

    def _evaluate(
        self, context: StepContext, case_dir: Path, url: str, key: str, more: Mapping[str, str]
    ) -> None:
        asked = self._sized(self.asked, context.facts)
        if bundle_of(context.facts):  # nothing else is asked
            asked = asked.model_copy(update={"offline": True})
        shown = _ShownProgress(context.progress, asked.model_path)
        ended = context.processes.run(
            lm_eval_command(asked, url=url, output=case_dir),
            log=context.log,
            env={**lm_eval_environment(asked, key, chosen_devices(context.facts, asked.gpus)), **more},
            cwd=tasks_folder(asked),
            timeout_s=asked.timeout,
            check=False,
            on_line=shown.line,
        )
        if ended.timed_out:
            raise ActionFailedError(
                f"lm-eval did not end within {asked.timeout:g} s and was stopped",
                remedy="raise timeout, or set limit",
            )
        if ended.exit_code != 0:
            last = (ended.stderr or ended.stdout).strip().splitlines()[-10:]
            raise ActionFailedError(
                f"lm-eval ended with exit code {ended.exit_code}: {last[-1] if last else 'without a word'}",
                remedy=remedy_of(ended.stderr) or f"its output is in {ended.log}",
                details=tuple(last[:-1]),
            )


def results_at_the_top(case_dir: Path) -> None:
    """Move lm-eval's output from the folder named after the model's path into the case's folder."""
    for path in sorted(case_dir.glob("*/**/*")):
        if path.is_file() and path.name.startswith(("results_", "samples_")):
            path.replace(case_dir / path.name)
    for folder in sorted(case_dir.glob("**/"), reverse=True):
        if folder != case_dir and not any(folder.iterdir()):
            folder.rmdir()


def check_echo(url: str, model: str, key: str = "") -> None:
    """Check that an endpoint returns the log-probabilities of a prompt, without which it scores nothing.

    Raises:
        ActionFailedError: if the endpoint does not return them, or does not answer.
    """
    address = f"{url.rstrip('/').removesuffix('/v1')}/v1/completions"
    body = {"model": model, "prompt": "one two three four", "max_tokens": 1, "echo": True, "logprobs": 1}
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)  # noqa: S310 - http(s) alone
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as reply:  # noqa: S310
            told = json.load(reply)
        probabilities = (told["choices"][0].get("logprobs") or {}).get("token_logprobs") or ()
    except urllib.error.HTTPError as error:
        shown = error.read(300).decode(errors="replace")
        raise ActionFailedError(
            f"{address} answers {error.code}: {shown}",
            remedy="check that it serves this model (endpoint_model), needs no key, and supports echo",
        ) from error
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ActionFailedError(
            f"{address} returns no completion: {error}", remedy="start the server, or correct endpoint"
        ) from error
    if len([value for value in probabilities if value is not None]) < 2:  # noqa: PLR2004 - the prompt's, not one token's
        raise ActionFailedError(
            f"{address} does not echo the prompt's log-probabilities, which lm-eval needs to score answers",
            remedy="use vLLM's server; for llama.cpp's server, use backend llama-cpp",
        )


def remedy_of(text: str) -> str:
    """Return the remedy for a failure that lm-eval reported; empty if unknown."""
    for pattern, remedy in _REMEDIES:
        if found := re.search(pattern, text):
            return remedy.format(*found.groups())
    return ""


def _sentence(output: ParsedOutput) -> str:
    scores = [metric for metric in output.metrics if metric.verbosity == 1]
    shown = ", ".join(f"{metric.metadata['task']} {metric_text(metric)}" for metric in scores[:4])
    validity = f"{output.validity.value}: " if output.validity else ""
    return f"{validity}{shown or 'no question was asked'}"


class _ShownProgress:
    """Turns lm-eval's progress bars, and vLLM's messages, into the step's progress.

    Args:
        progress: the step's progress.
        model: the model's folder, if any.
    """

    def __init__(self, progress: Progress, model: str = "") -> None:
        self._progress = progress
        self._model = model

    def line(self, line: str) -> None:
        """Process a line of output."""
        if words := news_of(line, self._model):
            self._progress.update(f"loading the engine: {words}")
        elif found := _PROGRESS.search(line):
            what, done, total = found[1].strip(), int(found[2]), int(found[3])
            if done <= total:
                self._progress.update(f"{what}: {done} of {total}", done=done, total=total)
