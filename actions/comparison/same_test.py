"""Whether variants were put to the same test: only then do their numbers tell of the variants."""

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
"""By the kind of a test: the details of its case that must be the same."""


def test_name(scenario: str, prefix: str) -> str:
    """What a scenario calls the test, such as ``mmlu`` or ``load-8``.

    Args:
        scenario: such as ``m/Q4_K_M/load-8#2``.
        prefix: model and variant.
    """
    return scenario.partition("#")[0].removeprefix(f"{prefix}/")


def differing(test: str, details: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """The settings of a test that two cases both tell, and tell differently."""
    names = _SETTINGS.get(test.partition("-")[0], ())
    return [name for name in names if name in details and name in before and details[name] != before[name]]
