"""What the harness decides about vLLM, so that a profile cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OWN_ENGINE_ARGUMENTS: Mapping[str, str] = {
    "model": "the backend's model names it",
    "enable_prefix_caching": "it is off: MLPerf's rules forbid reuse across queries",
    "disable_log_stats": "vLLM's statistics are off in the timed part",
    "stream_interval": "LoadGen takes an answer's first token and its end, and no token between",
}
"""The engine's arguments that the harness sets, and why."""


def refused(arguments: Mapping[str, object]) -> str:
    """Why some of the engine's arguments cannot be given; empty where they can.

    Prefix caching may be switched off once more.
    """
    for name, why in OWN_ENGINE_ARGUMENTS.items():
        if name in arguments and (name != "enable_prefix_caching" or arguments[name]):
            return f"{name} is the harness's to set: {why}"
    return ""
