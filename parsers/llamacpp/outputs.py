"""Reads llama.cpp's tools: timings, scores, perplexity, quantisation, both benchmarks, server logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Parser
from parsers.llamacpp import FORMAT, TOOL
from parsers.llamacpp.bench import (
    batched_metrics,
    batched_rows,
    bench_complete,
    bench_metrics,
    bench_rows,
    is_batched,
    is_bench,
)
from parsers.llamacpp.build import build_of
from parsers.llamacpp.kl_divergence import has_kl_divergence, kl_divergence_result
from parsers.llamacpp.multiple_choice import (
    has_multiple_choice,
    multiple_choice_complete,
    multiple_choice_metrics,
)
from parsers.llamacpp.perplexity import has_perplexity, perplexity_complete, perplexity_metrics, values_in
from parsers.llamacpp.quantize import (
    has_quantization,
    quantization_complete,
    quantization_details,
    quantization_metrics,
)
from parsers.llamacpp.runs import split_runs
from parsers.llamacpp.served import chat_metrics, has_chat, has_slots, slot_result
from parsers.llamacpp.task_scores import has_hellaswag, has_winogrande, hellaswag_result, winogrande_result
from parsers.llamacpp.timings import has_timings, timing_metrics, timings_complete
from parsers.terminal import plain, whole_lines
from parsers.trees import SIZE_LIMIT, beginning, files_in, named, parse_files, text_of, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_TOOLS = "llama.cpp's tools"
_ENDINGS = {".txt", ".log", ".out", ".err", ".json", ".jsonl", ".csv", ".sql", ".stdout", ".stderr"}

Result = tuple[tuple[Metric, ...], bool]
"""Metrics, and True if the output is complete."""


def _timed(
    metrics: Callable[[str], tuple[Metric, ...]], complete: Callable[[str], bool]
) -> Callable[[str], Result]:
    """Return a reader for a run of a score, which adds the run's timings as details."""
    return lambda run: ((*metrics(run), *timing_metrics(run, verbosity=3)), complete(run))


def _with_timings(result: Callable[[str], Result]) -> Callable[[str], Result]:
    def read(run: str) -> Result:
        metrics, complete = result(run)
        return (*metrics, *timing_metrics(run, verbosity=3)), complete

    return read


def _generated(run: str) -> Result:
    metrics = timing_metrics(run)
    if not metrics:
        raise ParseError("its timings hold no number", remedy="see whether the run did anything")
    return metrics, timings_complete(run)


def _benched(text: str) -> Result:
    return bench_metrics(bench_rows(text)), bench_complete(text)


_WHOLE: tuple[tuple[str, Callable[[str], bool], Callable[[str], Result]], ...] = (
    ("bench", is_bench, _benched),
    ("batched-bench", is_batched, lambda text: (batched_metrics(batched_rows(text)), True)),
    ("server", has_slots, slot_result),
    ("chat", has_chat, lambda text: (chat_metrics(text), True)),
)
"""Readers that take all results of a text: the scenario's name, how to recognise the text, the reader."""

_SINGLE: tuple[tuple[str, Callable[[str], bool], Callable[[str], Result]], ...] = (
    ("hellaswag", has_hellaswag, _with_timings(hellaswag_result)),
    ("winogrande", has_winogrande, _with_timings(winogrande_result)),
    ("kl-divergence", has_kl_divergence, _with_timings(kl_divergence_result)),
    ("multiple-choice", has_multiple_choice, _timed(multiple_choice_metrics, multiple_choice_complete)),
    ("perplexity", has_perplexity, _timed(perplexity_metrics, perplexity_complete)),
    ("quantize", has_quantization, lambda run: (quantization_metrics(run), quantization_complete(run))),
    ("generate", has_timings, _generated),
)
"""Readers for the single result of a run. The first that fits gives the result; later output is detail."""


def parse_text(text: str, source: str = "") -> ParsedOutput:
    """Return the metrics in the output of one run; if the run was cut off, the metrics that are complete.

    Args:
        text: standard output, standard error, or both.
        source: the file or command that the text comes from, for errors.

    Raises:
        ParseError: if the text is from none of the tools, lacks the expected numbers, or holds several runs.
    """
    outputs = parse_outputs(text, source)
    if len(outputs) > 1:
        raise ParseError(f"it holds {len(outputs)} results", where=source or None)
    return outputs[0]


def parse_outputs(text: str, source: str = "") -> list[ParsedOutput]:
    """Return the results of all runs in a text. Among several runs, one that cannot be read is FAILED.

    Args:
        text: standard output, standard error, or both.
        source: the file or command that the text comes from, for errors.

    Raises:
        ParseError: if none of the tools wrote the text, or the only run lacks the expected numbers.
    """
    shown = plain(text)
    text, cut = whole_lines(shown)
    if cut and (values := values_in(shown[len(text) :])):
        text = f"{text}{values}\n"
    found = list(_results(text))
    if not found:
        raise ParseError(f"the text is not the output of {_TOOLS}", where=source or None)
    outputs = []
    for place, (scenario, part, read) in enumerate(found, 1):
        try:
            metrics, complete = read(part)
        except ParseError as error:
            told = ParseError(error.message, where=source or None, remedy=error.remedy, details=error.details)
            if len(found) == 1:
                raise told from error
            failed = unreadable(told, FORMAT, TOOL, source)
            outputs.append(named(failed, f"run-{place}/{scenario}"))
            continue
        build = build_of(part) or build_of(text)
        output = ParsedOutput(
            format=FORMAT,
            tool_name=TOOL,
            tool_version=str(build or ""),
            scenario=scenario,
            metrics=metrics,
            complete=complete and not (cut and place == len(found)),
            details={
                **quantization_details(part),
                **({"commit": build.known_commit} if build and build.known_commit else {}),
            },
            sources=(source,) if source else (),
        )
        outputs.append(output if len(found) == 1 else named(output, f"run-{place}"))
    return outputs


def _results(text: str) -> Iterator[tuple[str, str, Callable[[str], Result]]]:
    """Yield each result of a text: its scenario, its part of the text, and its reader."""
    several = False
    for scenario, fits, read in _WHOLE:
        if fits(text):
            several = True
            yield scenario, text, read
    for run in split_runs(text):
        for scenario, fits, read in _SINGLE:
            if fits(run):
                # A server or a benchmark prints timings of its own at its end.
                if not (several and scenario == "generate"):
                    yield scenario, run, read
                break


def _recognise_file(path: Path) -> bool:
    text = beginning(path, SIZE_LIMIT)
    return any(fits(text) for _, fits, _ in (*_WHOLE, *_SINGLE))


def _is_log(path: Path) -> bool:
    return path.suffix.lower() in _ENDINGS and _recognise_file(path)


def recognise(path: Path) -> bool:
    """Return True if the path is such output, or a folder that contains some."""
    return any(map(_is_log, files_in(path))) if path.is_dir() else _recognise_file(path)


def parse(path: Path) -> list[ParsedOutput]:
    """Return all such output in a file or a tree.

    Raises:
        ParseError: if there is none, or the only output lacks its numbers.
    """
    return parse_files(path, FORMAT, _TOOLS, _is_log, lambda file: parse_outputs(text_of(file), str(file)))


PARSER = Parser(
    name=FORMAT,
    description="llama.cpp's tools: bench, batched-bench, perplexity, scores, quantize, timings, server logs",
    recognise=recognise,
    parse=parse,
)
