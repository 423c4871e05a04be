"""The one error of the harness: what failed, in words and as a stable kind."""

from __future__ import annotations


class HarnessError(Exception):
    """A run that has no result.

    Args:
        kind: a stable name that callers may branch on: ``config``, ``dataset``, ``settings``, ``loadgen``,
            ``load`` (no rate is valid), ``dependency`` (a module is missing), ``connection``,
            ``model_mismatch``, ``http_error``, ``engine_error``, ``out_of_memory``, ``timeout``, ``stalled``,
            ``cut_stream``, ``malformed_reply``, ``no_tokens``, ``interrupted`` or ``internal``.
        message: what happened, naming the thing.
        remedy: what to do next.
    """

    def __init__(self, kind: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.remedy = remedy

    def as_json(self) -> dict[str, str]:
        """The error as ``harness_result.json`` holds it."""
        return {"kind": self.kind, "message": self.message, "remedy": self.remedy}
