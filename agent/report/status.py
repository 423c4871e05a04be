"""A run's outcome as one word and as one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.core.errors import ExitCode
from agent.core.records import Reason, Validity, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_BY_EXIT_CODE = {ExitCode.REBOOT_PENDING: "REBOOT PENDING", ExitCode.INTERRUPTED: "INTERRUPTED"}


def run_status(verdict: Verdict | None, run: Mapping[str, Any]) -> str:
    """Return the verdict's word; for a run without a verdict, the meaning of its exit code."""
    code = run.get("exit_code")
    if code in _BY_EXIT_CODE:
        return _BY_EXIT_CODE[code]
    if verdict:
        return verdict.validity.value.replace("_", " ")
    if code == ExitCode.OK and isinstance(code, int):
        return "DONE"
    return Validity.FAILED.value if isinstance(code, int) and code else "NO VERDICT"


def run_outcome(run: Mapping[str, Any]) -> str:
    """Return how the run ended, from its reason and its exit code; empty if both are unknown."""
    code, reason = run.get("exit_code"), str(run.get("exit_reason") or "")
    known = {int(exit_code): exit_code.name.replace("_", " ").lower() for exit_code in ExitCode}
    name = f"exit code {code} ({known[code]})" if code in known and code else ""
    return " · ".join(part for part in (reason, name) if part)


def setting_to_change(reason: Reason, others: Iterable[Reason] = ()) -> tuple[str, str] | None:
    """Return the setting to change and its new value (empty if unknown); None if a remedy says it.

    Args:
        reason: the reason.
        others: the reasons that are shown with it.
    """
    if reason.setting is None:
        return None
    value = "" if reason.value is None else str(reason.value)
    if any(reason.setting in one.remedy and value in one.remedy for one in (reason, *others)):
        return None
    return reason.setting, value
