"""Reads ``llama-perplexity``: ``[chunk]running value,`` and ``Final estimate: PPL = … +/- …``.

Source: tools/perplexity/perplexity.cpp, perplexity().
"""

from __future__ import annotations

import re

from agent.core.errors import ParseError
from agent.core.records import Metric, Relativity
from parsers.llamacpp.runs import one
from parsers.numbers import finite, measured, whole

_HEAD = re.compile(r"(?:calculating perplexity|computing) over (?P<chunks>\d+) chunks")
_RUNNING = re.compile(r"\[(?P<chunk>\d{1,9})\](?P<value>-?\w{1,40}\.?\d{0,40}),")
_FINAL = re.compile(r"Final estimate: PPL = (?P<value>\S+)(?: \+/- (?P<error>\S+))?[ \t]*$", re.MULTILINE)
_ERROR = re.compile(
    r"^.*(you need at least .*|the data file you provided .*|Unexpected negative standard deviation.*)$",
    re.MULTILINE,
)
_OVERFLOW = (
    "on a GPU llama.cpp multiplies F16 in half precision, where some models overflow: set the environment "
    "variable GGML_CUDA_CUBLAS_COMPUTE_TYPE=f32; else make the variant again"
)
"""ggml/src/ggml-cuda/ggml-cuda.cu, ``ggml_cuda_mul_mat_cublas``."""


def has_perplexity(text: str) -> bool:
    """Return True if a log is from such a run."""
    return bool(_HEAD.search(text) or _FINAL.search(text))


def perplexity_complete(text: str) -> bool:
    """Return True if the log contains the final estimate."""
    return _FINAL.search(text) is not None


def chunks_done(line: str) -> int | None:
    """Return the last chunk in a line of running values, or None for any other line."""
    running = list(_RUNNING.finditer(line))
    return whole(running[-1]["chunk"]) if running else None


def values_in(line: str) -> str:
    """Return the running values of an unterminated line, up to its last comma; each value ends with one."""
    return "".join(match.group() for match in _RUNNING.finditer(line))


def perplexity_metrics(text: str) -> tuple[Metric, ...]:
    """Return the perplexity and its standard error; if the log was cut off, the last running value.

    Raises:
        ParseError: if the log has no finite value, one below 0, or several results.
    """
    final = one(_FINAL, text, "final estimate")
    running = list(_RUNNING.finditer(text))
    if final:
        value = measured(final["value"], "the perplexity")
    else:
        value = finite(running[-1]["value"]) if running else None
        value = measured(value, "the perplexity")
    if value is None:
        raise ParseError(
            "no perplexity was measured, or it is not a number",
            remedy=_OVERFLOW if final or running else None,
            details=tuple(match[1].strip() for match in _ERROR.finditer(text)),
        )
    metrics = [Metric("perplexity", value, "perplexity", Relativity.LOWER, "exp of the mean loss per token")]
    error = measured(final["error"], "the standard error") if final else None
    if error is not None:
        metrics.append(
            Metric("perplexity_stderr", error, "perplexity", Relativity.LOWER, "standard error", verbosity=2)
        )
    if running:
        metrics.append(Metric("perplexity_chunks", float(running[-1]["chunk"]), "count", verbosity=2))
    return tuple(metrics)
