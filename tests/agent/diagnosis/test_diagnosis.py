"""The diagnosis of sick hosts, with the numbers that it is based on."""

from __future__ import annotations

import json
import math
import random
import statistics
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.errors import UsageError
from agent.core.records import Relativity
from agent.diagnosis.baseline import Baseline, baseline_to_json, make_baselines, read_baselines
from agent.diagnosis.diagnosis import HostState
from agent.diagnosis.judging import diagnose
from agent.diagnosis.observations import Measured, Observations, observe
from agent.diagnosis.rules import default_rules, read_rules
from agent.diagnosis.spread import Sample, t_limit, t_tail
from agent.diagnosis.table import rows, to_markdown

if TYPE_CHECKING:
    from collections.abc import Callable

SPEED = "bench/Offline/tokens_per_second"
DELAY = "bench/Server/ttft_p99"
HIGHER = Relativity.HIGHER
WORSE = read_rules(
    "rules: {slow: {function: variance, criteria: worse > 0.05 and abs(z) > 3.5, metrics: ['bench/*']}}", "r"
)


def _fleet(
    speeds: list[float], metric: str = SPEED, relativity: Relativity = Relativity.HIGHER
) -> list[Measured]:
    unit = "tokens/s" if metric == SPEED else "seconds"
    return [Measured(f"h{number:02}", metric, speed, unit, relativity) for number, speed in enumerate(speeds)]


def _noise(seed: int, middle: float, share: float, count: int) -> list[float]:
    source = random.Random(seed)  # noqa: S311 - noise
    return [source.gauss(middle, middle * share) for _ in range(count)]


def _sick(observed: Observations) -> list[str]:
    found = diagnose(observed, WORSE)
    return [host.host for host in found.hosts if host.defects]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 15), st.sampled_from([0.5, 0.8, 0.9]))
def test_one_slow_host_of_16_is_found_and_no_other(seed: int, slow: int, speed: float) -> None:
    speeds = _noise(seed, 1000, 0.01, 16)
    speeds[slow] = 1000 * speed
    observed = observe(_fleet(speeds))
    assert _sick(observed) == [f"h{slow:02}"]
    assert f"h{slow:02}" in make_baselines(observed)[SPEED].dropped


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_noise_raises_no_alarm(seed: int) -> None:
    delays = _fleet(_noise(seed + 1, 0.2, 0.01, 32), DELAY, Relativity.LOWER)
    assert _sick(observe([*_fleet(_noise(seed, 1000, 0.01, 32)), *delays])) == []


def test_a_host_that_is_better_is_not_sick() -> None:
    assert _sick(observe(_fleet([100.0] * 15 + [200]))) == []
    assert _sick(observe(_fleet([100.0] * 15 + [200], DELAY, Relativity.LOWER))) == ["h15"]


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_order_changes_nothing(data: st.DataObject) -> None:
    numbers = st.floats(0.1, 1000)
    measured = [
        Measured(f"h{host}", f"bench/{metric}", data.draw(numbers), "seconds", Relativity.LOWER)
        for host in range(6)
        for metric in "ab"
        for _ in range(data.draw(st.integers(0, 3)))
    ] + _fleet([1.0, 2, 3, 4, 9])
    shuffled = data.draw(st.permutations(measured))

    def answer(of: list[Measured]) -> str:
        observed = observe(of)
        baselines = make_baselines(observed, WORSE)
        try:
            diagnosis = diagnose(observed, WORSE)
        except UsageError as error:
            return str(error)
        return json.dumps([diagnosis.to_json(), baseline_to_json(baselines)], allow_nan=False)

    assert answer(shuffled) == answer(measured)


@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=20))
def test_a_baseline_is_settled(values: list[float]) -> None:
    observed = observe(_fleet(values))
    baseline = make_baselines(observed).get(SPEED)
    if baseline is None:
        return
    kept = {host: value for host, value in observed.middles(SPEED).items() if host not in baseline.dropped}
    assert baseline.hosts == len(kept) > len(values) / 2
    assert baseline.value == statistics.median(kept.values())
    again = make_baselines(observe(one for one in _fleet(values) if one.host in kept), least_hosts=3)[SPEED]
    assert (again.value, again.mad, again.dropped) == (baseline.value, baseline.mad, ())


