"""Outputs of every format, and damage to files: cuts, joins, wrong numbers, wrong encodings.

Tests and ``benchmarks/parser_fuzz.py`` use it. Every mangled input is determined by its number, so that a
failing one can be made again.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

from agent.cli.parse import _as_dict, _case
from agent.component.parsing import parse_path
from agent.core.errors import VcagentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.core.records import ParsedOutput

__all__ = ["MANGLERS", "READERS", "RUNNING", "mangled", "named_values", "originals", "outcome", "parsed"]

HERE = Path(__file__).parent
_FOLDERS = (
    "amd_smi/outputs", "rocm_smi/outputs", "llamacpp/logs", "llamacpp/pasted",
    "llamacpp_server/replies", "llamacpp_server/counters",
    "lm_eval", "lm_eval/tables", "locust/tables/2_20", "locust/tables/2_47_died", "mlperf_accuracy",
    "nvidia_smi/outputs", "vllm",
)  # fmt: skip
_NOT_INPUTS = {".py", ".pyc"}
_HARNESS: dict[str, object] = {
    "metadata.json": {
        "benchmark_full": "3d-unet-99",
        "config_name": "X_TRT-custom_k_99_MaxP-Offline",
        "early_stopping_met": True,
        "effective_min_duration_ms": 600000,
        "result_samples_per_second": 3.83,
        "result_validity": "VALID",
        "scenario": "Offline",
        "scenario_key": "result_samples_per_second",
        "summary_string": "result_samples_per_second: 3.83, VALID, 10-min runtime requirement met: True",
        "tensorrt_version": "10.2.0",
        "test_mode": "PerformanceOnly",
    },
    "accuracy_metadata.json": {
        "benchmark_full": "3d-unet-99",
        "scenario": "Offline",
        "scenario_key": "result_samples_per_second",
        "accuracy": [{"name": "DICE", "pass": True, "threshold": 0.853, "value": 0.86172}],
        "accuracy_pass": True,
        "test_mode": "AccuracyOnly",
    },
    "perf_harness_summary.json": {
        "DGX-A100_A100-SXM4-40GBx8_TRT-default-Offline": {
            "bert": "result_samples_per_second: 30102.1, Result is VALID"
        }
    },
    "accuracy_summary.json": {
        "DGX-A100_A100-SXM4-40GBx8_TRT-default-Offline": {
            "bert": "[PASSED] F1: 90.215 (Threshold=89.965) | [PASSED] ROUGE1: 43.102 (Threshold=42.944)"
        }
    },
}
"""Files of NVIDIA's harness, which have no other fixtures."""
READERS = ("amd_smi", "llamacpp", "llamacpp_counters", "llamacpp_reply", "lm_eval", "locust",
           "mlperf_accuracy", "mlperf_harness_summary", "mlperf_metadata", "nvidia_smi",
           "rocm_smi", "vllm_metrics")  # fmt: skip

RUNNING = (
    "perplexity", "perplexity_chunks", "multiple_choice_accuracy", "multiple_choice_tasks",
    "hellaswag_acc_norm", "hellaswag_acc_norm_ci95_low", "hellaswag_acc_norm_ci95_high", "hellaswag_tasks",
    "winogrande_accuracy", "winogrande_tasks", "kl_divergence_mean", "kl_divergence_chunks",
)  # fmt: skip
"""Scores that a log reports after each step; an incomplete log has the last complete one."""


def originals() -> dict[str, bytes]:
    """Return every output by the file name that it gets; the folder in the name keeps it unique."""
    found = {f"harness/{name}": json.dumps(data, indent=1).encode() for name, data in _HARNESS.items()}
    for folder in _FOLDERS:
        for path in sorted((HERE / folder).iterdir()):
            of_its_own = not folder.startswith("locust") or path.name.endswith("_stats.csv")
            if path.is_file() and path.suffix not in _NOT_INPUTS and of_its_own:
                name = "accuracy.txt" if folder == "mlperf_accuracy" else path.name
                found[f"{folder}/{path.stem}/{name}"] = path.read_bytes()
    return found


def parsed(name: str, data: bytes, folder: Path, format_name: str | None = None) -> list[ParsedOutput]:
    """Parse bytes as a file, and write the result as ``vcagent parse`` does; raise VcagentError."""
    path = folder / Path(name).name
    path.write_bytes(data)
    outputs = parse_path(path, format_name)
    json.dumps([_as_dict(output) for output in outputs], allow_nan=False)
    for output in outputs:
        for metric in output.metrics:
            _case(metric)
    return outputs


def named_values(outputs: list[ParsedOutput]) -> set[tuple[str, float, str]]:
    """Return name, value and unit of all metrics, without GPU numbers: a cut list only has the bus id."""
    return {
        (re.sub(r"^gpu(\d+|(_[0-9A-F]+){4})_", "gpu_", metric.name), metric.value, metric.unit)
        for output in outputs
        for metric in output.metrics
    }


def outcome(name: str, data: bytes, folder: Path) -> str:
    """Return the outcome of an input: read, incomplete, judged or refused; raise any forbidden exception."""
    try:
        outputs = parsed(name, data, folder)
    except VcagentError as error:
        str(error)
        return "refused"
    if not outputs:
        raise AssertionError(f"{name}: no output and no error")
    for output in outputs:
        if not output.metrics and output.complete and output.validity is None:
            raise AssertionError(f"{name}: {output.format} is called whole, and is empty")
    if not all(output.complete for output in outputs):
        return "incomplete"
    return "read" if all(output.validity in {None, "VALID"} for output in outputs) else "judged"


