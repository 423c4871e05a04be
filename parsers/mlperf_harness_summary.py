"""Reads ``perf_harness_summary.json`` and ``accuracy_summary.json`` of NVIDIA's MLPerf harness up to v3.0.

Both map configurations to benchmarks to one sentence (inference_results_v0.7 to v3.0, closed/NVIDIA,
code/main.py and code/common/harness.py); a configuration's name ends with the scenario. A run writes both
files. The file of the other mode states that it does not contain a result.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Parser
from parsers.json_text import read_json
from parsers.mlperf_metadata import TOOL, judge_accuracy, judge_performance
from parsers.trees import files_in, parse_files, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FORMAT = "mlperf_harness_summary"
PERFORMANCE_NAME = "perf_harness_summary.json"
ACCURACY_NAME = "accuracy_summary.json"
NAMES = (PERFORMANCE_NAME, ACCURACY_NAME)

_KEYS = {
    "samples per second": "result_samples_per_second",
    "scheduled samples per second": "result_scheduled_samples_per_sec",
    "completed samples per second": "result_completed_samples_per_sec",
    "90th percentile latency (ns)": "result_90.00_percentile_latency_ns",
    "99th percentile latency (ns)": "result_99.00_percentile_latency_ns",
}
"""Name in LoadGen's summary, and key in its detail log."""

_LONGEST = 4000
"""Most characters of a sentence: the time of the patterns below grows with the square of the length."""
_PERFORMANCE = re.compile(
    r"(?P<key>[^:]+?)\s*:\s*(?P<value>[-+.\deE]+)(?:,| and) Result is\s*:?\s*(?P<validity>\w+)"
)
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_ACCURACY = re.compile(
    rf"(?P<name>[\w -]+?)\s*[=:]\s*(?P<value>{_NUMBER})\s*[,(]\s*"
    rf"(?:Threshold\s*=\s*(?P<threshold>{_NUMBER})"
    rf"|Valid Range\s*=\s*\[\s*(?P<least>{_NUMBER})\s*,\s*(?P<most>{_NUMBER})\s*\])"
)
_NO_RESULT = f"no {PERFORMANCE_NAME} or {ACCURACY_NAME} with a result here or in any folder below"
_REMEDY = "the harness writes both below build/logs when a run ends"
_PARTS = " | "
"""Separator between the metrics of a sentence (code/actionhandler/run_harness.py)."""

_OTHER_MODE = (
    "AccuracyOnly mode",
    "PerformanceOnly mode",
    "Cannot find accuracy JSON",
    "Cannot find performance",
)


def parse_summary(text: str, source: str = "") -> list[ParsedOutput]:
    """Return the results of one file, without the placeholders of the other mode.

    Args:
        text: the file's text.
        source: the file that the text comes from, for errors.

    Raises:
        ParseError: if the file is incomplete, is not such a file, or has a sentence without its numbers.
    """
    try:
        data = read_json(text)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"is not JSON or incomplete: {str(error)[:200]}", where=source or None) from error
    if not _is_summary(data):
        raise ParseError("is not a summary of the harness", where=source or None)
    outputs = []
    for configuration, benchmarks in data.items():
        for name, sentence in benchmarks.items():
            if not any(other in sentence for other in _OTHER_MODE):
                outputs.append(_output(configuration, name, sentence, source))
    return outputs


def _is_summary(data: object) -> bool:
    return (
        isinstance(data, dict)
        and bool(data)
        and all(
            isinstance(benchmarks, dict) and all(isinstance(one, str) for one in benchmarks.values())
            for benchmarks in data.values()
        )
    )


def _output(configuration: str, name: str, sentence: str, source: str) -> ParsedOutput:
    about: dict[str, Any] = {
        "benchmark_full": name,
        "config_name": configuration,
        "scenario": configuration.rpartition("-")[2],
        "summary_string": sentence,
    }
    if len(sentence) > _LONGEST:
        raise ParseError(f"the sentence of {name[:200]} has {len(sentence)} characters", where=source or None)
    if len(found := list(_PERFORMANCE.finditer(sentence))) > 1:
        raise ParseError(f"the sentence of {name} contains {len(found)} results", where=source or None)
    if found:
        match = found[0]
        key = match["key"].strip()
        key = _KEYS.get(key.lower(), key)
        values = {"scenario_key": key, key: match["value"], "result_validity": match["validity"]}
        metrics, verdict = judge_performance({**about, **values}, source)
        what = "performance"
    elif _ACCURACY.search(sentence):
        entries = list(_accuracies(sentence))
        metrics, verdict = judge_accuracy({**about, "accuracy": entries}, source)
        what = "accuracy"
    else:
        raise ParseError(f"the result of {name} has no numbers: {sentence[:200]}", where=source or None)
    return ParsedOutput(
        format=FORMAT,
        tool_name=TOOL,
        scenario=f"{name}/{about['scenario']}/{what}",
        metrics=metrics,
        verdict=verdict,
        details=about,
        sources=(source,) if source else (),
    )


def _accuracies(sentence: str) -> Iterator[Mapping[str, Any]]:
    """Yield an entry for each metric, as in metadata.json; an unreadable entry has no value and fails."""
    for part in sentence.split(_PARTS):
        match = _ACCURACY.search(part)
        if match is None:
            yield {"name": part.strip(), "pass": False}
            continue
        entry = {
            "name": match["name"].strip(),
            "value": match["value"],
            "threshold": match["threshold"] or match["least"],
            "pass": "PASSED" in part and "FAILED" not in part,
        }
        yield entry | ({"upper_limit": match["most"]} if match["most"] else {})


def _is_summary_file(path: Path) -> bool:
    return path.name in NAMES


def recognise(path: Path) -> bool:
    """Return True if the path is such a file, or a folder that contains one at any depth."""
    return any(map(_is_summary_file, files_in(path)))


def parse(path: Path) -> list[ParsedOutput]:
    """Return the results of a file, or of all such files in a tree.

    A run writes both files; the file of the other mode has no result and is ignored.

    Raises:
        ParseError: if there is no file, the only one is incomplete, or none has a result.
    """
    outputs = parse_files(path, FORMAT, TOOL, _is_summary_file, _of_its_mode, always=False)
    if not outputs:
        raise ParseError(_NO_RESULT, where=str(path), remedy=_REMEDY)
    return outputs


def _of_its_mode(path: Path) -> list[ParsedOutput]:
    return parse_summary(text_of(path), str(path))


PARSER = Parser(
    name=FORMAT,
    description=f"{PERFORMANCE_NAME} and {ACCURACY_NAME} of NVIDIA's MLPerf harness up to v3.0",
    recognise=recognise,
    parse=parse,
)
