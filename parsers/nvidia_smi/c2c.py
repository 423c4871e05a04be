"""Reads ``nvidia-smi c2c -s``: the speed of each chip-to-chip link between a Grace CPU and its GPU."""

from __future__ import annotations

import re

from agent.core.errors import ParseError
from agent.core.records import Metric, Relativity
from parsers.numbers import measured

_GPU = re.compile(r"^[ \t]*GPU (?P<index>\d{1,6}): (?P<name>.+?)\s*\(UUID: (?P<uuid>[^)]+)\)")
_LINK = re.compile(r"^[ \t]*C2C Link (?P<link>\d{1,4}):[ \t]*(?P<speed>\S.*?)[ \t]*$", re.MULTILINE)
_SPEED = re.compile(r"(\S+?)\s*GB/s")
GIGABYTE = 1000**3


def has_links(text: str) -> bool:
    """Return True if a text lists such links."""
    return _LINK.search(text) is not None


def link_metrics(text: str) -> tuple[tuple[Metric, ...], bool]:
    """Return the links' speeds, and True if the text is cut off; a link that is down has no speed.

    Args:
        text: nvidia-smi's output.

    Raises:
        ParseError: if a speed is not a number, or not in GB/s.
    """
    metrics = []
    gpu = None
    cut = False
    for line in text.splitlines(keepends=True):
        gpu = _GPU.match(line) or gpu
        link = _LINK.match(line)
        if link is None or gpu is None:
            continue
        speed = _speed(link["speed"], whole=line.endswith("\n"))
        if speed is None:
            cut = not line.endswith("\n")
            continue
        metrics.append(
            Metric(
                name=f"gpu{gpu['index']}_c2c_link{link['link']}_speed",
                value=round(speed * GIGABYTE),
                unit="bytes/s",
                relativity=Relativity.HIGHER,
                description=f"GPU {gpu['index']}: speed of chip-to-chip link {link['link']}",
                metadata={
                    "gpu": gpu["index"],
                    "gpu_index": int(gpu["index"]),
                    "gpu_name": gpu["name"],
                    "gpu_uuid": gpu["uuid"],
                    "virtualclient_name": f"gpu{gpu['index']}_link{link['link']}_speed",
                    "tool_value": speed,
                    "tool_unit": "GB/s",
                },
            )
        )
    return tuple(metrics), cut


def _speed(told: str, *, whole: bool) -> float | None:
    """Return a speed in GB/s; None for words, and for a number that lost its unit."""
    if not any(character.isdigit() for character in told):
        return None
    match = _SPEED.fullmatch(told)
    if match is None and not whole:
        return None
    if match is None:
        raise ParseError(f"the speed of a link is {told[:60]!r}, which is not in GB/s")
    return measured(match[1], "the speed of a link")
