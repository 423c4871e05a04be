"""Define the findings of a check: errors, which exclude a result, and notes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actions.submission.tree import Place


@dataclass(frozen=True)
class Finding:
    """A fault, or a fact worth knowing.

    Args:
        code: a stable name of its kind, such as ``seeds``.
        message: what was found.
        remedy: what to do about it.
        is_error: True if it excludes the result; a note does not.
        test: the test to repeat: performance, accuracy or a compliance test; empty if none has to be.
        scenarios: the scenarios of which one is missing.
    """

    code: str
    message: str
    remedy: str = ""
    is_error: bool = True
    test: str = ""
    scenarios: tuple[str, ...] = ()


def note(code: str, message: str, remedy: str = "") -> Finding:
    """Return a note, which does not exclude a result."""
    return Finding(code, message, remedy, is_error=False)


@dataclass(frozen=True)
class Figure:
    """The headline number of a result, in base units."""

    value: float
    unit: str


@dataclass(frozen=True)
class CheckedResult:
    """One result and its findings."""

    place: Place
    findings: tuple[Finding, ...]
    figure: Figure | None = None

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Return the findings that exclude the result."""
        return tuple(finding for finding in self.findings if finding.is_error)

    @property
    def is_accepted(self) -> bool:
        """Return True if no finding excludes the result."""
        return not self.errors


@dataclass(frozen=True)
class CheckedTree:
    """The results of a tree, and findings about the tree itself.

    Args:
        results: all results with their findings.
        findings: findings about a submitter or the whole tree, each with its place.
    """

    results: tuple[CheckedResult, ...]
    findings: tuple[tuple[str, Finding], ...] = field(default=())

    @property
    def is_accepted(self) -> bool:
        """Return True if neither the tree nor a result has an error."""
        return all(result.is_accepted for result in self.results) and not any(
            finding.is_error for _, finding in self.findings
        )
