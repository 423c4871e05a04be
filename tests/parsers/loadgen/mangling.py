"""Mangles a pair of LoadGen's logs, and decides whether the result can still be VALID."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

ODD = (
    "NaN",
    "nan",
    "-inf",
    "1e999",
    "9" * 400,
    "-1",
    "0",
    "5e-324",
    "1e300",
    '""',
    '"VALIDX"',
    "true",
    "null",
    "{}",
    "[1]",
)
_KEY = re.compile(r'"key": "([^"]+)"')
_VALUE = re.compile(r'(?<="value": ).*?(?=, "time_ms")')
_FREE = (
    "generic_message",
    "power_",
    "test_datetime",
    "qsl_",
    "generated_",
    "requested_",
    "sut_name",
    "get_sut",
)
"""Records that do not affect any verdict; of the requested settings, only scenario, mode and tokens count."""


@dataclass
class Pair:
    """The texts of both logs, in lines."""

    detail: list[str]
    summary: list[str]

    def facts(self) -> tuple[object, ...]:
        """Return the basis of a verdict: each fact with how often it occurs, and its values in both logs."""
        records: list[tuple[str, str]] = []
        for line in "".join(self.detail).split("\n"):
            for part in line.split(":::MLLOG"):
                key, value = _KEY.search(part), _VALUE.search(part)
                if key and not key[1].startswith(_FREE):
                    records.append((key[1], value[0] if value else part))
        said = []
        for line in "".join(self.summary).split("\n"):
            name, colon, value = line.partition(":")
            if colon and not name.startswith((" *", "SUT")):
                said.append((" ".join(name.split()).lower(), value.strip()))
            elif (
                "encountered" in line
                or "MLPerf Results Summary" in line
                or line.startswith(" * Early stopping")
            ):
                said.append((line.strip().rstrip("."), ""))
        return tuple(sorted(records)), tuple(sorted(said))


def _lines(pair: Pair, chance: random.Random) -> list[str]:
    return pair.detail if chance.random() < 0.5 else pair.summary


def drop_line(pair: Pair, chance: random.Random) -> None:
    lines = _lines(pair, chance)
    if lines:
        del lines[chance.randrange(len(lines))]


def double_line(pair: Pair, chance: random.Random) -> None:
    lines = _lines(pair, chance)
    if lines:
        lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))


def swap_values(pair: Pair, chance: random.Random) -> None:
    lines = _lines(pair, chance)
    pattern = _VALUE if lines is pair.detail else re.compile(r"(?<=: )\S+$")
    places = [(at, found) for at, line in enumerate(lines) if (found := pattern.search(line.rstrip("\n")))]
    if len(places) > 1:
        (one, first), (other, second) = chance.sample(places, 2)
        for at, found, value in ((one, first, second[0]), (other, second, first[0])):
            lines[at] = lines[at][: found.start()] + value + lines[at][found.end() :]


def change_value(pair: Pair, chance: random.Random) -> None:
    lines = _lines(pair, chance)
    pattern = _VALUE if lines is pair.detail else re.compile(r"(?<=: )\S+$")
    places = [(at, found) for at, line in enumerate(lines) if (found := pattern.search(line.rstrip("\n")))]
    if places:
        at, found = chance.choice(places)
        lines[at] = lines[at][: found.start()] + chance.choice(ODD) + lines[at][found.end() :]


def change_digit(pair: Pair, chance: random.Random) -> None:
    lines = _lines(pair, chance)
    places = [(at, spot.start()) for at, line in enumerate(lines) for spot in re.finditer(r"\d", line)]
    if places:
        at, spot = chance.choice(places)
        digit = chance.choice([sign for sign in "0123456789" if sign != lines[at][spot]])
        lines[at] = lines[at][:spot] + digit + lines[at][spot + 1 :]


def cut(pair: Pair, chance: random.Random) -> None:
    lines = _lines(pair, chance)
    text = "".join(lines)
    kept = (
        text[: chance.randrange(len(text) + 1)]
        if chance.random() < 0.8
        else text[chance.randrange(len(text) + 1) :]
    )
    lines[:] = kept.splitlines(keepends=True)


def join_other(other: Pair) -> Callable[[Pair, random.Random], None]:
    def join(pair: Pair, chance: random.Random) -> None:
        which = "detail" if chance.random() < 0.5 else "summary"
        lines, more = getattr(pair, which), list(getattr(other, which))
        at = chance.randrange(len(more) + 1)
        lines[:] = lines + more[at:] if chance.random() < 0.5 else more[:at] + lines

    return join


def exchange(other: Pair) -> Callable[[Pair, random.Random], None]:
    """Return a function that replaces the summary or detail log with that of another run."""

    def take(pair: Pair, chance: random.Random) -> None:
        which = "detail" if chance.random() < 0.5 else "summary"
        setattr(pair, which, list(getattr(other, which)))

    return take


def mangle(pair: Pair, other: Pair, chance: random.Random) -> list[str]:
    """Change a pair in up to three ways; return their names."""
    ways = (
        drop_line,
        double_line,
        swap_values,
        change_value,
        change_digit,
        cut,
        join_other(other),
        exchange(other),
    )
    chosen = [chance.choice(ways) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
    for way in chosen:
        way(pair, chance)
    return [way.__name__ for way in chosen]
