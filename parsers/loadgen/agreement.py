"""Checks that detail log and summary belong to the same run, and that the records of one log agree."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from parsers.loadgen.arithmetic import impossible, overflowed
from parsers.loadgen.summary import estimates_in
from parsers.loadgen.versions import RECORDS, Kind, lines_of
from parsers.loadgen.whole import foreign_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from parsers.loadgen.detail import DetailLog
    from parsers.loadgen.summary import SummaryLog

_RECORDS = frozenset(record.name for record in RECORDS)
_LARGEST = 1e25  # beyond the 64 bits of LoadGen's numbers
_STRICT = 1 - 1e-6  # two prints of one number with the same digits are equal
_SHOWN = 40  # characters shown of a value that is not a number
_DIGITS = 6  # LoadGen writes floating-point numbers with six significant digits
_STEPS = ("50.00", "90.00", "95.00", "97.00", "99.00", "99.90")
_ORDERED = (
    ("result_min_latency_ns", "result_{}_percentile_latency_ns", "result_max_latency_ns"),
    (
        "result_min_query_latency_ns",
        "result_{}_percentile_per_query_latency_ns",
        "result_max_query_latency_ns",
    ),
    (
        "result_first_token_min_latency_ns",
        "result_first_token_{}_percentile_latency_ns",
        "result_first_token_max_latency_ns",
    ),
    (
        "result_time_to_output_token_min",
        "result_time_per_output_token_{}_percentile_ns",
        "result_time_to_output_token_max",
    ),
)

_MEANS = (
    ("result_mean_latency_ns", "result_min_latency_ns", "result_max_latency_ns"),
    ("result_mean_query_latency_ns", "result_min_query_latency_ns", "result_max_query_latency_ns"),
    # LoadGen divides by the number of samples, which may be larger than that of these times.
    ("result_first_token_mean_latency_ns", "", "result_first_token_max_latency_ns"),
    ("result_time_to_output_token_mean", "", "result_time_to_output_token_max"),
    # No first token comes after its answer.
    ("result_first_token_mean_latency_ns", "", "result_mean_latency_ns"),
    ("result_first_token_max_latency_ns", "", "result_max_latency_ns"),
)
"""A mean and its bounds, or a number and its upper bound."""


def differences(log: DetailLog, summary: SummaryLog) -> list[str]:
    """Return the contradictions between the summary and the detail log; empty if they agree."""
    return list(_differences(log, summary))


def _differences(log: DetailLog, summary: SummaryLog) -> Iterator[str]:
    if log.mode == "AccuracyOnly":
        if summary.titles or summary.validity:
            yield "the summary is that of a performance run, the detail log that of an accuracy run"
        return
    if summary.is_of_accuracy_run:
        yield "the summary is that of an accuracy run"
        return
    yield from _names_and_form(log, summary)
    yield from _one_sided(log, summary)
    yield from _facts(log, summary)
    yield from _out_of_order(summary.numbers.get)


def _names_and_form(log: DetailLog, summary: SummaryLog) -> Iterator[str]:
    for what, said, logged in (
        ("the verdict", summary.validity, log.text("result_validity")),
        ("the scenario", summary.scenario, log.scenario),
        ("the mode", summary.mode, log.mode),
        ("sut_name", _printable(summary.sut_name), _printable(log.text("sut_name"))),
    ):
        if said and logged and said != logged:
            yield f"{what} is {said} in the summary and {logged} in the detail log"
    if summary.scenario == log.scenario and summary.token_latencies is not log.token_latencies:
        which = "summary" if summary.token_latencies else "detail log"
        yield f"token latencies are in the {which} alone"
    if summary.scenario == log.scenario and (lines := foreign_lines(summary, log.version_parts)):
        yield f"LoadGen {log.version} writes no {', '.join(repr(line) for line in lines)}"


def _facts(log: DetailLog, summary: SummaryLog) -> Iterator[str]:
    for key, flag in summary.flags.items():
        if (other := log.flag(key)) is not None and other is not flag:
            yield f"{key} is {_word(flag=flag)} and {_word(flag=other)}"
    for key, text in summary.texts.items():
        if key in log.values and " ".join(log.text(key).split()) != text:
            yield f"{key} is {text!r} and {' '.join(log.text(key).split())!r}"
    for key, number in summary.numbers.items():
        logged = log.values.get(key)
        if key in log.not_finite:
            yield f"{key} is {number} and not a finite number"
        elif logged is not None and not _same(number, logged, summary.halves.get(key)):
            yield f"{key} is {number} and {str(logged)[:_SHOWN]}"


def _one_sided(log: DetailLog, summary: SummaryLog) -> Iterator[str]:
    """Yield the constraints and texts that occur in only one of the logs."""
    said = summary.flags.keys() | summary.texts.keys()
    for line, _ in lines_of(log.version_parts, log.scenario, tokens=log.token_latencies).values():
        is_fact = line.key in _RECORDS and line.kind in {Kind.FLAG, Kind.TEXT}
        if is_fact and summary.said and (line.key in said) != (line.key in log.counts):
            yield f"{line.key} is in the {'summary' if line.key in said else 'detail log'} alone"


def _printable(name: str) -> str:
    """Return a name without control characters, such as the null byte of a C string."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in name).split())


