"""Tokens per joule: a case's output tokens divided by the energy that it used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core.records import Metric, Relativity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.core.records import ParsedOutput

_ENERGY = "gpu_energy"
_RATES = ("tokens_per_second", "output_tokens_per_second")
_WHOLE = 0.95
"""Share of a case's time for which the energy must be known."""


def tokens_per_joule(output: ParsedOutput, usage: Iterable[ParsedOutput]) -> Metric | None:
    """Return output tokens per joule of all GPUs; None if either is unknown for part of the case.

    Args:
        output: a case, with the start and end of the part that was timed.
        usage: what the monitors recorded during the case.
    """
    if output.start is None or output.end is None:
        return None
    energies = (metric for part in usage for metric in part.metrics if metric.name == _ENERGY)
    energy = next(energies, None)
    rates = {metric.name: metric.value for metric in output.metrics if metric.unit == "tokens/s"}
    rate = next((rates[name] for name in _RATES if name in rates), None)
    if energy is None or not energy.value or not rate:
        return None
    seen = energy.metadata.get("coverage", 1.0)
    if not isinstance(seen, float | int) or seen < _WHOLE:
        return None
    tokens = rate * (output.end - output.start).total_seconds()
    text = "output tokens by the energy of all GPUs"
    return Metric("tokens_per_joule", tokens / energy.value, "tokens/J", Relativity.HIGHER, text, verbosity=1)
