"""Reads the output of ``llama-perplexity --multiple-choice``.

After each task the tool prints the number of tasks done, a tab (spaces if copied from a terminal), and the
percentage of right answers so far. ``Final result`` and ``Random chance`` follow at the end, in percent. They
can stand before or after the timings, because the two use different buffers. The tool ends with exit code 0
even if it could not score a task. Source: tools/perplexity/perplexity.cpp, multiple_choice_score().
"""

from __future__ import annotations

import re

from agent.core.errors import ParseError
from agent.core.records import Metric, Relativity
from parsers.llamacpp.runs import one
from parsers.numbers import measured, whole

_HEAD = re.compile(r"^task[ \t]+acc_norm[ \t]*$|calculating TruthfulQA score", re.MULTILINE)
_RUNNING = re.compile(r"^(?P<done>\d{1,9})[ \t]+(?P<percent>\d{1,3}\.\d{8})[ \t]*$", re.MULTILINE)
_FINAL = re.compile(r"Final result:\s+(?P<percent>\S+) \+/-\s+(?P<error>\S+)[ \t]*$", re.MULTILINE)
_CHANCE = re.compile(r"Random chance:\s+(?P<percent>\S+) \+/-\s+\S+[ \t]*$", re.MULTILINE)
_ERROR = re.compile(
    r"^.*(?:multiple_choice\w*|decode_helper)\s*:\s*((?:found|failed|task \d|no tasks|llama_decode).*)$",
    re.MULTILINE,
)


def has_multiple_choice(text: str) -> bool:
    """Return True if a log is from such a run."""
    return bool(_HEAD.search(text) or _FINAL.search(text))


def multiple_choice_complete(text: str) -> bool:
    """Return True if the log contains the final result."""
    return _FINAL.search(text) is not None


def tasks_done(line: str) -> int | None:
    """Return the number of finished tasks in a line of the running score, or None for any other line."""
    match = _RUNNING.match(line)
    return whole(match["done"]) if match else None


def task_results(text: str) -> list[bool]:
    """Return for each task whether the answer was right, in order, from the changes of the running score."""
    results, right = [], 0
    for place, match in enumerate(_RUNNING.finditer(text), 1):
        if int(match["done"]) != place:
            raise ParseError(f"after {place - 1} tasks the running score continues with {match['done']}")
        now = round(float(match["percent"]) * place / 100)
        results.append(now > right)
        right = now
    return results


def multiple_choice_metrics(text: str, name: str = "multiple_choice") -> tuple[Metric, ...]:
    """Return the accuracy as a ratio, its standard error, the accuracy of guessing, and the number of tasks.

    If the log ends before the final result, the accuracy is the last running score.

    Args:
        text: the tool's output.
        name: the beginning of the metrics' names, such as ``mmlu``.

    Raises:
        ParseError: if no task was scored, or the log has several results.
    """
    running = list(_RUNNING.finditer(text))
    final = one(_FINAL, text, "final result")
    score = final or (running[-1] if running else None)
    percent = measured(score["percent"], "the accuracy in percent") if score else None
    if percent is None:
        raise ParseError(
            "no task was scored", details=tuple(match[1].strip() for match in _ERROR.finditer(text))[-3:]
        )
    error = measured(final["error"], "the standard error") if final else None
    chance_line = _CHANCE.search(text)
    chance = measured(chance_line["percent"], "the random chance") if chance_line else None
    metrics = [
        Metric(
            f"{name}_accuracy",
            percent / 100,
            "ratio",
            Relativity.HIGHER,
            "questions whose right answer is the likeliest by mean log-probability",
            metadata={"tool_value": percent, "tool_unit": "percent"},
        )
    ]
    if error is not None:  # for a single task it is 0 / 0
        metrics.append(
            Metric(f"{name}_accuracy_stderr", error / 100, "ratio", Relativity.LOWER, "standard error", 2)
        )
    if chance is not None:
        metrics.append(
            Metric(f"{name}_random_chance", chance / 100, "ratio", description="guessing", verbosity=2)
        )
    if running:
        metrics.append(Metric(f"{name}_tasks", float(running[-1]["done"]), "count", verbosity=2))
    return tuple(metrics)
