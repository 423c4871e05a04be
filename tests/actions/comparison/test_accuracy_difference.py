"""Decides whether a difference is larger than the noise."""

from __future__ import annotations

import math

import pytest

from actions.comparison.accuracy_difference import PAIRED, UNPAIRED, paired, unpaired


def answers(both: int, gained: int, lost: int, neither: int) -> tuple[list[bool], list[bool]]:
    now = [True] * both + [True] * gained + [False] * lost + [False] * neither
    before = [True] * both + [False] * gained + [True] * lost + [False] * neither
    return now, before


@pytest.mark.parametrize(
    ("gained", "lost", "p_value"),
    [
        (0, 0, 1.0),
        (1, 1, 1.0),
        (5, 15, 0.041389),  # scipy.stats.binomtest(5, 20).pvalue
        (0, 6, 0.03125),  # 2 / 2**6
        (3, 7, 0.34375),
        (40, 60, 0.0568879),
    ],
)
def test_mcnemar_s_exact_test(gained: int, lost: int, p_value: float) -> None:
    now, before = answers(50, gained, lost, 30)
    found = paired(now, before)
    assert found.p_value == pytest.approx(p_value, rel=1e-4)
    assert found.value == pytest.approx((gained - lost) / (80 + gained + lost))
    assert found.test == PAIRED


def test_the_standard_error_of_a_paired_difference() -> None:
    # By definition: the standard deviation of the differences (1, 0, -1) over the root of their number.
    now, before = answers(50, 5, 15, 30)
    differences = [int(a) - int(b) for a, b in zip(now, before, strict=True)]
    mean = sum(differences) / 100
    variance = sum((value - mean) ** 2 for value in differences) / 100
    assert paired(now, before).stderr == pytest.approx(math.sqrt(variance / 100))


def test_pairing_sees_what_two_proportions_cannot() -> None:
    now, before = answers(70, 0, 8, 22)
    error = [math.sqrt(share * (1 - share) / 100) for share in (0.70, 0.78)]
    assert paired(now, before).p_value < 0.01
    assert unpaired(0.70, error[0], 0.78, error[1]).p_value > 0.1


def test_the_two_proportion_test_of_the_probe_s_own_numbers() -> None:
    found = unpaired(0.5, 0.037, 0.5167, 0.037)
    assert found.test == UNPAIRED
    assert found.stderr == pytest.approx(0.0523, rel=0.01)
    assert found.p_value == pytest.approx(0.7496, rel=0.01)
    assert unpaired(0.5, 0.0, 0.5, 0.0).p_value == 1
    assert unpaired(0.6, 0.0, 0.5, 0.0).p_value == 0


def test_answers_of_other_questions_are_not_paired() -> None:
    with pytest.raises(ValueError, match="3 answers cannot be paired with 2"):
        paired([True] * 3, [True] * 2)
    with pytest.raises(ValueError, match="0 answers"):
        paired([], [])
