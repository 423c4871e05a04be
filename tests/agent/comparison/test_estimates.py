"""Known answers: t distribution, estimates, verdicts, block bootstrap, and the rates of wrong verdicts."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.comparison.block_bootstrap import Query, block_length, error_of_mean, sampling_error
from agent.comparison.estimates import Block, Estimate, Method, Noise, estimate, noise_between_runs
from agent.comparison.student_t import two_sided_p_value, two_sided_quantile
from agent.comparison.verdicts import Outcome, largest_true, verdicts

THRESHOLD = 0.02


@pytest.mark.parametrize(
    # Tables of Student's t distribution: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2
    ("confidence", "degrees", "quantile"),
    [
        (0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 4, 2.776), (0.95, 8, 2.306), (0.95, 30, 2.042),
        (0.99, 5, 4.032), (0.9, 10, 1.812), (0.998, 3, 10.215), (0.95, 100, 1.984), (0.95, math.inf, 1.960),
    ],
)  # fmt: skip
def test_quantiles_are_those_of_the_tables(confidence: float, degrees: float, quantile: float) -> None:
    assert two_sided_quantile(confidence, degrees) == pytest.approx(quantile, abs=6e-4)
    assert two_sided_p_value(quantile, degrees) == pytest.approx(1 - confidence, rel=2e-3)


@given(st.floats(0, 50), st.floats(0.5, 1e5))
def test_a_p_value_is_a_share_and_falls_with_t(t: float, degrees: float) -> None:
    p_value = two_sided_p_value(t, degrees)
    assert 0 <= two_sided_p_value(t + 0.5, degrees) <= p_value <= 1 + 1e-9
    assert two_sided_p_value(-t, degrees) == p_value


def _chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - noise


def _runs(chance: random.Random, count: int, middle: float = 100, noise: float = 0.01) -> list[float]:
    return [middle * math.exp(chance.gauss(0, noise)) for _ in range(count)]


def _found(*blocks: Block, history: Noise | None = None) -> Estimate:
    found = estimate(blocks, history)
    assert found
    return found


def test_welchs_t_test_gives_the_textbooks_numbers() -> None:
    # The extra hours of sleep in Student's data (Biometrika 6, 1908); R's t.test gives t -1.8608,
    # df 17.776, p 0.07939, interval -3.3655 to 0.2055.
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = _found(Block(first, second))
    assert (found.method, found.in_logarithms) == (Method.REPEATS, False)
    assert found.difference / found.error == pytest.approx(1.8608, abs=1e-4)
    assert found.degrees == pytest.approx(17.776, abs=1e-3)
    assert found.p_value == pytest.approx(0.07939, abs=1e-5)
    assert found.interval == pytest.approx((-0.2055 / 0.75, 3.3655 / 0.75), abs=1e-3)


def test_hosts_are_compared_each_with_itself() -> None:
    hosts = (1.0, 2.0, 8.0, 3.0)
    paired = _found(*(Block([speed], [speed * factor]) for speed, factor in
                      zip(hosts, (1.05, 1.04, 1.05, 1.06), strict=True)))  # fmt: skip
    assert paired.method is Method.HOSTS
    assert paired.change == pytest.approx(0.05, abs=1e-3)
    assert paired.interval[0] > 0.03
    mixed = _found(Block(hosts, [1.05, 2.08, 8.4, 3.18]))
    assert mixed.interval[0] < -0.5


def test_repeats_on_hosts_of_different_speed_are_not_noise() -> None:
    chance = _chance(3)
    blocks = [Block(_runs(chance, 3, speed), _runs(chance, 3, speed * 1.05)) for speed in (10, 100, 1000)]
    found = _found(*blocks)
    assert found.method is Method.REPEATS
    assert 0.03 < found.interval[0] < 0.05 < found.interval[1] < 0.07


def test_a_single_run_takes_its_noise_from_the_repeats_of_the_other_side() -> None:
    before = [100.0, 101.0, 99.0, 100.5, 99.5]
    found = _found(Block(before, [103.0]))
    deviation = statistics.stdev(map(math.log, before))
    assert (found.method, found.degrees) == (Method.POOLED, 4)
    assert found.error == pytest.approx(deviation * math.sqrt(1 + 1 / 5))


def test_history_is_the_noise_of_single_runs() -> None:
    noise = noise_between_runs([[100.0, 102.0], [50.0, 51.0], [7.0]])
    assert noise is not None
    assert (noise.deviation, noise.degrees) == (pytest.approx(math.log(1.02) / math.sqrt(2)), 2)
    assert noise_between_runs([[1.0], [2.0]]) is None
    found = _found(Block([100], [103]), history=Noise(0.01, 10))
    assert (found.method, found.degrees) == (Method.HISTORY, 10)
    assert found.error == pytest.approx(0.01 * math.sqrt(2))
    with_samples = estimate([Block([100], [103])], Noise(0.01, 10), (0.03, 0.04))
    assert with_samples is not None
    assert with_samples.error == pytest.approx(math.sqrt(0.05**2 + 2 * 0.01**2))


def test_without_any_noise_between_runs_only_the_implausible_is_a_change() -> None:
    def of(after: float) -> Outcome:
        found = estimate([Block([100], [after])], None, (1e-4, 1e-4))
        assert found
        assert found.method is Method.ASSUMED
        return verdicts([found], THRESHOLD)[0]

    assert [of(after) for after in (100, 103, 115, 150)] == [Outcome.UNDECIDED] * 3 + [Outcome.CHANGED]


def test_repeats_that_are_all_alike_leave_no_doubt() -> None:
    same, other = _found(Block([5, 5], [5, 5])), _found(Block([5, 5], [6, 6]))
    assert verdicts([same, other], THRESHOLD) == [Outcome.SAME, Outcome.CHANGED]
    assert _found(Block([0, 0], [0, 0])).change == 0
    assert estimate([Block([0, 0], [1, 2])]) is None


def test_more_than_noise_but_less_than_the_threshold_is_no_change() -> None:
    chance = _chance(1)
    found = _found(Block(_runs(chance, 50, 100, 0.001), _runs(chance, 50, 101, 0.001)))
    assert found.p_value < 1e-6
    assert verdicts([found], THRESHOLD) == [Outcome.SAME]
    assert verdicts([found], 0.005) == [Outcome.CHANGED]


def test_benjamini_and_hochberg() -> None:
    # The example in Benjamini and Hochberg (1995, 4.2): 15 p values, of which the first four are rejected.
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
                0.5719, 0.6528, 0.7590, 1.0]  # fmt: skip
    assert largest_true(p_values) == 0.0095
    assert largest_true([0.5, 0.06]) < 0
    assert largest_true([]) < 0


def test_rates_of_wrong_verdicts() -> None:
    chance = _chance(17)
    trials = 400
    alarms = found = 0
    for _ in range(trials):
        alike = [Block(_runs(chance, 5), _runs(chance, 5)) for _ in range(4)]
        alarms += Outcome.CHANGED in verdicts([_found(block) for block in alike], THRESHOLD)
        slower = _found(Block(_runs(chance, 5), _runs(chance, 5, 97)))
        found += verdicts([slower], THRESHOLD) == [Outcome.CHANGED]
    assert alarms / trials <= 0.05
    assert found / trials >= 0.9


def _autocorrelated(chance: random.Random, count: int, correlation: float) -> list[float]:
    values, value = [], chance.gauss(0, 1)
    for _ in range(count):
        values.append(value)
        value = correlation * value + math.sqrt(1 - correlation**2) * chance.gauss(0, 1)
    return values


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_the_block_bootstrap_knows_the_error_of_a_mean_of_dependent_values(correlation: float) -> None:
    count = 4000
    truth = math.sqrt((1 + correlation) / (1 - correlation) / count)
    errors = []
    for seed in range(5):
        series = _autocorrelated(_chance(seed), count, correlation)
        block, is_short = block_length(series)
        assert not is_short
        errors.append(error_of_mean(series, block))
    assert statistics.fmean(errors) == pytest.approx(truth, rel=0.2)


def _queries(chance: random.Random, count: int) -> list[Query]:
    queries, now_s = [], 0.0
    for _ in range(count):
        now_s += chance.expovariate(40)
        first_s = now_s + chance.lognormvariate(-1, 0.3)
        queries.append(Query(now_s, first_s, first_s + 1, chance.randint(50, 150)))
    return sorted(queries, key=lambda query: query.completed_s)


def _figures(queries: list[Query]) -> dict[str, float]:
    ttft = sorted((query.first_token_s or 0) - query.issued_s for query in queries)
    span_s = queries[-1].completed_s - min(query.issued_s for query in queries)
    return {
        "ttft_mean": statistics.fmean(ttft),
        "ttft_p90": ttft[math.floor(0.9 * len(ttft))],
        "tokens_per_second": sum(query.tokens for query in queries) / span_s,
        "samples_per_second": len(queries) / span_s,
    }


def test_the_samples_of_a_run_tell_how_much_its_figures_vary() -> None:
    runs = [_queries(_chance(seed), 1500) for seed in range(60)]
    figures = [_figures(queries) for queries in runs]
    for metric in figures[0]:
        truth = statistics.stdev(math.log(one[metric]) for one in figures)
        errors = [
            sampling_error(metric, one[metric], queries)
            for one, queries in zip(figures[:8], runs, strict=False)
        ]
        assert statistics.fmean(error.value for error in errors if error) == pytest.approx(truth, rel=0.35)
        assert all(errors)


@pytest.mark.parametrize(
    ("metric", "share", "count"),
    [
        ("ttft_mean", 1.1, 1500),  # not the figure of the samples
        ("ttft_mean", 1, 99),
        ("ttft_p99_9", 1, 1500),  # two queries beyond it
        ("accuracy", 1, 1500),
        ("tpot_p90", 0, 1500),
    ],
)
def test_what_the_samples_cannot_tell_is_not_told(metric: str, share: float, count: int) -> None:
    queries = _queries(_chance(1), count)
    recorded = _figures(queries).get(metric, 1.0) * share
    assert sampling_error(metric, recorded, queries) is None
