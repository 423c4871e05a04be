"""Reads llama-bench in its five formats, and llama-batched-bench as JSON lines or as its table.

Sources: tools/llama-bench/llama-bench.cpp (fields of ``test``, the printers), and
tools/batched-bench/batched-bench.cpp.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from agent.core.records import MetadataValue, Metric, Relativity
from parsers.json_text import DECODER, read_json
from parsers.llamacpp.bench_arithmetic import check_batched, check_bench
from parsers.llamacpp.bench_tables import is_markdown, markdown_complete, markdown_rows, table_cells
from parsers.numbers import count, measured

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_BENCH_KEYS = {"n_prompt", "n_gen", "avg_ts", "model_filename"}
_BATCHED_KEYS = {"pp", "tg", "pl", "speed_pp", "speed_tg"}
_TABLE = ("pp", "tg", "pl", "n_kv", "t_pp", "speed_pp", "t_tg", "speed_tg", "t", "speed")
_TABLE_HEAD = re.compile(r"^\|\s*PP \|\s*TG \|", re.MULTILINE)
_CSV_HEAD = "build_commit,"
_JSON_HEAD = re.compile(r'^[ \t]*\{?[ \t]*"build_commit": ', re.MULTILINE)
_SQL_HEAD = r"INSERT INTO (?:llama_bench|test) \((?=build_commit, )"  # "test" until 2025
_SQL = re.compile(rf"{_SQL_HEAD}(?P<names>[^()]*)\) VALUES \((?P<values>.*)\);\s*")
_SQL_VALUE = re.compile(r"'((?:[^']|'')*)'(?:, |$)")
_CONTEXT = (
    "model_type", "cpu_info", "gpu_info", "backends", "n_threads", "n_gpu_layers", "n_batch", "n_ubatch",
    "type_k", "type_v", "flash_attn", "split_mode", "use_mmap",
)  # fmt: skip
_MEASURED = re.compile(r"(?:avg|stddev|samples|t|speed)_\w+|test_time|t|speed")
"""Columns that hold measurements; the other columns distinguish one test from another."""
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
    """Return the tests of all runs of llama-bench in a text, in any of its formats.

    Other lines, such as those of its standard error, are ignored.

    Raises:
        ParseError: if the JSON is incomplete, or a row does not fit its header.
    """
    rows = [*_json_arrays(text), *_json_lines(text, _BENCH_KEYS, '{"build_commit"')]
    return [*rows, *_csv_rows(text), *_sql_rows(text), *markdown_rows(text)]


def bench_complete(text: str) -> bool:
    """Return True if llama-bench ended normally: its table ends with the build; other formats have no end."""
    return markdown_complete(text)


def batched_rows(text: str) -> list[Row]:
    """Return the rows of llama-batched-bench's output.

    Raises:
        ParseError: if a row of its table does not fit the header.
    """
    rows: list[Row] = list(_json_lines(text, _BATCHED_KEYS, '{"n_kv_max"'))
    inside = False
    for line in text.splitlines():
        if _TABLE_HEAD.match(line):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and (cells := table_cells(line, len(_TABLE))):
            rows.append(dict(zip(_TABLE, cells, strict=True)))
    return rows


def is_bench(text: str) -> bool:
    """Return True if a text is llama-bench's output."""
    return bool(
        _JSON_HEAD.search(text)
        or re.search(rf"^(?:{_CSV_HEAD}|{_SQL_HEAD})", text, re.MULTILINE)
        or is_markdown(text)
    )


def is_batched(text: str) -> bool:
    """Return True if a text is llama-batched-bench's output."""
    return bool(re.search(r'"speed_pp":', text) or _TABLE_HEAD.search(text))


def bench_metrics(rows: Iterable[Mapping[str, Any]], prefix: str = "") -> tuple[Metric, ...]:
    """Return the tokens/s of each test with their standard deviation; each test has a scenario of its own.

    Args:
        rows: as returned by `bench_rows`.
        prefix: the beginning of the scenarios' names, such as ``smollm2-135m/F16/bench/``.

    Raises:
        ParseError: if no test has a rate, or a length is not a number.
    """
    kept = list(rows)
    cases = _distinct([_bench_case(row) for row in kept], kept)
    metrics = [
        metric for row, case in zip(kept, cases, strict=True) for metric in _bench(row, f"{prefix}{case}")
    ]
    if not metrics:
        raise ParseError("llama-bench's output holds no test with a rate")
    return tuple(metrics)


def _lengths(row: Mapping[str, Any]) -> tuple[int, int, int]:
    prompt, generated, depth = (count(row.get(name)) for name in ("n_prompt", "n_gen", "n_depth"))
    return prompt, generated, depth


def _bench_case(row: Mapping[str, Any]) -> str:
    prompt, generated, depth = _lengths(row)
    parts = [f"pp{prompt}"] if prompt or not generated else []
    parts += [f"tg{generated}"] if generated else []
    return "+".join(parts) + (f"@d{depth}" if depth else "")


