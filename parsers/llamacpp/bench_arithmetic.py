"""Checks that the numbers of a row of llama-bench or llama-batched-bench follow from each other.

Sources: tools/llama-bench/llama-bench.cpp (``test::get_ts``, ``avg``, ``stdev``) and
tools/batched-bench/batched-bench.cpp. A lost digit, a swapped column or another run's value is refused.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from parsers.numbers import finite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TOLERANCE = 0.01
_ROUNDED_S, _ROUNDED_RATE = 0.0005, 0.005
"""Half a unit of the last decimal of times and rates in the table of llama-batched-bench."""
_MOST_DEVIATION = 10.0
"""Bound of a deviation, relative to the rate: the deviation of 100 positive numbers is at most that."""
_SPREAD = 4.0
"""Bound of how far mean rate and mean time may be apart, in squares of their relative deviations."""
_Claim = tuple[str, float, float, float]
"""A number's name, the number, the number that follows from the others, and the tolerance, relative."""


def check_bench(row: Mapping[str, Any], tokens: int) -> None:
    """Check a row of llama-bench.

    Args:
        row: the row.
        tokens: tokens of the prompt and of the answer.

    Raises:
        ParseError: if a number does not follow from the others.
    """
    rate, deviation = finite(row.get("avg_ts")), finite(row.get("stddev_ts"))
    if rate and not tokens:
        raise _error("avg_ts", rate, "a rate of no tokens")
    if rate and deviation and deviation > _MOST_DEVIATION * rate:
        raise _error("stddev_ts", deviation, f"the rate is {rate:g}")
    _refuse(_samples(row, tokens))
    time_ns, time_deviation = finite(row.get("avg_ns")), finite(row.get("stddev_ns"))
    if not (rate and time_ns) or "samples_ns" in row:
        return
    # A mean of rates is at least the rate of the mean time; the spread of the times says how much more.
    ratio = rate * time_ns / 1e9 / tokens
    spread = ((deviation or 0.0) / rate) ** 2 + ((time_deviation or 0.0) / time_ns) ** 2
    if not 1 - _TOLERANCE <= ratio <= 1 + _TOLERANCE + _SPREAD * spread:
        raise _error("avg_ts", rate, f"{tokens} tokens took {time_ns / 1e9:g} s on average")


def _samples(row: Mapping[str, Any], tokens: int) -> Iterator[_Claim]:
    """Yield what follows from the measurements of each repetition, which only the JSON has."""
    times, rates = ([finite(value) for value in _list(row.get(f"samples_{unit}"))] for unit in ("ns", "ts"))
    for time_ns, rate in zip(times, rates, strict=False):
        if time_ns and rate:
            yield "samples_ts", rate, tokens * 1e9 / time_ns, _TOLERANCE
    for unit, values in (("ns", times), ("ts", rates)):
        known = [value for value in values if value]
        mean, deviation = finite(row.get(f"avg_{unit}")), finite(row.get(f"stddev_{unit}"))
        if not known or len(known) != len(values):
            continue
        if mean:
            yield f"avg_{unit}", mean, statistics.fmean(known), _TOLERANCE
        if deviation and mean and len(known) > 1:
            expected = statistics.stdev(known)
            yield f"stddev_{unit}", deviation, expected, _TOLERANCE + _TOLERANCE * mean / max(expected, 1e-9)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def check_batched(row: Mapping[str, Any], lengths: tuple[int, int, int]) -> None:
    """Check a row of llama-batched-bench.

    Args:
        row: the row.
        lengths: tokens of a prompt, tokens of an answer, and the number of sequences.

    Raises:
        ParseError: if a number does not follow from the others.
    """
    _refuse(_batched(row, lengths))


def _batched(row: Mapping[str, Any], lengths: tuple[int, int, int]) -> Iterator[_Claim]:
    prompt, generated, batch = lengths
    prompts = (prompt, prompt * batch)  # is_pp_shared, which the table does not say
    times = {name: finite(row.get(name)) for name in ("t_pp", "t_tg", "t")}
    for name, time, counts in (
        ("speed_pp", times["t_pp"], prompts),
        ("speed_tg", times["t_tg"], (generated * batch,)),
        ("speed", times["t"], tuple(count + generated * batch for count in prompts)),
    ):
        rate = finite(row.get(name))
        if rate and time:
            tolerance = _TOLERANCE + _ROUNDED_S / time + _ROUNDED_RATE / rate
            nearest = min((count / time for count in counts), key=lambda value: abs(value - rate))
            yield name, rate, nearest, tolerance
    if (whole := times["t"]) and times["t_pp"] is not None and times["t_tg"] is not None:
        yield "t", whole, times["t_pp"] + times["t_tg"], _TOLERANCE + 3 * _ROUNDED_S / whole


def _refuse(claims: Iterator[_Claim]) -> None:
    for name, value, expected, tolerance in claims:
        if not math.isclose(value, expected, rel_tol=tolerance):
            raise _error(name, value, f"the other numbers of its row give {expected:g}")


def _error(name: str, value: float, why: str) -> ParseError:
    return ParseError(
        f"{name} is {value:g}, but {why}", remedy="see whether the file was changed, or its columns swapped"
    )