@pytest.mark.parametrize("value", [0.0, 7.0, -3.0])
def test_hosts_that_are_all_alike_have_no_spread(value: float) -> None:
    observed = observe(_fleet([value] * 8))
    sample = Sample(value, 0.0, 8, 8, value, value)
    assert make_baselines(observed)[SPEED] == Baseline(value, "tokens/s", 0.0, 8, sample=sample, runs=sample)


def test_where_all_others_are_alike_a_slow_host_is_found_and_a_rounding_is_not() -> None:
    observed = observe(_fleet([100.0] * 6 + [100.001, 50]))
    assert _sick(observed) == ["h07"]
    (defect,) = diagnose(observed, WORSE, make_baselines(observed)).hosts[7].defects
    assert (defect.value, defect.baseline, defect.variance, defect.z) == (50, 100, -0.5, None)


def test_a_baseline_of_0_is_told_not_divided_by() -> None:
    rules = read_rules(
        "rules:\n  v: {function: variance, criteria: x > 0.05, metrics: ['*']}\n"
        "  e: {function: value, criteria: x > 0, metrics: ['*']}",
        "r",
    )
    observed = observe(_fleet([0.0] * 7 + [3]))
    diagnosis = diagnose(observed, rules, make_baselines(observed))
    assert [host.host for host in diagnosis.hosts if host.defects] == ["h07"]
    assert diagnosis.warnings == ("v: 1 value not judged, the baseline is 0: a value rule can judge it",)


def test_violators_of_rules_are_no_part_of_the_baseline() -> None:
    rules = read_rules("rules: {r: {function: variance, criteria: abs(x) > 0.1, metrics: ['*']}}", "r")
    values = [80.0, 85, *(100.0, 100.2, 100.4, 100.6, 100.8, 101)]
    assert make_baselines(observe(_fleet(values)))[SPEED].dropped == ("h00", "h01")
    wide = [80.0, 95, 100, 110, 120, 101]
    assert make_baselines(observe(_fleet(wide)))[SPEED].dropped == ()
    assert make_baselines(observe(_fleet(wide)), rules)[SPEED].dropped == ("h00", "h04")


def test_what_was_not_measured_is_absent_and_not_0() -> None:
    low = read_rules("rules: {low: {function: value, criteria: x < 1, metrics: ['*']}}", "r")
    measured = [*_fleet([5.0, 5, 5, 5]), *_fleet([2.0, 2, 2], DELAY)]
    observed = observe(measured, hosts=["h01", "never-reached"])
    diagnosis = diagnose(observed, low, {})
    by_name = {host.host: host for host in diagnosis.hosts}
    assert not any(host.defects for host in diagnosis.hosts)
    assert by_name["h03"].absent == (DELAY,)
    assert (by_name["h03"].judged, by_name["h00"].judged) == (1, 2)
    assert not by_name["never-reached"].is_good
    assert diagnosis.to_json()["without_records"] == ["never-reached"]
    baseline = make_baselines(observe(measured))
    assert DELAY not in baseline, "three hosts are too few to tell"
    assert baseline[SPEED].hosts == 4


def test_a_failed_or_missing_test_is_a_defect() -> None:
    rules = read_rules(
        "superbench:\n  rules:\n    f:\n      function: failure_check\n      criteria: lambda x:x>0\n"
        "      categories: Failed\n      metrics: [copy/return_code, train/return_code]",
        "r",
    )
    measured = [
        Measured("a", "copy/return_code", 0),
        Measured("b", "copy/return_code", 3),
        Measured("c", "copy/bandwidth", 5),
    ]
    diagnosis = diagnose(observe(measured), rules, {})
    found = {host.host: [(one.metric, one.value) for one in host.defects] for host in diagnosis.hosts}
    assert found == {
        "a": [("train/return_code", None)],
        "b": [("train/return_code", None), ("copy/return_code", 3)],
        "c": [("train/return_code", None), ("copy/return_code", None)],
    }


