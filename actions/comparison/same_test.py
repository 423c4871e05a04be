"""Check that variants took the same test: only then do their numbers compare the variants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "mmlu": ("tasks_sha256",),
    "questions": ("tasks_sha256",),
    "perplexity": ("text_sha256", "context", "chunks"),
    "load": ("input_tokens", "output_tokens"),
}
"""Details of a case that must be equal, by the kind of its test."""


def test_name(scenario: str, prefix: str) -> str:
    """Return the test's name from a scenario, such as ``mmlu`` or ``load-8``.

    Args:
        scenario: such as ``m/Q4_K_M/load-8#2``.
        prefix: the model and the variant, such as ``m/Q4_K_M``.
    """
    return scenario.partition("#")[0].removeprefix(f"{prefix}/")


def differing(test: str, details: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that both cases record with different values."""
    names = _SETTINGS.get(test.partition("-")[0], ())
    return [name for name in names if name in details and name in before and details[name] != before[name]]
