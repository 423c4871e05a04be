"""Filters of the page templates: they format single values."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agent.core.counts import count_of
from agent.core.quantities import Quantity, format_duration, quantity, words
from agent.core.records import Metric, Relativity
from agent.report.figures import PERCENTILES
from agent.report.status import setting_to_change

if TYPE_CHECKING:
    from agent.report.run_folder import CaseResult

PERCENTILE_NAMES = ("lowest", "mean", *(f"p{percent}" for percent in PERCENTILES), "highest")

_TONES = {
    "VALID": "good",
    "DONE": "good",
    "INVALID": "warn",
    "FAILED": "bad",
    "NOT_APPLICABLE": "none",
    "INTERRUPTED": "warn",
}
_SIGNS = {"good": "✓", "warn": "!", "bad": "✕", "none": "-"}
_STEP_TONES = {"done": "good", "failed": "bad", "interrupted": "warn"}
_BETTER = {Relativity.HIGHER: "higher is better", Relativity.LOWER: "lower is better"}


def href(path: Path, base: Path) -> str:
    """Return a relative link from a page in the folder ``base``."""
    return quote(Path(os.path.relpath(path, base)).as_posix())


def moment(value: datetime | None) -> str:
    """Return a time to the second, in UTC; empty if the value is None."""
    return f"{value.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC" if value else ""


def plain(value: Any) -> str:
    """Return a setting or fact as it was given."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(plain, value)) or "none"
    return str(value) if value != {} else "none"


def agent_version(run: Mapping[str, Any]) -> str:
    """Return the agent's name, with its version if the run has it."""
    versions = run.get("versions")
    version = versions.get("vcagent") if isinstance(versions, Mapping) else None
    return f"vcagent {version}" if version else "vcagent"


def file_size(path: Path) -> str:
    """Return a file's size; empty if the file no longer exists."""
    try:
        return str(quantity(path.stat().st_size, "bytes"))
    except OSError:
        return ""


def _quantity(metric: Metric) -> Quantity:
    return quantity(metric.value, metric.unit)


def _case_tone(case: CaseResult) -> str:
    return _TONES[case.verdict.validity.value] if case.verdict else "none"


FILTERS: Mapping[str, Callable[..., Any]] = {
    "below": lambda path, folder: path.relative_to(folder).as_posix(),
    "better": lambda relativity: _BETTER.get(relativity, ""),
    "case_tone": _case_tone,
    "count_of": count_of,
    "duration": format_duration,
    "file_size": file_size,
    "has_gaps": lambda rows: any(cell is None for _, cells in rows for cell in cells),
    "moment": moment,
    "plain": plain,
    "quantity": _quantity,
    "setting_to_change": setting_to_change,
    "share": lambda value, most: round(100 * value / most, 1) if most else 0,
    "sign": lambda status: _SIGNS[_TONES.get(status.replace(" ", "_"), "none")],
    "step_sign": lambda status: _SIGNS[_STEP_TONES.get(status, "none")],
    "step_tone": lambda status: _STEP_TONES.get(status, "none"),
    "tone": lambda status: _TONES.get(status.replace(" ", "_"), "none"),
    "words": words,
}