def test_rules_combine() -> None:
    rules = read_rules(
        """
rules:
  copies: {function: variance, criteria: x < -0.05, metrics: ['copy/*'], store: true}
  steps: {metrics: [train/steps], store: true}
  both:
    function: multi_rules
    criteria: label["copies"] >= 2 and min(label["steps"].values()) < 10
    categories: Machine
""",
        "r",
    )
    measured = [
        Measured(host, metric, value)
        for host, values in {"a": (90, 80, 9), "b": (90, 80, 11), "c": (90, 100, 9), "d": (90, 80)}.items()
        for metric, value in zip(("copy/in:0", "copy/in:1", "train/steps"), values, strict=False)
    ]
    diagnosis = diagnose(observe(measured), rules, {"copy/in": Baseline(100)})
    assert [host.host for host in diagnosis.hosts if host.defects] == ["a"]
    (defect,) = diagnosis.hosts[0].defects
    assert diagnosis.hosts[0].categories == ("Machine",)
    assert [(one.metric, one.value, one.variance) for one in defect.evidence] == [
        ("copy/in:0", 90, pytest.approx(-0.1)),
        ("copy/in:1", 80, pytest.approx(-0.2)),
        ("train/steps", 9, None),
    ]
    assert [row[2] for row in rows(diagnosis)] == ["both", "↳ copies", "↳ copies", "↳ steps"]
    assert diagnosis.warnings == ("both: 1 value not judged, what it combines was not measured",)
    assert "| a | copies | ↳ copies | copy/in:0 | 90 | 100 | -10.0% |" in to_markdown(diagnosis)


def test_several_values_of_a_host() -> None:
    rules = read_rules(
        "rules:\n  any: {function: value, criteria: x > 0, metrics: [b/return_code]}\n"
        "  middle: {function: variance, criteria: x < -0.05, metrics: [b/speed]}",
        "r",
    )
    measured = [Measured("a", "b/return_code", code) for code in (0, 0, 7)]
    measured += [Measured("a", "b/speed", speed) for speed in (100, 99, 10)]
    (host,) = diagnose(observe(measured), rules, {"b/speed": Baseline(100)}).hosts
    assert [(one.rule, one.value) for one in host.defects] == [("any", 7)]


def test_nothing_judged_is_no_clean_bill_of_health() -> None:
    with pytest.raises(UsageError, match="no rule could") as caught:
        diagnose(observe(_fleet([1.0])), WORSE, {})
    assert "there is no baseline" in str(caught.value)


def test_units_must_agree() -> None:
    with pytest.raises(UsageError, match="in milliseconds and in seconds"):
        observe([Measured("a", "m", 1, "seconds"), Measured("b", "m", 1, "milliseconds")])
    with pytest.raises(UsageError, match="in tokens/s, its baseline is in queries/s"):
        diagnose(observe(_fleet([1.0])), WORSE, {SPEED: Baseline(1, "queries/s")})


def test_baselines_are_read_as_they_were_written() -> None:
    made = make_baselines(observe(_fleet([100.0, 101, 102, 103, 50])))
    assert made[SPEED].dropped == ("h04",)
    assert read_baselines(json.dumps(baseline_to_json(made)), "b") == made
    assert read_baselines('{"copy/in": 25.6}', "b") == {"copy/in": Baseline(25.6)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"a": null}',
        '{"a": NaN}',
        '{"a": true}',
        f'{{"a": {10**400}}}',
        '{"schema_version": 2}',
        '{"schema_version": 1, "metrics": {"a": 5}}',
        '{"schema_version": 1, "metrics": {"a": {}}}',
    ],
)
def test_what_is_no_baseline_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"baseline\.json"):
        read_baselines(text, "baseline.json")


def _states(measured: list[Measured], groups: dict[str, str] | None = None) -> dict[str, HostState]:
    found = diagnose(observe(measured), default_rules(), groups=groups)
    return {host.host: host.state for host in found.hosts}


