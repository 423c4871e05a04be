"""``nvidia-smi c2c -s``: the speed of each chip-to-chip link between a Grace CPU and its GPU."""

from __future__ import annotations

import re

from agent.core.records import Metric, Relativity

__all__ = ["link_metrics"]

_GPU = re.compile(r"^\s*GPU (?P<index>\d+): (?P<name>.+?)\s*\(UUID: (?P<uuid>[^)]+)\)")
_LINK = re.compile(r"^\s*C2C Link (?P<link>\d+):\s*(?P<speed>\d+(?:\.\d+)?)\s*GB/s")
GIGABYTE = 1000**3


def link_metrics(text: str) -> tuple[Metric, ...]:
    """The links' speeds; a link that is down or not supported gives none.

    Args:
        text: nvidia-smi's output.
    """
    metrics = []
    gpu = None
    for line in text.splitlines():
        gpu = _GPU.match(line) or gpu
        link = _LINK.match(line)
        if link is None or gpu is None:
            continue
        speed = float(link["speed"])
        metrics.append(
            Metric(
                name=f"gpu{gpu['index']}_c2c_link{link['link']}_speed",
                value=round(speed * GIGABYTE),
                unit="bytes/s",
                relativity=Relativity.HIGHER,
                description=f"GPU {gpu['index']}: speed of chip-to-chip link {link['link']}",
                metadata={
                    "gpu_index": int(gpu["index"]),
                    "gpu_name": gpu["name"],
                    "gpu_uuid": gpu["uuid"],
                    "virtualclient_name": f"gpu{gpu['index']}_link{link['link']}_speed",
                    "tool_value": speed,
                    "tool_unit": "GB/s",
                },
            )
        )
    return tuple(metrics)
