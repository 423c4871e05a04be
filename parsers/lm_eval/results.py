"""Turns one ``results_<time>.json`` into metric records."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Relativity
from parsers.numbers import finite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORMAT = "lm_eval"
TOOL = "lm-eval"
_STDERR = "_stderr"
_COUNTS = ("sample_len", "sample_count")
_NO_FILTER = "none"
_ROUNDED = 1e-6
_MOST_ERROR = 0.5 + _ROUNDED
_RATIOS = (
    "acc",
    "acc_norm",
    "acc_norm_bytes",
    "acc_mutual_info",
    "exact_match",
    "f1",
    "mcc",
    "brier_score",
    "em",
)
"""Metrics from 0 to 1 (-1 to 1: mcc); the unit of any other metric depends on its task."""
_ACCURACIES = ("acc", "acc_norm", "acc_norm_bytes", "acc_mutual_info")
"""Shares of right answers; some tasks write other scores of _RATIOS in percent."""
_CORRELATIONS = (
    "mcc",
    "pearson",
    "pearsonr",
    "spearman",
    "spearmanr",
    "kendall",
    "matthews_correlation",
    "likelihood_diff",
)
_LOWER = ("word_perplexity", "byte_perplexity", "perplexity", "bits_per_byte", "brier_score", "ter")
_UNITS = {"bits_per_byte": "bits/byte", "perplexity": "perplexity"}


def parse_results(data: Any, source: str = "") -> ParsedOutput:
    """Return the scores of every task and group.

    Args:
        data: the file's content.
        source: the file that the data comes from, for errors.

    Raises:
        ParseError: if lm-eval did not write the file, or it has no score.
    """
    if not isinstance(data, dict) or not isinstance(data.get("results"), dict):
        raise ParseError("is not a results file of lm-eval: it has no results", where=source or None)
    members = _members(data)
    tasks = {**data["results"], **_mapping(data, "groups")}
    metrics = tuple(
        metric
        for task, scores in tasks.items()
        if isinstance(scores, dict)
        for metric in _metrics(task, scores, data, is_member=task in members)
    )
    _check_groups(data, tasks)
    if not metrics:
        raise ParseError(
            "holds no score",
            where=source or None,
            remedy="see lm-eval's own output: it may have had no samples",
        )
    config = _mapping(data, "config")
    return ParsedOutput(
        FORMAT,
        TOOL,
        tool_version=str(data.get("lm_eval_version") or ""),
        scenario=str(data.get("model_name") or config.get("model") or ""),
        metrics=metrics,
        start=_time(data.get("date")),
        details=dict(_details(data, config)),
        sources=(source,) if source else (),
    )


def _members(data: Mapping[str, Any]) -> set[str]:
    """Return the tasks that belong to a group: the group's score represents them."""
    groups = _mapping(data, "group_subtasks")
    return {task for tasks in groups.values() if isinstance(tasks, list) for task in map(str, tasks)}


def _check_groups(data: Mapping[str, Any], tasks: Mapping[str, Any]) -> None:
    """Check that the score of each group lies among those of its tasks, of which it is a mean.

    Raises:
        ParseError: if it does not.
    """
    for group, members in _mapping(data, "group_subtasks").items():
        scores = [tasks.get(str(task)) for task in members] if isinstance(members, list) else []
        twice = _mapping(data["results"], group)
        for key, value in _mapping(tasks, group).items():
            name = key.partition(",")[0]
            if key in twice and _number(twice[key]) != _number(value):
                raise ParseError(
                    f"{key} of the group {group} is {twice[key]!s:.20} among the results, "
                    f"{value!s:.20} among the groups",
                    remedy="see whether the file was changed",
                )
            told = [_number(one.get(key)) for one in scores if isinstance(one, dict)]
            known, number = [one for one in told if one is not None], _number(value)
            if name not in _RATIOS or number is None or not known or len(known) != len(scores):
                continue
            if not min(known) - _ROUNDED <= number <= max(known) + _ROUNDED:
                raise ParseError(
                    f"{name} of the group {group} is {number:g}, but its tasks have {min(known):g} to "
                    f"{max(known):g}",
                    remedy="see whether the file was changed",
                )


