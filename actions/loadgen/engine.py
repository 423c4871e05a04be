"""Define an engine for a LoadGen test."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from actions.loadgen.in_environment.harness.backends.vllm_log import NO_ROOM_FOR_CACHE
from agent.core.errors import ActionFailedError
from gpu_configs.vllm_engine import smaller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actions.llamacpp.server import LlamaCppServer

SMALLER = "smaller_after_out_of_memory"
"""Fact with the smaller settings with which a test was repeated."""


class OutOfMemoryError(ActionFailedError):
    """Raised if the GPU memory is too small for the engine's settings."""


@dataclass(frozen=True)
class Engine:
    """An engine that is ready for a test.

    Args:
        backend: the backend's configuration in the harness.
        exact_tokens: True if every answer must have exactly ``max_output_tokens`` tokens.
        facts: facts about the engine that it does not report itself.
        start_qps: a load to start from, in queries/s.
        server: the server started for the test, if any.
    """

    backend: Mapping[str, Any]
    exact_tokens: bool
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    start_qps: float | None = None
    server: LlamaCppServer | None = None

    def explained(self, error: ActionFailedError) -> ActionFailedError:
        """Return the error with the server's end, if it ended: that is the cause of the failure."""
        death = self.server.death() if self.server else None
        if self.server is None or death is None:
            return error
        return ActionFailedError(
            f"llama.cpp's server {death} during the test; {error.message}",
            remedy=f"its output is in {self.server.log}; signal 9 without a message means that it had no "
            "memory left",
            details=self.server.last_words(),
        )

    def after(self, error: ActionFailedError) -> Engine | None:
        """Return an engine for another attempt after this error; None if it would fail in the same way."""
        if self.backend["type"] != "vllm" or not isinstance(error, OutOfMemoryError):
            return None
        keep_share = NO_ROOM_FOR_CACHE.search(error.message) is not None
        settings = smaller(self.backend["engine"], keep_share=keep_share)
        changed = ", ".join(
            f"{name} {value}" for name, value in settings.items() if value != self.backend["engine"].get(name)
        )
        facts = {**self.facts, SMALLER: changed}
        return replace(self, backend={**self.backend, "engine": settings}, facts=facts)
