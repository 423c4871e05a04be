"""How a run ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.core.errors import ExitCode

if TYPE_CHECKING:
    from agent.core.errors import VcagentError


@dataclass
class Outcome:
    """How a run ended: its exit code, the error that ended it, other failures, and warnings."""

    exit_code: ExitCode = ExitCode.OK
    error: VcagentError | None = None
    failures: list[tuple[str, VcagentError]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
