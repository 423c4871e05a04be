"""List the settings of vLLM that the harness fixes, so that a profile cannot change them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OWN_ENGINE_ARGUMENTS: Mapping[str, str] = {
    "model": "it is set by the backend's model",
    "enable_prefix_caching": "it is off: MLPerf's rules forbid reuse across queries",
    "disable_log_stats": "vLLM's statistics are off in the timed part",
    "stream_interval": "LoadGen takes only an answer's first token and its end",
}
"""Engine arguments that the harness sets, with the reasons."""


def refused(arguments: Mapping[str, object]) -> str:
    """Explain which engine arguments must not be set; return an empty string if all are allowed.

    Switching prefix caching off is allowed.
    """
    for name, why in OWN_ENGINE_ARGUMENTS.items():
        if name in arguments and (name != "enable_prefix_caching" or arguments[name]):
            return f"{name} is the harness's to set: {why}"
    return ""
