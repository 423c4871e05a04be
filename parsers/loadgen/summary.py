"""Reads ``mlperf_log_summary.txt``: the same run as text, with two decimals.

Wording varies with LoadGen's version (``Yes``/``NO``, ``satisfied:``/``satisfied :``, ``90th``/``90.0th``,
"Time to" and "Time per Output Token"); an accuracy run's summary holds only the warning and error lines
(mlcommons/inference, loadgen/results.cc and logging.cc).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from parsers.loadgen.versions import LINES, STREAMS, Kind
from parsers.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SUMMARY_NAME = "mlperf_log_summary.txt"
TITLE = "MLPerf Results Summary"
_SIZE_LIMIT = 1 << 20  # a summary is 4 KB

_BY_NAME = {line.name: line for line in LINES}
_MODES_BEFORE_1_0 = {"Performance", "Accuracy", "Submission", "Find Peak Performance"}
_PER_QUERY, _PER_SAMPLE = "per-query latency", "per-sample latency"
_TARGET = re.compile(r"(\d{1,3}(?:\.\d)?)th (first token )?percentile latency \(ns\)")
_ROUNDED = 0.5  # a percentile is written without decimals until 5.0.14
_ESTIMATE = re.compile(r"Early stopping (\d{1,3}(?:\.\d)?)th percentile estimate: (\d{1,19})\b")
_COUNT = re.compile(
    r"(no|\d+) (errors?|warnings?) encountered(?: during test\.|\. See detailed log\.)", re.IGNORECASE
)
_PERCENTILE_KEY = "effective_target_latency_percentile"
_EXPONENT = 3  # signs of an exponent that a float can have, such as -12
_HEADERS = {"scenario", "mode", "result is"}
_SWITCHES = {"print_timestamps", "performance_issue_unique", "performance_issue_same"}
_MET = {"yes": True, "no": False}
_ON = {"true": True, "false": False, "1": True, "0": False}


@dataclass(slots=True)
class SummaryLog:
    """Content of one summary.

    Args:
        path: the file.
        titles: number of titles: one per run.
        said: each line in the table of versions, with its texts; ``per-query latency/…`` below that.
        validity: VALID or INVALID, empty if missing (accuracy runs, incomplete files).
        scenario: the scenario's name as LoadGen writes it.
        mode: the mode's name as LoadGen writes it.
        sut_name: the name of the system under test.
        flags: constraints met or missed and other truth values, under the detail log's keys.
        numbers: numbers, under the detail log's keys.
        halves: for a number with a point, half a unit of its last digit.
        texts: LoadGen's texts on early stopping, under the detail log's keys.
        errors: number of errors; None if the file ends before that line.
        warnings: number of warnings.
        endings: number of lines that give the number of errors: one per run.
    """

    path: Path
    titles: int = 0
    said: dict[str, list[str]] = field(default_factory=dict)
    validity: str = ""
    scenario: str = ""
    mode: str = ""
    sut_name: str = ""
    flags: dict[str, bool] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    halves: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    errors: int | None = None
    warnings: int | None = None
    endings: int = 0

    @property
    def complete(self) -> bool:
        """True if the file has its last line, the number of errors."""
        return self.errors is not None

    @property
    def is_before_1_0(self) -> bool:
        """True if LoadGen 0.5 or 0.7 wrote it; these use other names for modes and scenarios."""
        return self.mode in _MODES_BEFORE_1_0

    @property
    def is_of_accuracy_run(self) -> bool:
        """True if it is complete and contains only the numbers of warnings and errors."""
        return self.complete and not self.titles and not self.said

    @property
    def token_latencies(self) -> bool:
        """True if LoadGen measured tokens."""
        return any(line.tokens and line.name in self.said for line in LINES)

    @property
    def scheduled_is_first(self) -> bool:
        """True if the scheduled rate is the headline, as in LoadGen up to 3.1."""
        names = list(self.said)
        first = next((name for name in names if name.endswith("samples per second")), "")
        return first == "scheduled samples per second"

    def names(self) -> set[str]:
        """Return the names of the lines in all sections."""
        return {name.rpartition("/")[2] if name.startswith(_PER_QUERY) else name for name in self.said}

    def results(self) -> Mapping[str, float]:
        """Return the measured numbers, without settings."""
        return {key: value for key, value in self.numbers.items() if key.startswith("result_")}


def read_summary(path: Path) -> SummaryLog:
    """Read a summary.

    Raises:
        ParseError: if the file cannot be read or is not a LoadGen summary.
    """
    try:
        with path.open("rb") as file:
            text = plain(file.read(_SIZE_LIMIT).decode("utf-8", "replace"))
    except OSError as error:
        raise ParseError(f"cannot read the summary: {error.strerror}", where=str(path)) from error
    log = SummaryLog(path)
    place = ""
    lines = iter(text.split("\n"))
    for line in lines:
        stripped = line.strip()
        if stripped == TITLE:
            log.titles += 1
            place = ""
        elif counted := _COUNT.fullmatch(stripped):
            _count(log, counted)
        name, separator, value = (part.strip() for part in line.partition(":"))
        name = name.lower()
        if name.endswith("early stopping result") and separator:
            place = ""
            _take_early_stopping(log, name, lines)
        elif name in {_PER_QUERY, _PER_SAMPLE}:
            place = f"{name}/" if name == _PER_QUERY else ""
            log.said.setdefault(name, []).append(value)
        elif separator:
            _take(log, name, value, place)
    if not (log.numbers or log.validity or log.complete):
        raise ParseError("is not a LoadGen summary, or it ends before any number", where=str(path))
    return log


def _count(log: SummaryLog, counted: re.Match[str]) -> None:
    number = 0 if counted[1].lower() == "no" else int(counted[1][:18])
    if counted[2].lower().startswith("error"):
        log.errors = max(number, log.errors or 0)
        log.endings += 1
    else:
        log.warnings = number


def _take_early_stopping(log: SummaryLog, heading: str, lines: Iterator[str]) -> None:
    """Take the text below a heading, and any headings that follow it."""
    texts: dict[str, list[str]] = {heading: []}
    for line in lines:
        if line.startswith("==="):
            break
        name, separator, _ = line.strip().lower().partition(":")
        if separator and name.endswith("early stopping result"):
            heading = name
            texts.setdefault(heading, [])
            continue
        texts[heading].append(line)
    for name, parts in texts.items():
        text = " ".join(" ".join(parts).split())
        log.said.setdefault(name, []).append(text)
        if line_of := _BY_NAME.get(name):
            log.texts[line_of.key] = text
    text = log.texts.get("early_stopping_ttft_result") or log.texts.get("early_stopping_result", "")
    log.numbers |= estimates_in(text, log.scenario, log.numbers.get(_PERCENTILE_KEY))


def estimates_in(text: str, scenario: str, percentile: float | None) -> dict[str, int]:
    """Return the scores of SingleStream and MultiStream in early stopping's text, by key.

    Args:
        text: such as ``Early stopping 90th percentile estimate: 63000123``.
        scenario: the run's.
        percentile: the target percentile, such as 0.9; None for the scenario's usual one.
    """
    if scenario not in STREAMS:
        return {}
    is_single = scenario == "SingleStream"
    target = 100 * (percentile or (0.9 if is_single else 0.99))
    estimates = [(float(percent), int(number)) for percent, number in _ESTIMATE.findall(text)]
    found = {}
    if estimates and abs(estimates[0][0] - target) <= _ROUNDED:
        found["early_stopping_latency_ss" if is_single else "early_stopping_latency_ms"] = estimates.pop(0)[1]
    if estimates and is_single:  # 99th percentile, for an inferred MultiStream result
        found["early_stopping_latency_ms"] = estimates[0][1]
    return found


def _take(log: SummaryLog, name: str, value: str, place: str) -> None:
    if name == "sut name":
        log.sut_name = value
        return
    full_name = name
    name, key = _named(log, name)
    line = _BY_NAME.get(name)
    if line is None:
        return
    if name.startswith("#") and (found := _TARGET.fullmatch(full_name)):
        log.numbers[_PERCENTILE_KEY] = round(float(found[1]) / 100, 6)
        log.halves[_PERCENTILE_KEY] = 0.0005 if "." in found[1] else 0.005
    key = key or line.key
    if place and line.kind is Kind.LATENCY and not line.tokens:  # those of tokens are of samples
        key, name = _per_query(key), place + name
    log.said.setdefault(name, []).append(value)
    if name in _HEADERS:
        _take_header(log, name, value)
    elif line.kind is Kind.FLAG or name in _SWITCHES:
        if (flag := (_MET if line.kind is Kind.FLAG else _ON).get(value.lower())) is not None:
            log.flags[key] = flag
    elif key and (number := _number(value)) is not None:
        log.numbers[key] = number
        if isinstance(number, float):
            log.halves[key] = _half_unit(value)


def _take_header(log: SummaryLog, name: str, value: str) -> None:
    if name == "scenario":
        log.scenario = value.replace(" ", "")
    elif name == "mode":
        log.mode = value
    elif value in {"VALID", "INVALID"}:
        log.validity = value


def _named(log: SummaryLog, name: str) -> tuple[str, str]:
    """Return the line's name in the table of versions, and the key for a name with the target percentile."""
    found = _TARGET.fullmatch(name)
    if found is None:
        return name, ""
    percent, first = found[1], found[2] or ""
    key = f"{float(percent):.2f}_percentile_latency_ns"
    key = f"result_first_token_{key}" if first else f"result_{key}"
    if log.scenario == "MultiStream" and not first:
        key = _per_query(key)
    return f"{'#.#' if '.' in percent else '#'}th {first}percentile latency (ns)", key


def _per_query(key: str) -> str:
    """Return the key of MultiStream's latencies; the summary uses the same names for samples."""
    if "percentile" in key:
        return key.replace("percentile_latency", "percentile_per_query_latency")
    return key.replace("_latency_ns", "_query_latency_ns")


def _number(value: str) -> float | None:
    """Return a finite number (an int if it is whole), or None."""
    try:
        return int(value) if re.fullmatch(r"-?\d{1,20}", value) else _finite(float(value))
    except ValueError:
        return None


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _half_unit(text: str) -> float:
    """Return half a unit of the last digit: 0.005 for 13.25."""
    mantissa, _, exponent = text.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 0.5 * 10.0 ** (int(exponent or 0) - decimals) if len(exponent) <= _EXPONENT else 0.0