def _word(*, flag: bool) -> str:
    return "true" if flag else "false"


def _same(said: float, logged: object, half_unit: float | None) -> bool:
    """Return True if two printed numbers can be the same number.

    Args:
        said: the number in the summary.
        logged: the number in the detail log.
        half_unit: half a unit of the last digit of the summary's number; None if it has six digits.
    """
    if isinstance(logged, bool) or not isinstance(logged, int | float):
        return False
    if isinstance(said, int) and isinstance(logged, int):
        return said == logged
    if not abs(logged) <= _LARGEST:
        return False
    return abs(said - logged) < ((half_unit or _half_digit(said)) + _half_digit(logged)) * _STRICT


def _half_digit(value: float) -> float:
    """Return half a unit of the last of six significant digits."""
    return 0.5 * 10.0 ** (math.floor(math.log10(abs(value))) - _DIGITS + 1) if value else 0.0


def contradictions(log: DetailLog) -> Iterator[str]:
    """Yield the contradictions between the records of a detail log."""
    for name in ("scenario", "test_mode"):
        asked, used = log.text(f"requested_{name}"), log.text(f"effective_{name}")
        if asked and used and asked != used:
            yield f"requested_{name} is {asked}, effective_{name} {used}"
    yield from _out_of_order(log.number)
    for mean, least, most in _MEANS:
        value, low, high = log.number(mean), log.number(least), log.number(most)
        if value is None or overflowed(log, mean):
            continue
        if low is not None and value < low:
            yield f"{mean} is {value:.15g}, less than {least}, {low:.15g}"
        if high is not None and value > high:
            yield f"{mean} is {value:.15g}, more than {most}, {high:.15g}"
    yield from _estimates(log)
    yield from impossible(log)


def _out_of_order(number_of: Callable[[str], float | None]) -> Iterator[str]:
    """Yield the percentiles that are larger than the next."""
    for first, pattern, last in _ORDERED:
        keys = [first, *(pattern.format(step) for step in _STEPS), last]
        found = [(key, number) for key in keys if (number := number_of(key)) is not None]
        for (key, number), (other, larger) in pairwise(found):
            if number > larger:
                yield f"{key} is {number:.15g}, more than {other}, {larger:.15g}"


def _estimates(log: DetailLog) -> Iterator[str]:
    """Compare the records of early stopping's estimates with the text that repeats them."""
    text = log.text("early_stopping_ttft_result") or log.text("early_stopping_result")
    percentile = log.number("effective_target_latency_percentile")
    for key, number in estimates_in(text, log.scenario, percentile).items():
        if log.values.get(key) != number:
            yield f"{key} is {log.text(key)[:_SHOWN]}, its text says {number}"