def test_hosts_are_compared_with_their_like() -> None:
    fast, slow = _noise(1, 2000, 0.005, 8), _noise(2, 1000, 0.005, 8)
    measured = _fleet([*fast, *slow[:7], 700])
    groups = {f"h{number:02}": "8 H100" if number < 8 else "8 A100" for number in range(16)}
    states = _states(measured, groups)
    assert [host for host, state in states.items() if state is not HostState.WELL] == ["h15"]
    assert states["h15"] is HostState.SICK
    alone = diagnose(observe(measured), default_rules(), groups=groups | {"h00": "7 H100"})
    by_name = {host.host: host for host in alone.hosts}
    assert by_name["h00"].state is HostState.NOT_JUDGED
    assert "1 host to compare, at least 4 are needed" in by_name["h00"].unjudged[0].reason
    assert by_name["h01"].state is HostState.WELL
    assert any(warning.startswith("7 H100: slower: 1 value not judged") for warning in alone.warnings)


def test_two_humps_are_said_and_nobody_is_well() -> None:
    measured = _fleet([*_noise(3, 1000, 0.003, 8), *_noise(4, 900, 0.003, 8)])
    measured += _fleet([1.0] * 16, DELAY, Relativity.LOWER)
    found = diagnose(observe(measured), default_rules())
    assert {host.state for host in found.hosts} == {HostState.NOT_JUDGED}
    assert not found.is_good
    assert "16 not judged" in found.summary()
    (warning,) = found.warnings
    assert "the hosts lie around two values: 8 near 90" in warning
    assert SPEED not in make_baselines(observe(measured))


def test_a_host_far_from_both_humps_is_still_sick() -> None:
    states = _states(_fleet([*_noise(3, 1000, 0.002, 9), *_noise(4, 900, 0.002, 9), 100]))
    assert [host for host, state in states.items() if state is HostState.SICK] == ["h18"]


def test_where_hosts_differ_much_nobody_is_said_to_be_well() -> None:
    measured = _fleet(_noise(5, 1000, 0.1, 16)) + _fleet([1.0] * 16, DELAY, Relativity.LOWER)
    found = diagnose(observe(measured), default_rules())
    assert {host.state for host in found.hosts} == {HostState.NOT_JUDGED}
    assert "would not be noticed" in found.warnings[0]


def test_one_bad_run_of_three_is_seen() -> None:
    measured = [
        Measured(host, SPEED, value, "tokens/s", Relativity.HIGHER)
        for number in range(16)
        for host in [f"h{number:02}"]
        for value in _noise(number, 1000, 0.005, 3)[: 2 if number == 4 else 3]
    ]
    assert set(_states(measured).values()) == {HostState.WELL}
    measured.append(Measured("h04", SPEED, 900, "tokens/s", Relativity.HIGHER))
    found = diagnose(observe(measured), default_rules())
    (suspect,) = (host for host in found.hosts if host.state is not HostState.WELL)
    (one,) = suspect.suspicions
    assert (suspect.host, suspect.state, one.rule, one.value) == (
        "h04",
        HostState.SUSPECT,
        "one slower run",
        900,
    )
    assert not found.is_good
    assert found.to_json()["suspect"] == ["h04"]
    assert found.to_json()["defective"] == []
    assert "16 hosts: 1 suspect, 15 well" in found.summary()
    assert [row[:2] for row in rows(found)] == [("h04", "Performance (suspect)")]


def test_a_metric_that_a_host_lacks_keeps_it_from_being_well() -> None:
    measured = _fleet([1000.0] * 5) + _fleet([1.0] * 4, DELAY, Relativity.LOWER)
    assert _states(measured)["h04"] is HostState.NOT_JUDGED
    assert _states(measured)["h03"] is HostState.WELL


@pytest.mark.parametrize(
    ("t", "freedom", "tail"),
    # Two-sided 5 % and 1 % limits from the t table, and the normal distribution for many degrees of freedom.
    [
        (12.7062, 1, 0.025),
        (9.9248, 2, 0.005),
        (3.1824, 3, 0.025),
        (3.2498, 9, 0.005),
        (2.0423, 30, 0.025),
        (2.5758, 10**6, 0.005),
        (-2.0423, 30, 0.975),
        (0, 7, 0.5),
    ],
)
def test_the_tail_of_students_t(t: float, freedom: int, tail: float) -> None:
    assert t_tail(t, freedom) == pytest.approx(tail, rel=1e-3)
    if tail < 0.5:
        assert t_limit(tail, freedom) == pytest.approx(t, rel=1e-3)


