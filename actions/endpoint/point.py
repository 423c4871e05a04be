"""Run one point of a sweep: write the samples, run the load in the environment, read the results."""

from __future__ import annotations

import json
import math
import os
import statistics
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from actions.endpoint.judging import combined, misses, with_errors
from actions.endpoint.loads import Lengths, PointLoad, Prompts, poisson_arrivals, traced_arrivals
from actions.endpoint.traces import read_trace
from actions.loadgen.harness_run import harness_environment
from actions.loadgen.in_environment.harness.dataset import pack_tokens
from actions.loadgen.sample_sets import shipped
from agent.component.environment_script import program_command, read_result, run_script
from agent.core.errors import ParseError
from agent.core.records import Validity
from agent.core.safe_files import replace_text, write_to
from parsers.endpoint_load.folder import LOAD_FILE, RESULT_FILE, parse_folder
from parsers.endpoint_load.requests import SAMPLES_FILE, read_requests

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from actions.endpoint.parameters import EndpointSweepParameters
    from actions.endpoint.traces import TracedRequest
    from agent.component.component import StepContext
    from agent.core.records import Metric, ParsedOutput
    from parsers.endpoint_load.requests import Request

_MODULE = "harness.endpoint_load"
_SAMPLE_SET = "sample_set.jsonl"
_GRACE_S = 60.0
_LONGEST_WORD = 6
_WARMUP_OUTPUT = 8


@dataclass(frozen=True)
class Asked:
    """The load of a point: a rate in requests/s, a concurrency, or, with neither, the unchanged trace."""

    rate: float | None = None
    concurrency: int | None = None

    @property
    def name(self) -> str:
        """Name of the point's step."""
        if self.concurrency is not None:
            return f"concurrency-{self.concurrency}"
        return "trace" if self.rate is None else f"rate-{self.rate:g}"

    def __str__(self) -> str:
        """Return the point in words."""
        if self.concurrency is not None:
            return f"{self.concurrency} request{'s' * (self.concurrency > 1)} at once"
        return "the trace's own rate" if self.rate is None else f"{self.rate:g} requests/s"


@dataclass(frozen=True)
class Run:
    """One run of a point.

    Args:
        asked: the point.
        output: the metrics, with their verdict.
        requests: the requests that were sent.
        missed: reason why the load does not hold within the limits; empty if it holds, or if there are none.
    """

    asked: Asked
    output: ParsedOutput
    requests: Sequence[Request]
    missed: str


@dataclass(frozen=True)
class Measured:
    """A point with all of its runs."""

    asked: Asked
    runs: tuple[Run, ...]

    @cached_property
    def output(self) -> ParsedOutput:
        """One output for all runs."""
        return combined([run.output for run in self.runs])

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:
        """Metrics of the point, by name."""
        return {metric.name: metric for metric in self.output.metrics}

    @property
    def missed(self) -> str:
        """Reason why the point does not hold in one of its runs; empty if it holds in all."""
        return next((run.missed for run in self.runs if run.missed), "")

    @property
    def is_valid(self) -> bool:
        """True if the figures of every run measure the endpoint and not the client."""
        return self.output.validity is Validity.VALID

    @property
    def offered(self) -> float:
        """Offered rate in requests/s; 0 for a concurrency."""
        metric = self.metrics.get("offered_rate")
        return 0.0 if metric is None else metric.value


