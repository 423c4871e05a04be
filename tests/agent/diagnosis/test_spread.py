"""The statistics against tables, and against the same values computed in another way."""

from __future__ import annotations

import math
import statistics

import pytest

from agent.diagnosis.spread import (
    Sample,
    _humps_limit,
    median_and_mad,
    modified_z_score,
    outliers,
    sample_of,
    t_limit,
    t_tail,
    two_humps,
)


def test_the_distance_in_deviations_of_the_median() -> None:
    assert median_and_mad([1, 9, 4, 2]) == (3, 1.5)
    assert modified_z_score(5, 3, 1.5) == pytest.approx(0.6745 * 2 / 1.5)
    assert modified_z_score(2, 3, 1.5) == pytest.approx(-0.6745 / 1.5)
    assert [modified_z_score(value, 3, 0) for value in (4, 3, 2)] == [math.inf, 0, -math.inf]


@pytest.mark.parametrize(
    ("t", "freedom", "tail", "error"),
    [
        (12.706205, 1, 0.025, 1e-7),
        (4.302653, 2, 0.025, 1e-7),
        (2.353363, 3, 0.05, 1e-7),
        (2.131847, 4, 0.05, 1e-7),
        (4.032143, 5, 0.005, 1e-7),
        (1.943180, 6, 0.05, 1e-7),
        (2.364624, 7, 0.025, 1e-7),
        (1.660234, 100, 0.05, 1e-7),
        (2.0, 100, 0.024106089366, 1e-9),
        (1.660081, 101, 0.05, 1e-5),
        (2.600634, 200, 0.005, 1e-5),
    ],
)
def test_the_tail_of_students_t(t: float, freedom: int, tail: float, error: float) -> None:
    assert t_tail(t, freedom) == pytest.approx(tail, abs=error)
    assert t_tail(-t, freedom) == pytest.approx(1 - tail, abs=error)
    assert t_limit(tail, freedom) == pytest.approx(t, rel=1e-4)
    assert t_tail(0.0, freedom) == pytest.approx(0.5)
    assert t_tail(math.inf, freedom) == 0.0


FLEET = {"a": (1.0, 2.0), "b": (4.0,), "c": (7.0, 9.0, 8.0), "d": (30.0,)}


def test_a_sample_has_the_values_of_all_hosts() -> None:
    every = [1.0, 2.0, 4.0, 7.0, 9.0, 8.0, 30.0]
    mean, deviation = statistics.fmean(every), statistics.stdev(every)
    assert sample_of(FLEET) == Sample(mean, deviation, 4, 7, 1.0, 30.0)
    assert sample_of(FLEET).values == FLEET
    assert sample_of({"a": (3.0,)}) == Sample(3.0, 0.0, 1, 1, 3.0, 3.0)
    assert sample_of({"a": (3.0, 5.0)}) == Sample(4.0, 2**0.5, 1, 2, 3.0, 5.0)


@pytest.mark.parametrize("host", FLEET)
@pytest.mark.parametrize("value", [-3.0, 8.0, 41.0])
def test_a_host_is_compared_with_the_others(host: str, value: float) -> None:
    others = [each for name, own in FLEET.items() if name != host for each in own]
    scale = statistics.stdev(others) * math.sqrt(1 + 1 / 3)
    t = (value - statistics.fmean(others)) / scale
    sample = sample_of(FLEET)
    assert sample.tail(value, host, 1) == pytest.approx(t_tail(t, 2))
    assert sample.tail(value, host, -1) == pytest.approx(t_tail(-t, 2))
    assert sample.tail(value, host, 0) == pytest.approx(min(1, 2 * t_tail(abs(t), 2)))
    assert sample.least_seen(host, 0.05) == pytest.approx(t_limit(0.05, 2) * scale)


def test_a_host_that_is_not_in_the_sample_is_compared_with_all() -> None:
    sample = Sample(10.0, 2.0, 4)
    scale = 2 * math.sqrt(1 + 1 / 4)
    assert sample.tail(13.0, "x", 1) == pytest.approx(t_tail(3 / scale, 3))
    assert sample.least_seen("x", 0.05) == pytest.approx(t_limit(0.05, 3) * scale)
    alike = Sample(10.0, 0.0, 4)
    assert [alike.tail(value, "x", 1) for value in (9.0, 10.0, 11.0)] == [1.0, pytest.approx(0.5), 0.0]
    for few in (
        Sample(1.0, 1.0, 1),
        sample_of({"a": (1.0, 5.0), "x": (2.0,)}),
        sample_of({"a": (1.0,), "x": (2.0,)}),
    ):
        assert few.tail(3.0, "x", 1) is None
        assert few.least_seen("x", 0.05) is None
    two = sample_of({"a": (1.0,), "b": (5.0,), "x": (4.0,)})
    assert two.tail(3.0, "x", 1) == pytest.approx(0.5)
    assert two.least_seen("x", 0.05) == pytest.approx(t_limit(0.05, 1) * statistics.stdev((1, 5)) * 1.5**0.5)
    # Without two other values, their spread is unknown.
    assert Sample(3.0, 1.0, 3, 2, values={"a": (2.0,), "x": (4.0,)}).tail(3.5, "x", 1) == 0.0


