"""Reads the output of ``llama-perplexity --hellaswag`` and ``--winogrande``.

HellaSwag has no final line: its score is the score after the last task, since 2025 with a percent sign and a
confidence interval. Winogrande has a final line if there were at least 100 tasks.
Source: tools/perplexity/perplexity.cpp, hellaswag_score(), winogrande_score().
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, Relativity
from parsers.llamacpp.runs import one
from parsers.numbers import measured, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

_HELLASWAG = re.compile(r"hellaswag_score\s*:|^task[ \t]+acc_norm[ \t]+95% confidence interval", re.MULTILINE)
_HELLASWAG_ROW = re.compile(
    r"^(?P<done>\d{1,9})[ \t]+(?P<percent>\d{1,3}\.\d{8})"
    r"(?:%[ \t]+\[(?P<low>\d{1,3}\.\d{4})%, (?P<high>\d{1,3}\.\d{4})%\])?[ \t]*$",
    re.MULTILINE,
)
_WINOGRANDE = re.compile(r"winogrande_score\s*:|Final Winogrande score\(")
_WINOGRANDE_ROW = re.compile(
    r"^(?P<done>\d{1,9})[ \t]+(?P<percent>\d{1,3}\.\d{4})(?:[ \t].*)?$", re.MULTILINE
)
_WINOGRANDE_FINAL = re.compile(
    r"Final Winogrande score\((?P<done>\d{1,9}) tasks\): (?P<percent>\S+) \+/- (?P<error>\S+)[ \t]*$",
    re.MULTILINE,
)
_ALL = 100
_LOADED = re.compile(r"_score\s*: loaded (\d{1,9}) tasks")
_SELECTED = re.compile(r"_score\s*: selecting (\d{1,9}) randomized tasks")


def has_hellaswag(text: str) -> bool:
    """Return True if a log is from HellaSwag."""
    return _HELLASWAG.search(text) is not None


def has_winogrande(text: str) -> bool:
    """Return True if a log is from Winogrande."""
    return _WINOGRANDE.search(text) is not None


def hellaswag_result(text: str) -> tuple[tuple[Metric, ...], bool]:
    """Return the score with its confidence interval, and True if all tasks were done.

    Raises:
        ParseError: if no task was scored.
    """
    rows = list(_HELLASWAG_ROW.finditer(text))
    if not rows:
        raise ParseError("no task of HellaSwag was scored")
    metrics = [*_score("hellaswag_acc_norm", rows[-1]["percent"], "by length-normalised log-likelihood")]
    for side in ("low", "high"):
        if (percent := measured(rows[-1][side], "the confidence interval")) is not None:
            text_of_it = f"95 % confidence interval, {side}er end".replace("highe", "upp").replace(
                "lowe", "low"
            )
            name = f"hellaswag_acc_norm_ci95_{side}"
            metrics.append(Metric(name, percent / 100, "ratio", description=text_of_it, verbosity=2))
    done = whole(rows[-1]["done"])
    metrics.append(Metric("hellaswag_tasks", done, "count", verbosity=2))
    return tuple(metrics), done == _asked(text)


def winogrande_result(text: str) -> tuple[tuple[Metric, ...], bool]:
    """Return the score with its standard error, and True if all tasks were done.

    Raises:
        ParseError: if no task was scored, or the log has several results.
    """
    final = one(_WINOGRANDE_FINAL, text, "final score")
    rows = list(_WINOGRANDE_ROW.finditer(text))
    last = final or (rows[-1] if rows else None)
    if last is None:
        raise ParseError("no task of Winogrande was scored")
    metrics = [*_score("winogrande_accuracy", last["percent"], "choices whose sentence is the likelier")]
    if final and (error := measured(final["error"], "the standard error")) is not None:
        metrics.append(
            Metric("winogrande_accuracy_stderr", error / 100, "ratio", Relativity.LOWER, "standard error", 2)
        )
    done = whole(last["done"])
    metrics.append(Metric("winogrande_tasks", done, "count", verbosity=2))
    return tuple(metrics), final is not None or done == _asked(text)


def _score(name: str, told: str, description: str) -> Iterator[Metric]:
    percent = measured(told, name)
    if percent is None or percent > _ALL:
        raise ParseError(f"{name} is {told}, which is not a percentage")
    own: dict[str, str | int | float | bool] = {"tool_value": percent, "tool_unit": "percent"}
    yield Metric(name, percent / 100, "ratio", Relativity.HIGHER, description, metadata=own)


def _asked(text: str) -> int | None:
    match = _SELECTED.search(text) or _LOADED.search(text)
    return whole(match[1]) if match else None
