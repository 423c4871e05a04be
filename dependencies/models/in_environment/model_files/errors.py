"""The error of the programs that fetch models and prepare data sets."""

from __future__ import annotations


class ModelFilesError(Exception):
    """A model or a data set could not be provided.

    Args:
        kind: a stable name that callers may branch on: ``hub``, ``space`` or ``dataset``.
        message: what failed.
        remedy: what to do next.
    """

    def __init__(self, kind: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.remedy = remedy