@pytest.mark.parametrize(
    ("runs", "sign", "tail"),
    [
        # Of the 35 ways to draw 3 of 7 runs, 13 have at least 2 of the 3 worst, 4 have 3 of the 4 worst.
        # There are two questions (more than half, all), so each probability counts twice.
        ((6, 5, 12), -1, 2 * 13 / 35),
        ((12, 15, 16), 1, 2 * 4 / 35),
        # A run at the centre is not bad; one that is just beyond is.
        ((7,), -1, 1.0),
        ((6.5,), -1, 2 / 5),
        # A run that is as bad as another does not have a better place.
        ((2,), -1, 2 / 5),
        ((9,), 1, 3 / 5),
        ((14,), 1, 2 / 5),
        # The furthest of 4 other runs is 7 off, noise reaches 7 * (1 + 1.5 ** 2). This is twice as far.
        ((7 + 2 * 7 * 3.25,), 1, 1 / 5 / 2**2.5),
        ((7 - 2 * 7 * 3.25,) * 2, -1, 1 / 15 / 2**6),
        ((7 - 4 * 7 * 3.25, 7 - 2 * 7 * 3.25), -1, 1 / 15 / 2**6),
        ((7 + 7 * 3,), 1, 1 / 5),
    ],
)
def test_the_chance_of_runs_among_those_of_others(runs: tuple[float, ...], sign: int, tail: float) -> None:
    others = {"a": (2.0, 9.0), "b": (14.0, 8.0)}
    assert sample_of(others).noise_tail(runs, "c", sign, 7) == pytest.approx(tail)
    assert sample_of(others | {"c": (-900.0, 900.0)}).noise_tail(runs, "c", sign, 7) == pytest.approx(tail)


@pytest.mark.parametrize(
    ("run", "sign", "tail"),
    [(15, 1, 1 / 5), (14, 1, 1.0), (13, 1, 1.0), (1, -1, 1 / 5), (2, -1, 1.0), (3, -1, 1.0)],
)
def test_of_a_file_only_the_range_is_known(run: float, sign: int, tail: float) -> None:
    assert Sample(0, 0, 2, 4, 2, 14).noise_tail((run,), "c", sign, 7) == pytest.approx(tail)


def test_the_chance_of_runs_needs_two_others_and_their_range() -> None:
    assert Sample(0, 0, 2, 2, 6, 9).noise_tail((5,), "c", -1, 7) == pytest.approx(1 / 3)
    for unknown in (Sample(0, 0, 2, 1, 6, 9), Sample(0, 0, 2, 2, 6), Sample(0, 0, 2, 2, None, 9)):
        assert unknown.noise_tail((5,), "c", -1, 7) is None


@pytest.mark.parametrize(
    ("runs", "tail"),
    [
        # Of the 10 ways to draw 2 of 5 runs, 1 has the 2 worst, 3 have 2 of the 3 worst.
        ((1, 1.5), 1 / 10),
        ((1, 2.5), 3 / 10),
        # The furthest of 3 other runs is 7 off. These two are twice as far as noise reaches.
        ((7 - 2 * 7 * (1 + 2**2),) * 2, 1 / 10 / 2**6),
        ((8,), 1),
    ],
)
def test_the_chance_that_noise_makes_runs_this_bad(runs: tuple[float, ...], tail: float) -> None:
    sample = sample_of({"a": (2, 9), "b": (14,)})
    assert sample.noise_tail(runs, "c", -1, 7) == pytest.approx(tail)
    of_file = Sample(0, 0, 2, 3, 2, 14)
    assert of_file.noise_tail(runs, "c", -1, 7) == pytest.approx(tail if runs[-1] < 2 else 1)
    assert Sample(0, 0, 2).noise_tail(runs, "c", -1, 7) is None


@pytest.mark.parametrize(
    ("runs", "least"),
    [
        # The spread between runs is 1 with 6 degrees of freedom; t(0.05) is 1.943.
        ((89, 90, 91), 100 - 90 - 1.943180 * math.sqrt(1 / 3 + 1 / 6)),
        ((109, 110, 111), 100 - 110 - 1.943180 * math.sqrt(1 / 3 + 1 / 6)),
        # A single run adds nothing to the spread, and counts for one: 4 degrees of freedom.
        ((90,), 100 - 90 - 2.131847 * math.sqrt(1 + 1 / 6)),
    ],
)
def test_the_distance_that_noise_between_runs_cannot_explain(runs: tuple[float, ...], least: float) -> None:
    sample = sample_of({"a": (98, 99, 100), "b": (100, 101, 102), "c": (1, 2, 3)})
    assert sample.least_distance(runs, "c", -1, 0.05) == pytest.approx(least, rel=1e-5)
    mirrored = sample_of({"a": (-98, -99, -100), "b": (-100, -101, -102)})
    assert mirrored.least_distance([-run for run in runs], "c", 1, 0.05) == pytest.approx(least, rel=1e-5)


