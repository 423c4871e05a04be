"""Define the only error of the harness: a message and a stable kind."""

from __future__ import annotations


class HarnessError(Exception):
    """A failure due to which a run has no result.

    Args:
        kind: a stable name for callers to branch on: ``config``, ``dataset``, ``settings``, ``loadgen``,
            ``load`` (no rate is valid), ``dependency`` (a module is missing), ``connection``,
            ``model_mismatch``, ``http_error``, ``engine_error``, ``out_of_memory``, ``timeout``, ``stalled``,
            ``cut_stream``, ``malformed_reply``, ``no_tokens``, ``interrupted`` or ``internal``.
        message: what failed and why.
        remedy: what to do next.
    """

    def __init__(self, kind: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.remedy = remedy

    def as_json(self) -> dict[str, str]:
        """Return the error as stored in ``harness_result.json``."""
        return {"kind": self.kind, "message": self.message, "remedy": self.remedy}