def _bench(row: Mapping[str, Any], scenario: str) -> Iterator[Metric]:
    prompt, generated, depth = _lengths(row)
    what = "" if prompt and generated else "generation_" if generated else "prompt_"
    rate, deviation = (measured(row.get(name), name) for name in ("avg_ts", "stddev_ts"))
    metadata: dict[str, MetadataValue] = {"n_prompt": prompt, "n_gen": generated, "n_depth": depth}
    check_bench(row, prompt + generated)
    metadata |= {name: row[name] for name in _CONTEXT if isinstance(row.get(name), (str, int, float))}
    if not rate:
        return
    name = f"{what}tokens_per_second"
    yield Metric(name, rate, "tokens/s", Relativity.HIGHER, metadata=metadata, scenario=scenario)
    if deviation is not None:
        text = "standard deviation of the repetitions"
        yield Metric(
            f"{name}_stddev", deviation, "tokens/s", Relativity.LOWER, text, 3, (), metadata, scenario
        )


def batched_metrics(rows: Iterable[Mapping[str, Any]], prefix: str = "") -> tuple[Metric, ...]:
    """Return rates and times for each number of concurrent sequences, in its own scenario: ``pp256-tg64-b4``.

    Args:
        rows: as returned by `batched_rows`.
        prefix: the beginning of the scenarios' names.

    Raises:
        ParseError: if there is no row (the tool silently skips a row if the context is too small), or a
            length is not a number.
    """
    kept = list(rows)
    lengths = [tuple(count(row[name]) for name in ("pp", "tg", "pl")) for row in kept]
    cases = _distinct([f"pp{prompt}-tg{generated}-b{batch}" for prompt, generated, batch in lengths], kept)
    metrics = []
    for row, (prompt, generated, batch), case in zip(kept, lengths, cases, strict=True):
        check_batched(row, (prompt, generated, batch))
        metadata: dict[str, MetadataValue] = {"n_prompt": prompt, "n_gen": generated, "sequences": batch}
        for name, key, unit, relativity, verbosity in _PARTS:
            if value := measured(row.get(key), key):
                metrics.append(
                    Metric(
                        name,
                        value,
                        unit,
                        relativity,
                        verbosity=verbosity,
                        metadata=metadata,
                        scenario=f"{prefix}{case}",
                    )
                )
    if not metrics:
        raise ParseError(
            "llama-batched-bench's output holds no row",
            remedy="raise the context: it must have room for the prompt and output of all sequences",
        )
    return tuple(metrics)


def _distinct(cases: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the cases; a case that occurs more than once gets the columns that distinguish its rows."""
    together = Counter(cases)
    varied: dict[str, list[str]] = {}
    for case in (case for case, occurrences in together.items() if occurrences > 1):
        own = [row for row, its_case in zip(rows, cases, strict=True) if its_case == case]
        names = [name for name in own[0] if not _MEASURED.fullmatch(name)]
        varied[case] = [name for name in names if len({str(row.get(name)) for row in own}) > 1]
    told = [
        "/".join((case, *(f"{name}={str(row.get(name))[:60]}" for name in varied.get(case, ()))))
        for case, row in zip(cases, rows, strict=True)
    ]
    repeated, seen = Counter(told), Counter[str]()
    for place, case in enumerate(told):
        if repeated[case] > 1:
            seen[case] += 1
            told[place] = f"{case}/run-{seen[case]}"
    return told


def _json_arrays(text: str) -> Iterator[Row]:
    """Yield the tests of every array. If two runs write to one file, one array follows the other."""
    place = 0
    start = re.compile(r"^\[\s*$", re.MULTILINE)
    while match := start.search(text, place):
        try:
            rows, place = DECODER.raw_decode(text, match.start())
        except (ValueError, RecursionError) as error:
            raise ParseError(f"llama-bench's JSON was cut, or is ambiguous: {error}") from error
        yield from (row for row in rows if isinstance(row, dict) and row.keys() >= _BENCH_KEYS)


def _json_lines(text: str, keys: set[str], begins: str) -> Iterator[Row]:
    for line in text.splitlines():
        # The two outputs of a program share a log: an unterminated message may stand before a row.
        start = 0 if line.startswith("{") else line.find(begins)
        if start < 0:
            continue
        try:
            row = read_json(line[start:])
        except (ValueError, RecursionError) as error:
            if line.startswith(begins, start):
                raise ParseError(
                    f"a line of JSON was cut, or is ambiguous ({error}): {line[start : start + 60]}…"
                ) from error
            continue
        if isinstance(row, dict) and row.keys() >= keys:
            yield row


def _csv_rows(text: str) -> Iterator[Row]:
    names: list[str] = []
    for line in text.splitlines():
        if line.startswith(_CSV_HEAD):
            names = line.split(",")
        elif names and line.startswith('"'):
            try:
                cells = next(csv.reader([line], strict=True))
            except csv.Error as error:
                raise ParseError(f"a row of llama-bench's CSV is broken: {error}") from error
            yield _row(names, cells)


def _sql_rows(text: str) -> Iterator[Row]:
    for line in text.splitlines():
        if not re.match(_SQL_HEAD, line):
            continue
        match = _SQL.fullmatch(line)
        if match is None or _SQL_VALUE.sub("", match["values"]):
            raise ParseError(f"a statement of llama-bench's SQL is broken: {line[:60]}…")
        values = [value.replace("''", "'") for value in _SQL_VALUE.findall(match["values"])]
        yield _row(match["names"].split(", "), values)


def _row(names: list[str], cells: list[str]) -> Row:
    if len(cells) != len(names):
        raise ParseError(
            f"a row has {len(cells)} cells, its header {len(names)}",
            remedy="see whether lines were lost or the file was changed",
        )
    return dict(zip(names, cells, strict=True))
