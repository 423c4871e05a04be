"""A metric is either a finite number with a unit, or absent."""

import math

import pytest

from agent.core.records import Metric


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not a finite number"):
        Metric("x", value, "seconds")


@pytest.mark.parametrize(("name", "unit"), [("", "seconds"), ("x", "")])
def test_name_and_unit_are_needed(name: str, unit: str) -> None:
    with pytest.raises(ValueError, match="needs a name and a unit"):
        Metric(name, 1.0, unit)