NAMED = (HostState.SICK, HostState.SUSPECT)


def _spiky(source: random.Random) -> float:
    return source.gauss(0, 1) - 6 * (source.random() < 0.05)


def _student(source: random.Random) -> float:
    return source.gauss(0, 1) / math.sqrt(sum(source.gauss(0, 1) ** 2 for _ in range(3)))


@pytest.mark.parametrize("noise", [_spiky, _student])
def test_noise_of_another_shape_makes_nobody_sick(noise: Callable[[random.Random], float]) -> None:
    source, found = random.Random(7), set[HostState]()  # noqa: S311 - noise
    for _ in range(20):
        measured = [
            Measured(f"h{host:02}", SPEED, 1000 * (1 + 0.01 * noise(source)), "", HIGHER)
            for host in range(16)
            for _ in range(3)
        ]
        found |= set(_states(measured).values())
    assert HostState.SICK not in found
    assert found >= {HostState.SUSPECT, HostState.WELL}, "outliers are shown, not hidden"


def test_a_host_of_which_all_runs_are_slow_is_sick_whatever_the_others_noise() -> None:
    source = random.Random(8)  # noqa: S311 - noise
    measured = [
        Measured(
            f"h{host:02}", SPEED, 1000 * (1 - 0.1 * (host == 3)) * (1 + 0.01 * _spiky(source)), "", HIGHER
        )
        for host in range(16)
        for _ in range(3)
    ]
    states = _states(measured)
    assert [host for host, state in states.items() if state is HostState.SICK] == ["h03"]


@pytest.mark.parametrize(("value", "state"), [(93, HostState.SUSPECT), (80, HostState.SICK)])
def test_a_single_run_is_sick_only_far_from_all_others(value: float, state: HostState) -> None:
    states = _states(_fleet([100, 101, 99, 100.5, 99.5, 100.2, 99.8, 97.5, 102.5, 100, 100, value]))
    assert states["h11"] is state


def test_a_host_that_is_suspect_by_a_single_run_is_to_be_measured_again() -> None:
    others = [100, 101, 99, 100.5, 99.5, 100.2, 99.8, 97.5, 102.5, 100, 100]
    once = diagnose(observe(_fleet([*others, 93])), default_rules())
    assert [host.state for host in once.hosts if not host.is_good] == [HostState.SUSPECT]
    (warning,) = once.warnings
    assert warning.startswith("1 host is suspect because of a single run")
    assert warning.endswith("measure each host three times (--iterations 3, or three runs in one diagnose)")
    several = diagnose(observe([*_fleet([*others, 93]), *_fleet([*others, 100])]), default_rules())
    assert [host.state for host in several.hosts if not host.is_good] == [HostState.SUSPECT]
    assert several.warnings == ()


@pytest.mark.parametrize("hosts", [16, 40])
@pytest.mark.parametrize("noise", [_spiky, _student])
def test_single_runs_with_heavy_tails_make_few_hosts_sick(
    noise: Callable[[random.Random], float], hosts: int
) -> None:
    source, fleets = random.Random(hosts), {16: 40, 40: 20}[hosts]  # noqa: S311 - noise
    steady = _fleet([1.0] * hosts, DELAY, Relativity.LOWER)
    found = [
        set(_states(_fleet([1000 * (1 + 0.01 * noise(source)) for _ in range(hosts)]) + steady).values())
        for _ in range(fleets)
    ]
    assert sum(HostState.SICK in states for states in found) <= 0.05 * fleets
    assert any(HostState.SUSPECT in states for states in found)


