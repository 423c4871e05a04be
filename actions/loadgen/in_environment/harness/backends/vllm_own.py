"""List the settings of vLLM that the harness fixes, so that a profile cannot change them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

OWN_ENGINE_ARGUMENTS: Mapping[str, str] = {
    "model": "it is set by the backend's model",
    "enable_prefix_caching": "it is off: MLPerf's closed division forbids reuse across queries; the open "
    "division may switch it on",
    "disable_log_stats": "vLLM's statistics are off in the timed part",
    "stream_interval": "LoadGen takes only an answer's first token and its end",
}
"""Engine arguments that the harness sets, with the reasons."""

CLOSED: Final = "closed"
OPEN: Final = "open"
"""MLPerf's divisions."""


def refused(arguments: Mapping[str, object], division: str = CLOSED) -> str:
    """Explain which engine arguments must not be set; return an empty string if all are allowed.

    Prefix caching may be switched off, and in the open division on.
    """
    for name, why in OWN_ENGINE_ARGUMENTS.items():
        if name not in arguments:
            continue
        if name != "enable_prefix_caching" or (arguments[name] and division != OPEN):
            return f"{name} is the harness's to set: {why}"
    return ""