def test_without_repeats_or_two_other_hosts_there_is_no_such_distance() -> None:
    assert sample_of({"a": (1,), "b": (2,)}).least_distance((3,), "c", 1, 0.05) is None
    assert sample_of({"a": (1, 2), "c": (2, 3)}).least_distance((3, 4), "c", 1, 0.05) is None
    assert Sample(0, 1, 4, 12).least_distance((3, 4), "c", 1, 0.05) is None


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([], []),
        ([1.0], []),
        ([1.0, 2.0, 90.0], []),
        ([100, 101, 99, 100.5, 99.5, 100.2, 99.8, 150], [150]),
        ([100, 101, 99, 100.5, 99.5, 100.2, 99.8, 50], [50]),
        ([100, 101, 99, 100.5, 99.5, 100.2, 99.8, 151, 150], [151, 150]),
        ([-100, -101, -99, -100.5, -99.5, -100.2, -99.8, 50], [50]),
        ([100.0] * 7 + [101.9], []),
        ([100.0] * 7 + [102.1], [102.1]),
        ([100.0] * 7 + [98.1], []),
        ([100.0] * 7 + [97.9], [97.9]),
        ([0.0] * 7 + [0.001], [0.001]),
        ([100.0] * 8, []),
        ([50, 100, 101, 99, 100.5, 99.5, 100, 150], [150, 50]),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 12.0], []),
    ],
)
def test_outliers(values: list[float], found: list[float]) -> None:
    assert outliers(values, len(values)) == found


@pytest.mark.parametrize("hosts", [1, 2, 3, 5, 9, 99])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("share", [0.9999, 1.0001])
def test_the_limit_of_an_outlier(hosts: int, sign: int, share: float) -> None:
    others = [sign * value for value in (1.0, 2.0, 3.0, 6.0, 5.0, 4.0, 9.0)]
    scale = statistics.stdev(others) * math.sqrt(1 + 1 / 7)
    limit = sign * scale * t_limit(0.01 / 8, max(1, min(7, hosts) - 1))
    value = statistics.fmean(others) + limit * share
    assert outliers([*others, value], hosts) == ([value] if share > 1 else [])


def test_the_number_of_hosts_limits_what_their_runs_tell() -> None:
    values = [100, 101, 99, 100.5, 99.5, 100.2, 99.8, 104]
    assert outliers(values, 8) == [104]
    assert outliers(values, 3) == []


@pytest.mark.parametrize(
    ("values", "humps"),
    [
        ([10.0, 20.0, 10.0], None),
        ([5.0] * 8, None),
        ([20.0, 10.0, 20.0, 10.0], ([10.0, 10.0], [20.0, 20.0])),
        ([10.0, 10.1, 20.0, 20.1, 20.2, 20.3], ([10.0, 10.1], [20.0, 20.1, 20.2, 20.3])),
        ([20.0, 20.1, 10.0, 10.1, 10.2, 10.3], ([10.0, 10.1, 10.2, 10.3], [20.0, 20.1])),
        ([0.1] * 4 + [0.2] * 4, ([0.1] * 4, [0.2] * 4)),
        ([10.0, 30.0, 30.0, 30.0], ([10.0], [30.0] * 3)),
        ([10.0, 10.0, 10.0, 30.0], ([10.0] * 3, [30.0])),
        ([100.0] * 5 + [103.0] * 4, None),
        ([100.0] * 4 + [102.9] * 4, None),
        ([100.0] * 4 + [103.2] * 4, ([100.0] * 4, [103.2] * 4)),
        ([-103.2] * 4 + [-100.0] * 4, ([-103.2] * 4, [-100.0] * 4)),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], None),
    ],
)
def test_two_humps(values: list[float], humps: tuple[list[float], list[float]] | None) -> None:
    assert two_humps(values) == humps


@pytest.mark.parametrize(
    ("count", "limit"),
    [
        (4, 0.003),
        (8, 0.0621),
        (9, (0.0621 + 0.094) / 2),
        (14, 0.1303),
        (20, 0.1658),
        (28, 0.1928),
        (32, 0.2),
        (99, 0.2),
    ],
)
def test_the_limit_of_humps_is_on_a_line_between_known_numbers(count: int, limit: float) -> None:
    assert _humps_limit(count) == pytest.approx(limit)
