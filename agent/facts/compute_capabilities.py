"""The compute capabilities of the GPUs: the targets for CUDA code."""

from __future__ import annotations

import re

from agent.facts.base import Fact, Host

_QUERY = ("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")


def compute_capabilities(text: str) -> tuple[str, ...]:
    """Read the output of ``nvidia-smi --query-gpu=compute_cap``: ``9.0``, each once, lowest first."""
    found = {line.strip() for line in text.splitlines() if re.fullmatch(r"\s*\d+\.\d+\s*", line)}
    return tuple(sorted(found, key=lambda version: tuple(map(int, version.split(".")))))


def _read(host: Host) -> tuple[str, ...]:
    return compute_capabilities(host.output(_QUERY, timeout_s=30) or "")


COMPUTE_CAPABILITIES: Fact[tuple[str, ...]] = Fact("compute_capabilities", " ".join(_QUERY), _read)