def _metrics(
    task: str, scores: Mapping[str, Any], data: Mapping[str, Any], *, is_member: bool
) -> Iterator[Metric]:
    context = dict(_context(task, scores, data))
    for key, value in scores.items():
        name, _, kind = key.partition(",")
        if (
            not name
            or name.endswith(_STDERR)
            or name in _COUNTS
            or (number := score_of(name, _number(value))) is None
        ):
            continue
        metadata: dict[str, Any] = {**context, "task": task, "filter": kind or _NO_FILTER}
        stderr = _number(scores.get(f"{name}{_STDERR},{kind}" if kind else f"{name}{_STDERR}"))
        stderr = None if stderr is not None and stderr < 0 else stderr
        check_error(name, number, stderr)
        if stderr is not None:
            metadata["stderr"] = stderr
        shown = name if kind in ("", _NO_FILTER) else f"{name}_{kind}"
        yield Metric(
            shown, number, unit_of(name, number), _relativity(task, name, data), f"{name} of {task}",
            verbosity=2 if is_member else 1, metadata=metadata, scenario=task,
        )  # fmt: skip
        if stderr is not None:
            text = f"standard error of {name} of {task}"
            yield Metric(
                f"{shown}{_STDERR}", stderr, unit_of(name, number), Relativity.LOWER, text,
                verbosity=3, metadata=metadata, scenario=task,
            )  # fmt: skip


def _context(
    task: str, scores: Mapping[str, Any], data: Mapping[str, Any]
) -> Iterator[tuple[str, int | str]]:
    told = _mapping(data, "n-samples").get(task)
    counts = (told.get("effective") if isinstance(told, dict) else None, *map(scores.get, _COUNTS))
    if samples := next((count for count in counts if (finite(count) or 0) > 0), None):
        yield "samples", samples
    for name, key in (("few_shot", "n-shot"), ("task_version", "versions")):
        value = _mapping(data, key).get(task)
        if isinstance(value, str | int) and value != "N/A":
            if isinstance(value, int) and finite(value) is None:
                continue
            yield name, value


def unit_of(name: str, value: float) -> str:
    """Return the unit of a metric; for a share above 1 the unit depends on the task.

    Args:
        name: the metric's name, such as ``acc_norm``.
        value: its value.
    """
    if name in _RATIOS:
        return "ratio" if abs(value) <= 1 else "score"
    return _UNITS.get(name, "perplexity" if name.endswith("perplexity") else "score")


def direction_of(name: str, higher: object = None) -> Relativity:
    """Return the direction of a metric: whether higher or lower is better.

    Args:
        name: the metric's name.
        higher: lm-eval's own statement, or None if it makes none.
    """
    if not isinstance(higher, bool):
        higher = False if name in _LOWER else True if name in _RATIOS else None
    if higher is None:
        return Relativity.UNDEFINED
    return Relativity.HIGHER if higher else Relativity.LOWER


def _relativity(task: str, name: str, data: Mapping[str, Any]) -> Relativity:
    told = _mapping(data, "higher_is_better").get(task)
    return direction_of(name, told.get(name) if isinstance(told, dict) else None)


def _number(value: Any) -> float | None:
    """Return a finite number, or None; lm-eval writes ``N/A`` or JSON's NaN for a missing number."""
    return None if isinstance(value, str) else finite(value)


def score_of(name: str, value: float | None) -> float | None:
    """Return a score, or None if lm-eval's -1 means that it has none.

    RULER writes -1 for a length that was not requested (lm_eval/tasks/ruler/common_utils.py). Only a
    correlation or a difference can really be -1.

    Args:
        name: the metric's name.
        value: the value that lm-eval wrote.

    Raises:
        ParseError: if a share is below 0, or an accuracy above 1.
    """
    if value is not None and value < 0 and value != -1 and name in _RATIOS and name not in _CORRELATIONS:
        raise ParseError(f"{name} is {value:g}, which is below 0", remedy="see whether the file was changed")
    if value is not None and value > 1 and name in _ACCURACIES:
        raise ParseError(f"{name} is {value:g}, which is above 1", remedy="see whether the file was changed")
    return None if value == -1 and name not in _CORRELATIONS else value


def check_error(name: str, value: float, stderr: float | None) -> None:
    """Check a standard error: that of a share of two samples or more is at most a half.

    Raises:
        ParseError: if it is larger.
    """
    is_share = name in _RATIOS and name not in {*_CORRELATIONS, *_LOWER} and 0 <= value <= 1
    if is_share and stderr is not None and stderr > _MOST_ERROR:
        raise ParseError(
            f"the standard error of {name} is {stderr:g}, the score {value:g}",
            remedy="see whether the file was changed",
        )


def _details(
    data: Mapping[str, Any], config: Mapping[str, Any]
) -> Iterator[tuple[str, str | int | float | bool]]:
    for key in ("model", "batch_size", "limit", "num_fewshot"):
        if isinstance(config.get(key), str) or finite(config.get(key)) is not None:
            yield key, config[key]
    for key in ("transformers_version", "chat_template_sha"):
        if isinstance(data.get(key), str):
            yield key, data[key]
    if (finite(data.get("total_evaluation_time_seconds")) or -1) >= 0:
        yield "duration_s", str(data["total_evaluation_time_seconds"])


def _time(value: Any) -> datetime | None:
    try:
        return (
            datetime.fromtimestamp(_number(value) or -1, timezone.utc) if (_number(value) or 0) > 0 else None
        )
    except (ValueError, OverflowError, OSError):
        return None


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}