class PointRunner:
    """Runs points against an endpoint.

    Args:
        asked: the parameters of the sweep.
        context: the step of the point.
    """

    def __init__(self, asked: EndpointSweepParameters, context: StepContext) -> None:
        self._asked = asked
        self._context = context

    @cached_property
    def trace(self) -> Sequence[TracedRequest]:
        """Requests of the trace; empty without a trace."""
        return read_trace(self._asked.trace_file) if self._asked.trace_file else ()

    def load(self, point: Asked, seed: str) -> PointLoad:
        """Return the requests of a run."""
        asked, trace = self._asked, self.trace
        if point.concurrency is not None:
            return PointLoad(self._lengths(asked.most_requests))
        if trace and point.rate is None:
            count = min(len(trace), asked.most_requests)
        else:
            assert point.rate is not None  # noqa: S101 - only a trace has a rate of its own
            wanted = max(math.ceil(point.rate * asked.duration), asked.least_requests)
            count = min(wanted, asked.most_requests)
        arrivals = (
            traced_arrivals(trace, point.rate, count)
            if trace
            else poisson_arrivals(point.rate or 1.0, count, seed)
        )
        return PointLoad(self._lengths(count), arrivals)

    def _lengths(self, count: int) -> list[Lengths]:
        if self.trace:
            rows = (self.trace[number % len(self.trace)] for number in range(count))
            return [Lengths(row.input_tokens, row.output_tokens, row.blocks) for row in rows]
        return [Lengths(self._asked.input_tokens, self._asked.output_tokens)] * count

    def run(self, point: Asked, folder: Path, number: int) -> Run:
        """Run a point, or read its results if an earlier attempt of this step finished it.

        Args:
            point: the load.
            folder: destination of its files.
            number: number of the run, from 1: each has its own arrivals and prompts.

        Raises:
            ActionFailedError: if the endpoint cannot be used.
            InterruptedRunError: if the run is asked to stop.
        """
        asked, context = self._asked, self._context
        seed = f"{asked.seed} {point.name} {number}"
        load = self.load(point, seed)
        config = self._config(point, folder, load, number)
        if not _is_done(folder, config):
            folder.mkdir(parents=True, exist_ok=True)
            for name in (RESULT_FILE, SAMPLES_FILE):
                (folder / name).unlink(missing_ok=True)
            samples = folder / _SAMPLE_SET
            self._write_samples(samples, load, seed)
            if asked.api_key_env:  # whatever the name of the variable
                context.processes.secrets.add(os.environ[asked.api_key_env])
            try:
                run_script(
                    program_command(asked.environment, _MODULE),
                    config,
                    context=context,
                    path=folder / LOAD_FILE,
                    env=harness_environment(),
                    timeout_s=self._longest_s(load),
                )
            finally:
                samples.unlink(missing_ok=True)  # the seed makes it again, and it may be large
        return self.read(point, folder)

    def read(self, point: Asked, folder: Path) -> Run:
        """Read the results of a finished run.

        Raises:
            ParseError: if the results cannot be read.
        """
        asked = self._asked
        output, requests = parse_folder(folder), read_requests(folder / SAMPLES_FILE)
        output = with_errors(output, requests, asked.limits)
        missed = (
            misses(requests, asked.limits, percentile=asked.limit_percentile, share=asked.limit_share)
            if asked.limits
            else ""
        )
        if asked.limits:
            output = replace(output, details={**output.details, "holds": not missed, "missed": missed})
        return Run(point, output, requests, missed)

    def _longest_s(self, load: PointLoad) -> float:
        sending_s = load.arrivals_s[-1] if load.arrivals_s else self._asked.duration
        return sending_s + 2 * self._asked.request_timeout + self._asked.connect_timeout + _GRACE_S

    def _config(self, point: Asked, folder: Path, load: PointLoad, number: int) -> dict[str, Any]:
        asked = self._asked
        url, facts = self._context.served_at(asked.endpoint)
        return {
            "load": {
                "output_dir": str(folder),
                "dataset": str(folder / _SAMPLE_SET),
                "backend": {
                    "type": "openai",
                    "url": url,
                    "api": asked.api,
                    "model": asked.endpoint_model or str(facts.get("model", "")) or None,
                    "request": asked.request,
                    "api_key_env": asked.api_key_env or None,
                    "api_key_file": str(asked.api_key_file.absolute()) if asked.api_key_file else None,
                    "connect_timeout_s": asked.connect_timeout,
                    "max_in_flight": asked.max_in_flight,
                },
                "duration_s": asked.duration,
                "arrivals_s": list(load.arrivals_s),
                "concurrency": point.concurrency or 0,
                "warmup_requests": asked.warmup_requests,
                "request_timeout_s": asked.request_timeout,
            },
            "about": self._about(point, load, number),
        }

    def _about(self, point: Asked, load: PointLoad, number: int) -> dict[str, Any]:
        asked, lengths = self._asked, load.lengths
        rate = point.rate
        if rate is None and load.arrivals_s:
            rate = len(load.arrivals_s) / load.arrivals_s[-1] if load.arrivals_s[-1] else None
        known: dict[str, Any] = {
            "scenario": f"{asked.model}/{point.name}",
            "model": asked.model,
            "rate": rate,
            "concurrency": point.concurrency,
            "run": number,
            "seed": asked.seed,
            "most_requests": asked.most_requests,
            "limits": vars(asked.limits),
            "arrivals": "none" if point.concurrency else "trace" if self.trace else "poisson",
            "trace": asked.trace_file.name if asked.trace_file else None,
            "shared_prefixes": any(one.blocks for one in lengths) or None,
        }
        if load.arrivals_s or not self.trace:  # else it depends on how many are sent
            known["input_tokens_mean"] = round(statistics.fmean(one.input_tokens for one in lengths), 2)
            known["output_tokens_mean"] = round(statistics.fmean(one.output_tokens for one in lengths), 2)
        return {name: value for name, value in known.items() if value is not None}

    def _write_samples(self, path: Path, load: PointLoad, seed: str) -> None:
        """Write the samples: first those of the warm-up, then each request's own prompt."""
        asked = self._asked
        prompts = Prompts(seed, _words() if asked.as_text else ())
        first = load.lengths[0]
        warmup = Lengths(first.input_tokens, min(first.output_tokens, _WARMUP_OUTPUT))
        with write_to(path) as file:
            for lengths in (*[warmup] * asked.warmup_requests, *load.lengths):
                prompt = (
                    {"prompt": prompts.text(lengths)}
                    if asked.as_text
                    else {"token_ids": pack_tokens(prompts.token_ids(lengths))}
                )
                file.write(json.dumps({**prompt, "max_output_tokens": lengths.output_tokens}) + "\n")


