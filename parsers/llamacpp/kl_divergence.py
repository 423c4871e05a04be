"""Reads ``llama-perplexity --kl-divergence``: how far a model's predictions are from a base model's.

The tool prints running values for each chunk, and statistics at the end if there were at least 100 tokens.
The statistics had other names early in 2024. Source: tools/perplexity/perplexity.cpp, kl_divergence().
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, Relativity
from parsers.numbers import measured, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.core.records import MetadataValue

_HEAD = re.compile(r"KL[- ]Divergence|KL[- ]divergence statistics|kl_divergence\s*: computing")
_LINE = re.compile(r"^[ \t]*(?P<label>[^:\n]{1,40}?)[ \t]*:[ \t]+(?P<rest>\S.*)$", re.MULTILINE)
# Lengths are bounded: with several unbounded parts, a line of 150,000 characters took hours.
# ± may be another character if the terminal's encoding was not UTF-8
_REST = re.compile(
    r"(?P<value>\S{1,40}?)(?:[ \t]{0,40}(?:\+/-|[^\w\s.,%-]{1,4}|Â±)[ \t]{0,40}(?P<error>\S{1,40}?))?"
    r"[ \t]{0,40}%?[ \t]{0,40}"
)
_CHUNK = re.compile(r"^[ \t]*(?P<chunk>\d{1,9})[ \t]+(?P<perplexity>\d\S*)[ \t].*$", re.MULTILINE)
_VALUES = re.compile(r"(?<![\w.,])-?\d+\.\d+(?![\w.,])")
_PERCENTILES = {"99.9": "99_9", "99.0": "99", "95.0": "95", "90.0": "90", "10.0": "10", "5.0": "5",
                "1.0": "1", "0.1": "0_1"}  # fmt: skip
_NATS, _LOWER, _HIGHER = "nats", Relativity.LOWER, Relativity.HIGHER
_NAMES: Mapping[str, tuple[str, str, Relativity, int]] = {
    "Mean PPL(Q)": ("perplexity", "perplexity", _LOWER, 1),
    "Mean PPL(base)": ("perplexity_base", "perplexity", Relativity.UNDEFINED, 2),
    "Cor(ln(PPL(Q)), ln(PPL(base)))": ("perplexity_correlation", "ratio", _HIGHER, 3),
    "Mean PPL(Q)/PPL(base)": ("perplexity_ratio", "ratio", _LOWER, 2),
    "Mean PPL(Q)-PPL(base)": ("perplexity_difference", "perplexity", _LOWER, 2),
    "Mean ln(PPL(Q)/PPL(base))": ("perplexity_log_ratio", _NATS, _LOWER, 3),
    "Mean KLD": ("kl_divergence_mean", _NATS, _LOWER, 1),
    "Maximum KLD": ("kl_divergence_max", _NATS, _LOWER, 2),
    "Median KLD": ("kl_divergence_median", _NATS, _LOWER, 2),
    "Minimum KLD": ("kl_divergence_min", _NATS, _LOWER, 3),
    **{f"{told}% KLD": (f"kl_divergence_p{name}", _NATS, _LOWER, 3) for told, name in _PERCENTILES.items()},
    "RMS Δp": ("token_probability_change_rms", "ratio", _LOWER, 2),
    "Mean Δp": ("token_probability_change_mean", "ratio", Relativity.UNDEFINED, 3),
    "Same top p": ("same_top_token", "ratio", _HIGHER, 1),
    "Average": ("kl_divergence_mean", _NATS, _LOWER, 1),
    "Median": ("kl_divergence_median", _NATS, _LOWER, 2),
    "Maximum": ("kl_divergence_max", _NATS, _LOWER, 2),
    "Minimum": ("kl_divergence_min", _NATS, _LOWER, 3),
    **{f"KLD_{percent}": (f"kl_divergence_p{int(percent)}", _NATS, _LOWER, 3)
       for percent in ("99", "95", "90", "10", "05", "01")},
}  # fmt: skip
_LAST = ("Same top p", "KLD_10")
"""Last lines of the statistics, today and early in 2024."""


def has_kl_divergence(text: str) -> bool:
    """Return True if a log is from such a run."""
    return _HEAD.search(text) is not None


def kl_divergence_result(text: str) -> tuple[tuple[Metric, ...], bool]:
    """Return the statistics, and True if they are complete; without them, the values after the last chunk.

    Raises:
        ParseError: if the log has neither, or a line lacks the expected numbers.
    """
    lines = ((" ".join(match["label"].split()), match["rest"]) for match in _LINE.finditer(text))
    told = [(label, rest) for label, rest in lines if label in _NAMES]
    found: dict[str, Metric] = {}
    for label, rest in told:
        for metric in _metrics(_NAMES[label], rest, label):
            found.setdefault(metric.name, metric)  # one build writes a percentile twice
    if not found:
        return tuple(_running(text)), False
    return tuple(found.values()), told[-1][0] in _LAST


def _metrics(known: tuple[str, str, Relativity, int], rest: str, label: str) -> Iterator[Metric]:
    name, unit, relativity, verbosity = known
    match = _REST.fullmatch(rest)
    if match is None or ("%" in rest) is not (unit == "ratio" and name != "perplexity_ratio"):
        raise ParseError(f"{label} is {rest[:60]!r}, which is not a number with its uncertainty")
    value, error = number(match["value"], label), measured(match["error"], f"the uncertainty of {label}")
    percent = "%" in rest
    for suffix, told, level in (("", value, verbosity), ("_stderr", error, 3)):
        if told is not None:
            own: dict[str, MetadataValue] = {"tool_value": told, "tool_unit": "percent"} if percent else {}
            direction = Relativity.LOWER if suffix else relativity
            text = f"standard error of {label}" if suffix else label
            yield Metric(
                f"{name}{suffix}", told / 100 if percent else told, unit, direction, text, level, metadata=own
            )


def _running(text: str) -> Iterator[Metric]:
    """Yield the running values of the last chunk (perplexity, ratio and divergence) without their errors."""
    rows = [match for match in _CHUNK.finditer(text) if len(_VALUES.findall(match.group())) >= 4]  # noqa: PLR2004
    if not rows:
        raise ParseError("no chunk of the KL divergence was computed")
    values = [float(value) for value in _VALUES.findall(rows[-1].group())]
    # The perplexity has had an uncertainty since the spring of 2024.
    divergence = values[4] if len(values) >= 10 else values[3]  # noqa: PLR2004
    yield Metric("perplexity", values[0], "perplexity", _LOWER, "after the last chunk")
    yield Metric("kl_divergence_mean", divergence, _NATS, _LOWER, "after the last chunk")
    yield Metric("kl_divergence_chunks", float(rows[-1]["chunk"]), "count", verbosity=2)
