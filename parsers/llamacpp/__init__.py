"""llama.cpp's tools: timings, multiple choice, perplexity, quantisation, llama-bench, llama-batched-bench."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Parser
from parsers.llamacpp.bench import (
    batched_metrics,
    batched_rows,
    bench_metrics,
    bench_rows,
    is_batched,
    is_bench,
)
from parsers.llamacpp.build import build_of
from parsers.llamacpp.multiple_choice import (
    has_multiple_choice,
    multiple_choice_complete,
    multiple_choice_metrics,
)
from parsers.llamacpp.perplexity import has_perplexity, perplexity_complete, perplexity_metrics
from parsers.llamacpp.quantize import (
    has_quantization,
    quantization_complete,
    quantization_details,
    quantization_metrics,
)
from parsers.llamacpp.timings import has_timings, timing_metrics, timings_complete
from parsers.terminal import plain, whole_lines
from parsers.trees import beginning, files_in, parse_files

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PARSER", "TOOL", "parse_text"]

FORMAT = "llamacpp"
TOOL = "llama.cpp"
_ENDINGS = {".txt", ".log", ".out", ".json", ".jsonl", ".csv"}
_SIZE_LIMIT = 64 << 20
_HEAD_BYTES = 1 << 20


def parse_text(text: str, source: str = "") -> ParsedOutput:
    """The metrics in the output of any of the tools; of one that was cut, those that are whole.

    Args:
        text: standard output, standard error, or both.
        source: where it comes from, for errors.

    Raises:
        ParseError: if it is of none of the tools, or holds none of the numbers that it should.
    """
    text, cut = whole_lines(plain(text))
    try:
        scenario, metrics, complete = _read(text)
    except ParseError as error:
        raise ParseError(
            error.message, where=source or None, remedy=error.remedy, details=error.details
        ) from error
    build = build_of(text)
    return ParsedOutput(
        format=FORMAT,
        tool_name=TOOL,
        tool_version=str(build or ""),
        scenario=scenario,
        metrics=metrics,
        complete=complete and not cut,
        details={**quantization_details(text), **({"commit": build.commit} if build else {})},
        sources=(source,) if source else (),
    )


def _read(text: str) -> tuple[str, tuple[Metric, ...], bool]:
    """The scenario, the metrics, and whether the output is whole."""
    if is_bench(text):
        return "bench", bench_metrics(bench_rows(text)), True
    if is_batched(text):
        return "batched-bench", batched_metrics(batched_rows(text)), True
    if has_multiple_choice(text):
        metrics = (*multiple_choice_metrics(text), *timing_metrics(text, verbosity=3))
        return "multiple-choice", metrics, multiple_choice_complete(text)
    if has_perplexity(text):
        return (
            "perplexity",
            (*perplexity_metrics(text), *timing_metrics(text, verbosity=3)),
            perplexity_complete(text),
        )
    if has_quantization(text):
        return "quantize", quantization_metrics(text), quantization_complete(text)
    if has_timings(text):
        return "generate", timing_metrics(text), timings_complete(text)
    raise ParseError("no output of llama.cpp's tools")


def _recognise_file(path: Path) -> bool:
    try:
        if path.suffix.lower() not in _ENDINGS:
            return False
        size = path.stat().st_size
        text = plain(beginning(path, _HEAD_BYTES if size > _SIZE_LIMIT else _SIZE_LIMIT))
    except OSError:
        return False
    checks = (is_bench, is_batched, has_multiple_choice, has_perplexity, has_quantization, has_timings)
    return any(check(text) for check in checks)


def recognise(path: Path) -> bool:
    """Whether the path is such output, or a folder with some below."""
    return any(map(_recognise_file, files_in(path)))


def parse(path: Path) -> list[ParsedOutput]:
    """All such output in a file or a tree.

    Raises:
        ParseError: if there is none, or one holds none of its numbers.
    """
    found = parse_files(
        path,
        "llama.cpp's tools",
        _recognise_file,
        lambda file: parse_text(beginning(file, _SIZE_LIMIT), str(file)),
    )
    if len(found) == 1:
        return [found[0][1]]
    return [_below(output, file.relative_to(path).with_suffix("").as_posix()) for file, output in found]


def _below(output: ParsedOutput, name: str) -> ParsedOutput:
    metrics = tuple(
        replace(metric, scenario=f"{name}/{metric.scenario}") if metric.scenario else metric
        for metric in output.metrics
    )
    return replace(output, scenario=f"{name}/{output.scenario}", metrics=metrics)


PARSER = Parser(
    name=FORMAT,
    description="llama.cpp's tools: timings, multiple choice, perplexity, quantize, bench, batched-bench",
    recognise=recognise,
    parse=parse,
)
