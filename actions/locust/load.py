"""LocustLoad: concurrent users request text from a server, with prompts and replies of exact lengths."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from actions.loadgen.sample_sets import shipped
from actions.locust.load_parameters import LocustLoadParameters
from actions.locust.text_server import TextServer
from agent.component.component import Action, ComponentParameters, Plan, Step, StepContext, StepOutcome
from agent.component.environment_script import interpreter
from agent.core.errors import ActionFailedError, HostError, LiftedBy
from agent.core.progress import PROGRESS_EVENT
from agent.core.quantities import metric_text
from agent.core.records import ParsedOutput, Reason, Validity
from agent.core.safe_files import replace_text
from parsers.llamacpp_server.counters import read_counters
from parsers.locust.load import LOAD_FILE, parse
from parsers.locust.requests import read_requests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.core.progress import Progress
    from agent.core.records import MetadataValue
    from agent.facts import Facts

_LOCUSTFILE = Path(__file__).with_name("in_environment") / "locustfile.py"
_USERS_PER_PROCESS = 50
_WARMUP_OUTPUT = 8
_START_S = 10.0
_GRACE_S = 30.0
_HEADLINES = 3


@dataclass(frozen=True)
class _Target:
    """The server under test, and facts about it."""

    server: TextServer
    model: str
    facts: Mapping[str, MetadataValue]


class LocustLoad(Action):
    """Run a step for each number of users; each is a case with a verdict."""

    Parameters: ClassVar[type[ComponentParameters]] = LocustLoadParameters

    def __init__(self, parameters: ComponentParameters) -> None:
        super().__init__(parameters)
        self.asked = cast("LocustLoadParameters", parameters)

    def plan(self, facts: Facts) -> Plan:  # noqa: ARG002 - any host can be a client
        """Plan a step for each number of users.

        Raises:
            HostError: if the key's variable is not set.
        """
        asked = self.asked
        if asked.api_key_env and asked.api_key_env not in os.environ:
            raise HostError(
                f"api_key_env names {asked.api_key_env}, which is not set",
                remedy=f"export {asked.api_key_env}=…",
                lifted_by=LiftedBy.NOTHING,
            )
        return Plan(
            tuple(
                Step(
                    f"users-{users}",
                    f"measures {asked.endpoint} under {users} concurrent user{'s' * (users > 1)}, "
                    f"{asked.input_tokens} tokens in and {asked.output_tokens} out"
                    + (f"; shown at http://127.0.0.1:{asked.web_port}" if asked.web_port else ""),
                    partial(self._run, users),
                    f"locust --users {users} --run-time {asked.duration:g}s",
                    estimate_s=asked.duration + _START_S,
                )
                for users in asked.users
            )
        )

    def _command(self, users: int) -> list[str]:
        asked = self.asked
        rate = asked.spawn_rate or users
        command = [
            str(asked.environment / "bin" / "locust"),
            "--locustfile", str(_LOCUSTFILE),
            *self._shown_by(),
            "--users", str(users),
            "--spawn-rate", f"{rate:g}",
            "--run-time", f"{math.ceil(asked.duration)}s",
            "--stop-timeout", f"{math.ceil(asked.request_timeout + _GRACE_S)}",
            # Failed requests affect the verdict; an exit code other than 0 is locust's own failure.
            "--exit-code-on-error", "0",
            "--csv", "locust", "--csv-full-history",
        ]  # fmt: skip
        workers = self._workers(users)
        return command if workers == 1 else [*command, "--processes", str(workers)]

    def _shown_by(self) -> list[str]:
        """Return the options for showing a test: locust's web page, or only the agent's own progress."""
        if not self.asked.web_port:
            return ["--headless", "--only-summary"]
        page = ["--web-host", "127.0.0.1", "--web-port", str(self.asked.web_port)]
        return ["--autostart", "--autoquit", "0", *page]

    def _workers(self, users: int) -> int:
        wanted = self.asked.workers or math.ceil(users / _USERS_PER_PROCESS)
        return min(wanted, users)

    def _run(self, users: int, context: StepContext) -> StepOutcome:
        asked = self.asked
        if not Path(self._command(users)[0]).exists():
            raise ActionFailedError(
                f"the environment {asked.environment} has no locust",
                remedy="add a PythonEnvironmentInstallation with locust to the dependencies",
            )
        case_dir = context.case_dir("locust", asked.case(users).replace("/", "-"))
        for stale in [*case_dir.glob("requests-*.jsonl"), *case_dir.glob("locust_*.csv")]:
            stale.unlink()
        target = self._target(context)
        self._prepare(target, users, case_dir, context)
        before = read_counters(target.server.counters())
        self._measure(users, case_dir, context)
        after_text = target.server.counters()
        if after_text:
            replace_text(case_dir / "server_metrics.prom", after_text)
        _write_samples(case_dir)
        output = self._judged(parse(case_dir)[0], before, read_counters(after_text))
        return StepOutcome(_sentence(output), (output,), case_dir)

    def _target(self, context: StepContext) -> _Target:
        """Find the server, and check that it supports the test.

        Raises:
            ActionFailedError: if the server does not answer, or its context is too small.
        """
        asked = self.asked
        url, facts = context.served_at(asked.endpoint)
        server = TextServer(url, asked.api, os.environ.get(asked.api_key_env, ""))
        model = asked.endpoint_model or str(facts.get("model") or server.model())
        limits = server.limits()
        needed = asked.needed_context
        if limits.get("context", needed) < needed:
            raise ActionFailedError(
                f"a request has {asked.input_tokens} + {asked.output_tokens} tokens; the server's context "
                f"holds {limits['context']}",
                remedy=f"start it with a context of {needed}, or lower input_tokens or output_tokens",
            )
        return _Target(server, model, {**facts, **limits})

    def _prepare(self, target: _Target, users: int, case_dir: Path, context: StepContext) -> None:
        """Write the users' input, and warm the server up."""
        asked = self.asked
        begin, vocabulary = target.server.token_ids(_plain_text(), target.model)
        prompt = [*begin, *vocabulary * (asked.input_tokens // len(vocabulary) + 1)][: asked.input_tokens]
        for number in range(asked.warmup_requests):
            context.progress.update(f"warming up: request {number + 1} of {asked.warmup_requests}")
            target.server.complete(
                prompt, min(_WARMUP_OUTPUT, asked.output_tokens), target.model, asked.request_timeout
            )
        load = {
            "scenario": asked.case(users),
            "users": users,
            "input_tokens": asked.input_tokens,
            "output_tokens": asked.output_tokens,
            "duration_s": asked.duration,
            "url": target.server.url,
            "api": asked.api,
            "model": target.model,
            "seed": asked.seed,
            "request_timeout_s": asked.request_timeout,
            "request": asked.request,
            "locust_version": self._locust_version(context),
            **{name: value for name, value in target.facts.items() if name not in {"url", "model"}},
        }
        replace_text(case_dir / LOAD_FILE, json.dumps(load, indent=2) + "\n")
        prompts = {"begin_ids": begin[: asked.input_tokens], "vocabulary_ids": vocabulary}
        replace_text(case_dir / "prompts.json", json.dumps(prompts) + "\n")

    def _locust_version(self, context: StepContext) -> str:
        """Return the version from the metadata: ``locust --version`` imports all of locust for it."""
        script = "from importlib.metadata import version; print(version('locust'))"
        command = [str(interpreter(self.asked.environment)), "-c", script]
        return context.processes.run(command, log=context.log, timeout_s=60, check=False).stdout.strip()

    def _measure(self, users: int, case_dir: Path, context: StepContext) -> None:
        asked = self.asked
        shown = _ShownProgress(context.progress, asked.duration)
        key = {"VCAGENT_LOAD_KEY": os.environ[asked.api_key_env]} if asked.api_key_env else {}
        for value in key.values():  # whatever the name of the variable
            context.processes.secrets.add(value)
        longest_s = (
            asked.duration + asked.request_timeout + 2 * _GRACE_S + users / (asked.spawn_rate or users)
        )
        ended = context.processes.run(
            self._command(users),
            log=context.log,
            env={"VCAGENT_LOAD": str(case_dir), "PYTHONUNBUFFERED": "1", **key},
            cwd=case_dir,
            timeout_s=longest_s,
            check=False,
            on_line=shown.line,
        )
        if ended.timed_out or ended.exit_code != 0:
            how = "took too long" if ended.timed_out else f"ended with exit code {ended.exit_code}"
            raise ActionFailedError(
                f"locust {how}",
                remedy=f"its output is in {ended.log}",
                details=tuple((ended.stderr or ended.stdout).splitlines()[-10:]),
            )

    def _judged(
        self, output: ParsedOutput, before: Mapping[str, float], after: Mapping[str, float]
    ) -> ParsedOutput:
        """Return the parsed output with the variant's name, and faults found by the server's own counters."""
        own: dict[str, MetadataValue] = {"model": self.asked.model}
        if self.asked.variant:
            own["variant"] = self.asked.variant
        metrics = tuple(replace(metric, metadata={**metric.metadata, **own}) for metric in output.metrics)
        output = replace(output, metrics=metrics, details={**output.details, **own})
        name = "prompt_tokens_cached_total"
        cached = after.get(name, 0.0) - before.get(name, 0.0)
        verdict = output.verdict
        if cached <= 0 or verdict is None or any(reason.code == "prompt_cache" for reason in verdict.reasons):
            return output
        reason = Reason(
            f"the server counts {cached:.0f} prompt tokens taken from its cache during the test",
            "switch prompt caching off, and keep other clients from using the server meanwhile",
            code="prompt_cache",
        )
        validity = Validity.INVALID if verdict.validity is Validity.VALID else verdict.validity
        return replace(
            output, verdict=replace(verdict, validity=validity, reasons=(*verdict.reasons, reason))
        )


def _plain_text() -> str:
    """Return English prose whose tokens make up the prompts; it contains no special tokens."""
    lines = (line for path in shipped().values() for line in path.read_text(encoding="utf-8").split("\n"))
    return "\n".join(str(json.loads(line)["prompt"]) for line in lines if line.strip())


def _write_samples(case_dir: Path) -> None:
    """Write samples.csv, from which the report draws distributions; times start at the first request."""
    requests = read_requests(case_dir).requests
    if not requests:
        return
    start_s = requests[0].sent_s
    rows = ["sample,issued_s,first_token_s,completed_s,output_tokens"]
    for number, request in enumerate(requests):
        issued = request.sent_s - start_s
        if request.error:
            rows.append(f"{number},{issued:.6f},,,")
        else:
            first, ended = issued + request.ttft_s, issued + request.latency_s
            rows.append(f"{number},{issued:.6f},{first:.6f},{ended:.6f},{request.output_tokens}")
    replace_text(case_dir / "samples.csv", "\n".join(rows) + "\n")


def _sentence(output: ParsedOutput) -> str:
    """Return the outcome in a line."""
    assert output.verdict is not None  # noqa: S101 - the parser always gives one
    shown = map(metric_text, output.metrics[:_HEADLINES])
    why = [f"({output.verdict.reasons[0].message})"] if output.verdict.reasons else []
    return " ".join([output.scenario, output.verdict.validity.value, *why]) + ": " + ", ".join(shown)


class _ShownProgress:
    """Turns the users' progress lines into the step's progress."""

    def __init__(self, progress: Progress, duration_s: float) -> None:
        self._progress = progress
        self._duration_s = duration_s

    def line(self, line: str) -> None:
        """Process a line of output; lines that are not progress only go to the log."""
        if not line.startswith(PROGRESS_EVENT):
            return
        try:
            told: dict[str, Any] = json.loads(line)
            failed = f", {told['failures']} failed" if told["failures"] else ""
            elapsed_s = min(float(told["elapsed_s"]), self._duration_s)
            over = ", waiting for running requests" if elapsed_s == self._duration_s else ""
            message = f"{told['users']} users: {told['requests']} requests{failed}{over}"
            self._progress.update(message, done=elapsed_s, total=self._duration_s)
        except (ValueError, KeyError, TypeError):
            return  # truncated: the next line repeats it
