"""llama-bench as JSON, JSON lines or CSV, and llama-batched-bench as JSON lines or as its table.

Sources: tools/llama-bench/llama-bench.cpp (fields of ``test``), tools/batched-bench/batched-bench.cpp.
"""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from agent.core.records import MetadataValue, Metric, Relativity
from parsers.llamacpp.numbers import count, finite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["batched_metrics", "batched_rows", "bench_metrics", "bench_rows", "is_batched", "is_bench"]

_BENCH_KEYS = {"n_prompt", "n_gen", "avg_ts", "model_filename"}
_BATCHED_KEYS = {"pp", "tg", "pl", "speed_pp", "speed_tg"}
_TABLE = ("pp", "tg", "pl", "n_kv", "t_pp", "speed_pp", "t_tg", "speed_tg", "t", "speed")
_TABLE_ROW = re.compile(r"^\|(?:\s*[\d.]+(?:e\+?\d+)?\s*\|){10}\s*$", re.MULTILINE)
_CONTEXT = (
    "model_type", "cpu_info", "gpu_info", "backends", "n_threads", "n_gpu_layers", "n_batch", "n_ubatch",
    "type_k", "type_v", "flash_attn", "split_mode", "use_mmap",
)  # fmt: skip
_PARTS = (
    ("prompt_tokens_per_second", "speed_pp", "tokens/s", Relativity.HIGHER, 1),
    ("generation_tokens_per_second", "speed_tg", "tokens/s", Relativity.HIGHER, 1),
    ("tokens_per_second", "speed", "tokens/s", Relativity.HIGHER, 2),
    ("prompt_time", "t_pp", "seconds", Relativity.LOWER, 2),
    ("generation_time", "t_tg", "seconds", Relativity.LOWER, 2),
    ("total_time", "t", "seconds", Relativity.LOWER, 2),
)

Row = dict[str, Any]


def bench_rows(text: str) -> list[Row]:
    """The tests of llama-bench's output, in whichever of its three formats.

    Other lines, such as those of its standard error, are passed over.

    Raises:
        ParseError: if JSON is cut.
    """
    start = re.search(r"^\[\s*$", text, re.MULTILINE)
    if start:
        try:
            rows, _ = json.JSONDecoder().raw_decode(text[start.start() :])
        except ValueError as error:
            raise ParseError(f"llama-bench's JSON was cut: {error}") from error
        return [row for row in rows if isinstance(row, dict) and row.keys() >= _BENCH_KEYS]
    lines = [row for row in _json_lines(text) if row.keys() >= _BENCH_KEYS]
    head = re.search(r"^build_commit,.*$", text, re.MULTILINE)
    if lines or not head:
        return lines
    table = csv.DictReader(io.StringIO(text[head.start() :]))
    return [dict(row) for row in table if None not in row.values()]


def batched_rows(text: str) -> list[Row]:
    """The rows of llama-batched-bench's output."""
    rows = [row for row in _json_lines(text) if row.keys() >= _BATCHED_KEYS]
    return rows or [
        dict(zip(_TABLE, (finite(cell) for cell in match.group().strip(" |\r\n").split("|")), strict=True))
        for match in _TABLE_ROW.finditer(text)
    ]


def is_bench(text: str) -> bool:
    """Whether a text is llama-bench's output."""
    return bool(
        re.search(r'^\s*\{?\s*"build_commit": ', text, re.MULTILINE)
        or re.search(r"^build_commit,", text, re.MULTILINE)
    )


def is_batched(text: str) -> bool:
    """Whether a text is llama-batched-bench's output."""
    return bool(re.search(r'"speed_pp":', text) or re.search(r"^\|\s*PP \|\s*TG \|", text, re.MULTILINE))


def bench_metrics(rows: Iterable[Mapping[str, Any]], prefix: str = "") -> tuple[Metric, ...]:
    """tokens/s of each test with its standard deviation, in a scenario of its own.

    Args:
        rows: as bench_rows gives them.
        prefix: what the scenarios begin with, such as ``smollm2-135m/F16/bench/``.

    Raises:
        ParseError: if no test has a rate, or a length is no number.
    """
    metrics = [metric for row in rows for metric in _bench(row, prefix)]
    if not metrics:
        raise ParseError("llama-bench's output holds no test with a rate")
    return tuple(metrics)


def _bench(row: Mapping[str, Any], prefix: str) -> Iterator[Metric]:
    prompt, generated, depth = (count(row.get(name)) for name in ("n_prompt", "n_gen", "n_depth"))
    rate, deviation = (finite(row.get(name)) for name in ("avg_ts", "stddev_ts"))
    if prompt and generated:
        what, case = "", f"pp{prompt}+tg{generated}"
    elif generated:
        what, case = "generation_", f"tg{generated}"
    else:
        what, case = "prompt_", f"pp{prompt}"
    case += f"@d{depth}" if depth else ""
    metadata: dict[str, MetadataValue] = {"n_prompt": prompt, "n_gen": generated, "n_depth": depth}
    metadata |= {name: row[name] for name in _CONTEXT if isinstance(row.get(name), (str, int, float))}
    if not rate:
        return
    name, scenario = f"{what}tokens_per_second", f"{prefix}{case}"
    yield Metric(name, rate, "tokens/s", Relativity.HIGHER, metadata=metadata, scenario=scenario)
    if deviation is not None:
        description = "standard deviation of the repetitions"
        yield Metric(
            f"{name}_stddev", deviation, "tokens/s", Relativity.LOWER, description, 3, scenario=scenario
        )


def batched_metrics(rows: Iterable[Mapping[str, Any]], prefix: str = "") -> tuple[Metric, ...]:
    """Rates and times of each number of sequences at once, in a scenario of its own: ``pp256-tg64-b4``.

    Args:
        rows: as batched_rows gives them.
        prefix: what the scenarios begin with.

    Raises:
        ParseError: if there is no row: each is passed over without a word where the context is too small; or
            if a length is no number.
    """
    metrics = []
    for row in rows:
        prompt, generated, batch = (count(row[name]) for name in ("pp", "tg", "pl"))
        metadata: dict[str, MetadataValue] = {"n_prompt": prompt, "n_gen": generated, "sequences": batch}
        for name, key, unit, relativity, verbosity in _PARTS:
            value = finite(row.get(key))
            if value:
                metrics.append(
                    Metric(
                        name,
                        value,
                        unit,
                        relativity,
                        verbosity=verbosity,
                        metadata=metadata,
                        scenario=f"{prefix}pp{prompt}-tg{generated}-b{batch}",
                    )
                )
    if not metrics:
        raise ParseError(
            "llama-batched-bench's output holds no row",
            remedy="raise the context: it must hold all sequences with prompt and output",
        )
    return tuple(metrics)


def _json_lines(text: str) -> Iterator[Row]:
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row