def _is_done(folder: Path, config: Mapping[str, Any]) -> bool:
    """Return True if the folder has the results of a run with the same configuration."""
    asked, result = read_result(folder / LOAD_FILE), read_result(folder / RESULT_FILE)
    if asked is None or result is None or result.get("status") != "completed":
        return False
    if {**asked, "result": None} != {**json.loads(json.dumps(config)), "result": None}:
        return False
    try:
        parse_folder(folder)
    except ParseError:
        return False
    return True


def _words() -> list[str]:
    """Return short English words, most of which are one token in common vocabularies."""
    lines = (line for path in shipped().values() for line in path.read_text(encoding="utf-8").split("\n"))
    texts = (str(json.loads(line)["prompt"]) for line in lines if line.strip())
    words = {word for text in texts for word in text.split() if word.isalpha() and len(word) <= _LONGEST_WORD}
    return sorted(words)


def write_case_samples(case_dir: Path, folders: Sequence[Path]) -> None:
    """Write the case's samples.csv, from which the report draws distributions, one run after the other."""
    header, rows, shift_s = "", [], 0.0
    for folder in folders:
        header, *own = (folder / SAMPLES_FILE).read_text(encoding="utf-8").splitlines()
        end_s = 0.0
        for row in own:
            slot, index, *times, tokens = row.split(",")
            moments = [float(moment) + shift_s if moment else None for moment in times]
            end_s = max(end_s, *(moment for moment in moments if moment is not None))
            shown = ["" if moment is None else f"{moment:.6f}" for moment in moments]
            rows.append(",".join((slot, index, *shown, tokens)))
        shift_s = end_s
    replace_text(case_dir / SAMPLES_FILE, "\n".join([header, *rows]) + "\n")
