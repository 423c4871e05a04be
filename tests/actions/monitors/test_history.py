from __future__ import annotations

import pytest

from actions.monitors.history import History, Statistic, Total


def history(*rows: dict[str, float], limit: int = 100) -> History:
    """Return a history with one row per second, starting at second 0."""
    made = History(limit)
    for second, values in enumerate(rows):
        made.add(second, second + 1, values)
    return made


def test_rows_at_the_edge_of_a_span_count_by_their_share() -> None:
    watts = history({"w": 100}, {"w": 200}, {"w": 600})
    assert watts.statistic("w", 0.5, 2.0) == Statistic(pytest.approx((50 + 200) / 1.5), 200, 1.5)
    assert watts.total("w", 0.5, 2.25) == Total(50 + 200 + 150, 1.75)


def test_the_highest_is_that_of_the_span_not_of_its_neighbours() -> None:
    watts = history({"w": 900}, {"w": 200}, {"w": 900})
    found = watts.statistic("w", 0.9, 2.1)
    assert found is not None
    assert found.maximum == 200
    short = watts.statistic("w", 0.1, 0.2)
    assert short is not None
    assert short.maximum == 900


def test_a_rate_over_a_row_cut_short_is_no_maximum() -> None:
    bursts = History(interval_s=1.0)
    for start_s, end_s, rate in ((0.0, 1.0, 50.0), (1.0, 2.0, 60.0), (2.0, 2.01, 1600.0)):
        bursts.add(start_s, end_s, {"sent": rate})
    found, read = (bursts.statistic("sent", 0, 2.01, is_counted=counted) for counted in (True, False))
    assert found is not None
    assert read is not None
    assert (found.maximum, read.maximum) == (60.0, 1600.0)
    assert bursts.statistic("sent", 0, 2.01) == read
    assert found.mean == pytest.approx((50 + 60 + 16) / 2.01)
    only = bursts.statistic("sent", 2.0, 2.01, is_counted=True)
    assert only is not None
    assert only.maximum == 1600.0


def test_what_was_not_measured_is_no_zero() -> None:
    some = history({"a": 1}, {"a": 1, "b": 4}, {"b": 8})
    assert some.statistic("b", 0, 3) == Statistic(6, 8, 2)
    assert some.statistic("b", 0, 1) is None
    assert some.total("c", 0, 3) is None
    assert some.statistic("a", 10, 11) is None


def test_bits_are_shares_of_the_known_time() -> None:
    events = history({"e": 4}, {"e": 4 | 64}, {}, {"e": 0}, {"e": 0})
    assert events.bits("e", 0, 5) == {4: 0.5, 64: 0.25}


def test_a_mean_of_the_time_in_which_a_bit_was_set() -> None:
    clock = history({"c": 1, "e": 4}, {"c": 2, "e": 4 | 1}, {"c": 9, "e": 1}, {"c": 9}, {"e": 4})
    assert clock.mean_while("c", 4, "e", 0, 5) == 1.5
    assert clock.mean_while("c", 8, "e", 0, 5) is None
    assert clock.mean_while("d", 4, "e", 0, 5) is None


def test_the_oldest_rows_go() -> None:
    many = history(*({"v": float(number)} for number in range(25)), limit=20)
    assert many.statistic("v", 0, 1) is None
    latest = many.statistic("v", 24, 25)
    assert latest is not None
    assert latest.mean == 24


def test_a_clock_that_stands_or_goes_back_adds_nothing() -> None:
    still = History()
    still.add(5, 5, {"v": 1})
    still.add(5, 4, {"v": 1})
    assert still.statistic("v", 0, 10) is None
    assert still.names() == []


def uneven() -> History:
    """Return rows of 0.25, 4 and 2 seconds."""
    made = History()
    made.add(0.0, 0.25, {"v": 80, "e": 4})
    made.add(0.25, 4.25, {"v": 10, "e": 4 | 2})
    made.add(4.25, 6.25, {"v": 30, "e": 2})
    return made


def test_rows_count_by_their_length() -> None:
    rows = uneven()
    assert rows.statistic("v", 0.0, 5.25) == Statistic((20 + 40 + 30) / 5.25, 80, 5.25)
    assert rows.total("v", 0.0, 4.75) == Total(80 + 10 + 30 / 4, 4.75)
    assert rows.mean_while("v", 2, "e", 2.25, 6.25) == (20 + 60) / 4
    assert rows.mean_while("v", 4, "e", 0.0, 6.25) == (20 + 40) / 4.25
    assert rows.bits("e", 2.25, 5.25) == {4: 2 / 3, 2: 1.0}
    assert rows.covered_s(0.125, 100.0) == 6.125
    assert rows.covered_s(0.125, 1.0) == 0.875
    assert rows.covered_s(7.0, 9.0) == 0.0
    assert sorted(rows.names()) == ["e", "v"]


def test_without_an_interval_every_row_may_be_the_highest() -> None:
    found = uneven().statistic("v", 0.0, 6.25, is_counted=True)
    assert found is not None
    assert found.maximum == 80


def test_half_a_row_within_the_span_and_half_an_interval_are_enough() -> None:
    made = History(interval_s=4.0)
    made.add(0.0, 2.0, {"v": 9})
    made.add(2.0, 6.0, {"v": 1})
    for start_s, maximum in ((1.0, 9), (1.25, 1)):
        found = made.statistic("v", start_s, 6.0, is_counted=True)
        assert found is not None
        assert found.maximum == maximum
    made.add(6.0, 7.75, {"v": 50})
    found = made.statistic("v", 0.0, 7.75, is_counted=True)
    assert found is not None
    assert found.maximum == 9


def test_a_row_that_begins_at_the_end_of_the_span_is_outside() -> None:
    found = history({"w": 100}, {"w": 900}).statistic("w", 0.75, 1.0)
    assert found == Statistic(100, 100, 0.25)


@pytest.mark.parametrize(("rows", "kept"), [(20, 20), (21, 19), (22, 20), (23, 19)])
def test_a_tenth_of_the_limit_goes_at_once(rows: int, kept: int) -> None:
    many = history(*({"v": 1.0} for _ in range(rows)), limit=20)
    assert many.covered_s(0, 100) == kept