@pytest.mark.parametrize("relativity", [HIGHER, Relativity.LOWER])
@pytest.mark.parametrize("hosts", [4, 5, 6, 7])
def test_of_few_hosts_one_that_is_slow_in_every_run_is_named(hosts: int, relativity: Relativity) -> None:
    source = random.Random(hosts)  # noqa: S311 - noise
    sign = -1 if relativity is HIGHER else 1

    def fleet(loss: float, noise: float) -> list[Measured]:
        return [
            Measured(f"h{host:02}", SPEED, source.gauss(1 + sign * loss * (host == 3), noise), "", relativity)
            for host in range(hosts)
            for _ in range(3)
        ]

    for _ in range(25):
        states = _states(fleet(0.07, 0.01))
        assert states.pop("h03") in NAMED
        assert not {*NAMED} & {*states.values()}
    healthy = [{*_states(fleet(0, noise)).values()} for noise in (0.01, 0.03, 0.06) * 20]
    assert sum(bool({*NAMED} & states) for states in healthy) <= 0.05 * len(healthy)


def test_repeats_are_not_asked_for_where_there_are_none() -> None:
    rules = read_rules(
        'rules: {a: {function: variance, criteria: least_worse > 0.02 and hosts < 8, metrics: ["*"]}, '
        'b: {function: variance, criteria: worse > 0.03, metrics: ["*"]}}',
        "r",
    )
    (host, *_) = diagnose(observe(_fleet([100.0, 100, 100, 100])), rules).hosts
    assert (host.state, host.judged) == (HostState.WELL, 1)


@pytest.mark.parametrize(("hosts", "repeats"), [(16, 1), (16, 3), (40, 1)])
def test_the_rates_of_errors_are_held(hosts: int, repeats: int) -> None:
    source, fleets = random.Random(hosts), 40  # noqa: S311 - noise
    alarms = found = 0
    for number in range(fleets):
        noise = (0.002, 0.01, 0.02, 0.05)[number % 4]
        well = [
            Measured(f"h{host:02}", SPEED, source.gauss(1, noise), "", HIGHER)
            for host in range(hosts)
            for _ in range(repeats)
        ]
        steady = [Measured(f"h{host:02}", DELAY, 1, "", Relativity.LOWER) for host in range(hosts)]
        alarms += HostState.SICK in _states(well + steady).values()
        sick = [
            Measured(f"h{host:02}", SPEED, source.gauss(1 - 0.07 * (host == 3), 0.01), "", HIGHER)
            for host in range(hosts)
            for _ in range(repeats)
        ]
        found += _states(sick)["h03"] in ((HostState.SICK,) if repeats > 1 else NAMED)
    assert alarms <= 0.05 * fleets
    assert found == fleets


def test_a_baseline_file_judges_by_chance_too() -> None:
    made = make_baselines(observe(_fleet(_noise(8, 1000, 0.01, 16))))
    read = read_baselines(json.dumps(baseline_to_json(made)), "b")
    found = diagnose(observe(_fleet([1000.0, 900.0])), default_rules(), read)
    assert [host.state for host in found.hosts] == [HostState.WELL, HostState.SICK]
    document = baseline_to_json(made)
    for name in ("sample", "runs"):
        for key in ("count", "least", "greatest"):
            del document["metrics"][SPEED][name][key]
    old = read_baselines(json.dumps(document), "b")
    (_, slow) = diagnose(observe(_fleet([1000.0, 900.0])), default_rules(), old).hosts
    assert slow.state is HostState.SUSPECT
    assert "the least and the greatest value" in slow.unjudged[0].reason


@pytest.mark.parametrize(
    ("values", "relativity", "sick"),
    [
        ([100, 101, 99, 100, 50], Relativity.HIGHER, {"h04"}),
        ([100, 101, 99, 100, 150], Relativity.HIGHER, set()),
        ([100, 101, 99, 100, 150], Relativity.LOWER, {"h04"}),
        ([100, 100, 100, 100, 100, 90], Relativity.HIGHER, {"h05"}),
        ([100, 100, 100, 100, 100, 98], Relativity.HIGHER, set()),
        ([100, 100, 100, 93], Relativity.HIGHER, {"h03"}),
        ([0, 0, 0, 0], Relativity.LOWER, set()),
    ],
)
def test_who_is_sick(values: list[float], relativity: Relativity, sick: set[str]) -> None:
    states = _states(_fleet(values, SPEED, relativity))
    assert {host for host, state in states.items() if state is HostState.SICK} == sick
