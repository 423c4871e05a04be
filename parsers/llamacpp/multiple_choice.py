"""What ``llama-perplexity --multiple-choice`` prints.

After each task a line with the tasks done, a tab (blanks, where it was copied from a terminal), and the
percent right so far; at the end ``Final result`` and ``Random chance``, in percent, before or after the
timings: the two go through different buffers. The tool ends with exit code 0 when it could not score a task.
Source: tools/perplexity/perplexity.cpp, multiple_choice_score().
"""

from __future__ import annotations

import re

from agent.core.errors import ParseError
from agent.core.records import Metric, Relativity
from parsers.llamacpp.runs import one
from parsers.numbers import measured, number, whole

_HEAD = re.compile(r"^task[ \t]+acc_norm[ \t]*$|calculating TruthfulQA score", re.MULTILINE)
_RUNNING = re.compile(r"^(?P<done>\d{1,9})[ \t]+(?P<percent>\d{1,3}\.\d{8})[ \t]*$", re.MULTILINE)
_FINAL = re.compile(r"Final result:\s+(?P<percent>\S+) \+/-\s+(?P<error>\S+)[ \t]*$", re.MULTILINE)
_CHANCE = re.compile(r"Random chance:\s+(?P<percent>\S+) \+/-\s+\S+[ \t]*$", re.MULTILINE)
_ERROR = re.compile(
    r"^.*(?:multiple_choice\w*|decode_helper)\s*:\s*((?:found|failed|task \d|no tasks|llama_decode).*)$",
    re.MULTILINE,
)


def has_multiple_choice(text: str) -> bool:
    """Whether a log is of such a run."""
    return bool(_HEAD.search(text) or _FINAL.search(text))


def multiple_choice_complete(text: str) -> bool:
    """Whether the final result is there."""
    return _FINAL.search(text) is not None


def tasks_done(line: str) -> int | None:
    """How many tasks are done, from a line of the running score; None for any other line."""
    match = _RUNNING.match(line)
    return whole(match["done"]) if match else None


def task_results(text: str) -> list[bool]:
    """Which of the tasks were answered right, in order: how the running score changes tells it."""
    results, right = [], 0
    for place, match in enumerate(_RUNNING.finditer(text), 1):
        if int(match["done"]) != place:
            raise ParseError(f"after {place - 1} tasks the running score goes on with {match['done']}")
        now = round(float(match["percent"]) * place / 100)
        results.append(now > right)
        right = now
    return results


def multiple_choice_metrics(text: str, name: str = "multiple_choice") -> tuple[Metric, ...]:
    """Accuracy as a ratio, its standard error, what guessing would give, and how many tasks were scored.

    Of a log that was cut before the final result, the last running score.

    Args:
        text: the tool's output.
        name: what the metrics' names begin with, such as ``mmlu``.

    Raises:
        ParseError: if no task was scored, or there are several results.
    """
    running = list(_RUNNING.finditer(text))
    final = one(_FINAL, text, "final result")
    score = final or (running[-1] if running else None)
    percent = measured(score["percent"], "the accuracy in percent") if score else None
    if percent is None:
        raise ParseError(
            "no task was scored", details=tuple(match[1].strip() for match in _ERROR.finditer(text))[-3:]
        )
    error = number(final["error"], "the standard error") if final else None
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
    if error is not None:  # of a single task it is 0 / 0
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
