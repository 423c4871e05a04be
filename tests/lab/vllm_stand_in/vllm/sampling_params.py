"""The way in which an answer is handed over (vllm/sampling_params.py of 0.22.1)."""

from __future__ import annotations

from enum import Enum

__all__ = ["RequestOutputKind"]


class RequestOutputKind(Enum):
    """The content of each output."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2