def _place(random_numbers: random.Random, data: bytes) -> int:
    return random_numbers.randrange(len(data) + 1)


def _number(random_numbers: random.Random, data: bytes, replacement: bytes) -> bytes:
    """Replace one of the numbers with something else."""
    numbers = list(re.finditer(rb"-?\d+(?:\.\d+)?", data))
    if not numbers:
        return data
    chosen = random_numbers.choice(numbers)
    return data[: chosen.start()] + replacement + data[chosen.end() :]


def _cut(numbers: random.Random, data: bytes) -> bytes:
    return data[: _place(numbers, data)]


def _hole(numbers: random.Random, data: bytes) -> bytes:
    begin = _place(numbers, data)
    return data[:begin] + data[begin + numbers.randrange(1, 200) :]


def _again(_: random.Random, data: bytes) -> bytes:
    return data + data


def _joined(numbers: random.Random, data: bytes) -> bytes:
    return data[: _place(numbers, data)] + data


def _noise(numbers: random.Random, data: bytes) -> bytes:
    begin = _place(numbers, data)
    return data[:begin] + numbers.randbytes(numbers.randrange(1, 40)) + data[begin:]


def _swapped(numbers: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    numbers.shuffle(lines)
    return b"".join(lines)


def _without_a_line(numbers: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    if lines:
        del lines[numbers.randrange(len(lines))]
    return b"".join(lines)


def _replaced(*replacements: bytes) -> Callable[[random.Random, bytes], bytes]:
    return lambda numbers, data: _number(numbers, data, numbers.choice(replacements))


def _word(numbers: random.Random, data: bytes) -> bytes:
    """Remove a key or a word, or replace it with another."""
    words = list(re.finditer(rb"[A-Za-z_]{2,}", data))
    if not words:
        return data
    chosen, other = numbers.choice(words), numbers.choice(words)
    return data[: chosen.start()] + numbers.choice((b"", other.group(), b"null")) + data[chosen.end() :]


def _decimal_commas(_: random.Random, data: bytes) -> bytes:
    return re.sub(rb"(\d)\.(\d)", rb"\1,\2", data)


def _unit(numbers: random.Random, data: bytes) -> bytes:
    units = (b"MiB", b" W", b" C", b"%", b"MHz", b" ms", b"t/s", b"GB/s", b"tokens per second")
    present = [unit for unit in units if unit in data]
    return data.replace(numbers.choice(present), b" furlong") if present else data


def _cells(numbers: random.Random, data: bytes) -> bytes:
    """Give rows one cell more or less."""
    sign = numbers.choice((b",", b"|", b"\t"))
    return (
        data.replace(sign, sign * 2, numbers.randrange(1, 9))
        if numbers.random() < 0.5
        else data.replace(sign, b"", 2)
    )


def _long_field(numbers: random.Random, data: bytes) -> bytes:
    begin = _place(numbers, data)
    return data[:begin] + b'"' + b"x" * 140_000 + b'"' + data[begin:]


def _deep(numbers: random.Random, data: bytes) -> bytes:
    begin = _place(numbers, data)
    return data[:begin] + numbers.choice((b"[", b'{"a":', b"(", b"<a>")) * 50_000 + data[begin:]


def _encoded(numbers: random.Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    choices = (
        b"\xff\xfe" + text.encode("utf-16-le"),
        b"\xfe\xff" + text.encode("utf-16-be"),
        b"\xef\xbb\xbf" + data,
        text.encode("latin-1", "replace"),
        text.encode("cp437", "replace"),
        data.replace(b"\n", b"\r\n"),
        data.replace(b"\n", b"\r"),
        data.replace(b"\n", b"\x1b[0m\n"),
    )
    return numbers.choice(choices)


MANGLERS: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "cut": _cut,
    "hole": _hole,
    "twice": _again,
    "joined": _joined,
    "noise": _noise,
    "swapped lines": _swapped,
    "lost line": _without_a_line,
    "negative": _replaced(b"-1", b"-0.5", b"-99999"),
    "no number": _replaced(
        b"nan", b"inf", b"-nan(ind)", b"NaN", b"Infinity", b"null", b"true", b'"7"', b"[]", b"{}", b"ERR!"
    ),
    "huge": _replaced(b"9" * 400, b"9" * 5000, b"1e308", b"1e999", b"9" * 19, b"0" * 40),
    "other digits": _replaced("²".encode(), "٣".encode(), b"1_000", b"0x1f", b"1.2.3", b"1e"),
    "word": _word,
    "decimal commas": _decimal_commas,
    "unit": _unit,
    "cells": _cells,
    "long field": _long_field,
    "deep": _deep,
    "encoded": _encoded,
}


def mangled(first: int, last: int) -> Iterator[tuple[int, str, str, bytes]]:
    """Yield inputs by their numbers: the number, the original's name, the damage, and the bytes."""
    sources = list(originals().items())
    kinds = list(MANGLERS.items())
    for number in range(first, last):
        numbers = random.Random(number)  # noqa: S311 - mangled files; no secret
        name, data = sources[number % len(sources)]
        kind, mangle = numbers.choice(kinds)
        data = mangle(numbers, data)
        if numbers.random() < 0.3:
            again, mangle = numbers.choice(kinds)
            kind, data = f"{kind}, {again}", mangle(numbers, data)
        yield number, name, kind, data
