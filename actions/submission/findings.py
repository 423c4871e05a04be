"""What a check finds: errors, which a result must not have, and notes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actions.submission.tree import Place


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or worth to know.

    Args:
        code: a stable name of its kind, such as ``seeds``.
        message: what was found.
        remedy: what to do about it.
        is_error: whether it keeps the result out; a note does not.
    """

    code: str
    message: str
    remedy: str = ""
    is_error: bool = True


def note(code: str, message: str, remedy: str = "") -> Finding:
    """Return a finding that rejects nothing."""
    return Finding(code, message, remedy, is_error=False)


@dataclass(frozen=True)
class Figure:
    """The number that a result is known by, in base units."""

    value: float
    unit: str


@dataclass(frozen=True)
class CheckedResult:
    """One result and what was found of it."""

    place: Place
    findings: tuple[Finding, ...]
    figure: Figure | None = None

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Return the findings that keep it out."""
        return tuple(finding for finding in self.findings if finding.is_error)

    @property
    def is_accepted(self) -> bool:
        """Return True if nothing keeps it out."""
        return not self.errors


@dataclass(frozen=True)
class CheckedTree:
    """A tree's results, and what was found of the tree itself.

    Args:
        results: of each result.
        findings: of a submitter or the whole tree, each with its place.
    """

    results: tuple[CheckedResult, ...]
    findings: tuple[tuple[str, Finding], ...] = field(default=())

    @property
    def is_accepted(self) -> bool:
        """Return True if neither the tree nor a result has an error."""
        return all(result.is_accepted for result in self.results) and not any(
            finding.is_error for _, finding in self.findings
        )
