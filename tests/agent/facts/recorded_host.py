from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["RecordedHost"]


@dataclass(frozen=True)
class RecordedHost:
    """A host made of recorded answers: commands and files that were not recorded are absent."""

    files: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    locks: Mapping[str, int] = field(default_factory=dict)

    def output(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = 10,
        env: Mapping[str, str] | None = None,
        hang_is_error: bool = False,
    ) -> str | None:
        assert timeout_s > 0
        return next(
            (text for start, text in self.outputs.items() if " ".join(command).startswith(start)), None
        )

    def text(self, path: str) -> str | None:
        return self.files.get(path)

    def names(self, folder: str) -> list[str]:
        prefix = folder.rstrip("/") + "/"
        return sorted({path[len(prefix) :].split("/")[0] for path in self.files if path.startswith(prefix)})

    def lock_holder(self, path: str) -> int | None:
        return self.locks.get(path)
