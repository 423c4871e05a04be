"""Host names with ranges: ``gpu[01:16]``, ``rack-[a:d]``, ``node[0:100:10]``."""

from __future__ import annotations

import re
from itertools import product

from agent.core.errors import UsageError

_RANGE = re.compile(r"\[(\d+|[a-z]|[A-Z]):(\d+|[a-z]|[A-Z])(?::(\d+))?\]")
_MOST_HOSTS = 100_000


def expanded(pattern: str) -> list[str]:
    """Return the names that a pattern stands for, both ends of a range included; ``01`` keeps its zero.

    Raises:
        UsageError: if a range runs backwards or mixes letters and digits.
    """
    parts = _RANGE.split(pattern)
    choices: list[list[str]] = []
    for at in range(0, len(parts) - 1, 4):
        choices += [[parts[at]], _range(pattern, *parts[at + 1 : at + 4])]
    choices.append([parts[-1]])
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > _MOST_HOSTS:
        raise UsageError(f"{pattern} stands for {count} hosts", remedy="check the range")
    return ["".join(chosen) for chosen in product(*choices)]


def _range(pattern: str, first: str, last: str, step: str | None) -> list[str]:
    width = int(step or 1)
    if first.isdigit() and last.isdigit():
        zeros = len(first) if first.startswith("0") and len(first) > 1 else 0
        if zeros and len(first) != len(last):
            raise UsageError(f"the range in {pattern} has ends of different width: {first}, {last}")
        numbers, spelled = range(int(first), int(last) + 1, width or 1), f"0{zeros}d"
    elif (first + last).isalpha() and first.islower() == last.islower():
        numbers, spelled = range(ord(first), ord(last) + 1, width or 1), "c"
    else:
        raise UsageError(f"the range in {pattern} mixes letters and digits, or cases: {first}, {last}")
    if not numbers or not width:
        raise UsageError(f"the range in {pattern} is empty: from {first} to {last} by {width}")
    if len(numbers) > _MOST_HOSTS:
        raise UsageError(f"{pattern} stands for {len(numbers)} hosts", remedy="check the range")
    return [format(number, spelled) for number in numbers]
