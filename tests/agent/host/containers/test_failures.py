"""Engines' messages become errors with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.yaml_data import yaml_data
from agent.host.containers.failures import FAILURES, engine_error

CASES = yaml_data((Path(__file__).parent / "cases" / "failures.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['problem']}: {case['said'][:30]}")
def test_a_message_has_its_remedy(case: dict[str, str]) -> None:
    error = engine_error("it cannot be started", case["said"])
    assert error.problem == case["problem"]
    assert case["remedy"] in (error.remedy or "")
    assert " ".join(case["said"].split()) in error.message


def test_every_failure_that_is_known_was_seen() -> None:
    assert {failure.problem for failure in FAILURES} - {case["problem"] for case in CASES} == set()
