"""What a rule says of a value: a defect with its numbers, nothing, or why it cannot judge."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import Any

import pytest

from agent.core.errors import UsageError
from agent.core.records import Relativity
from agent.diagnosis.baseline import Baseline
from agent.diagnosis.diagnosis import Defect, Diagnosis, HostDiagnosis, Unjudged
from agent.diagnosis.judging import Family, diagnose
from agent.diagnosis.observations import Measured, observe
from agent.diagnosis.rules import Function, read_rules
from agent.diagnosis.spread import ALPHA, Sample, sample_of, t_limit, t_tail

UNDEFINED = Relativity.UNDEFINED
SPREAD = Baseline(100.0, "s", 1.0, 9, sample=Sample(100.0, 1.0, 9), runs=Sample(100.0, 2.0, 9, 18))


def measured(
    values: dict[str, tuple[float, ...]], metric: str = "m", relativity: Relativity = Relativity.LOWER
) -> list[Measured]:
    return [Measured(host, metric, value, "s", relativity) for host, own in values.items() for value in own]


def judged(
    criteria: str,
    baseline: Baseline | None,
    values: tuple[float, ...] = (110.0,),
    relativity: Relativity = Relativity.LOWER,
    others: dict[str, tuple[float, ...]] | None = None,
) -> tuple[HostDiagnosis, Diagnosis]:
    """Return the diagnosis of host a by a rule of variances, beside a rule that judges anything."""
    rules = read_rules(
        f"rules:\n  v: {{function: variance, criteria: {criteria}, metrics: [m]}}\n"
        "  any: {function: value, criteria: x < 0, metrics: [m]}",
        "r",
    )
    found = diagnose(
        observe(measured({"a": values} | (others or {}), relativity=relativity)),
        rules,
        {"m": baseline} if baseline else {},
    )
    return found.hosts[0], found


ZERO = "the baseline is 0: a value rule can judge it"
FEW = "the baseline does not tell how far hosts differ, or is of fewer than two other hosts"
NO_RANGE = "the baseline does not have the least and the greatest value of at least two runs"
ONE = Sample(100.0, 1.0, 1)


@pytest.mark.parametrize(
    ("variable", "baseline", "why"),
    [
        ("x", None, "there is no baseline"),
        ("x", Baseline(0.0), ZERO),
        ("worse", Baseline(0.0), ZERO),
        ("z", Baseline(100.0), "the baseline does not tell how far hosts differ"),
        ("chance", Baseline(100.0), FEW),
        ("noise_chance", Baseline(100.0), NO_RANGE),
        ("chance", Baseline(100.0, sample=ONE), FEW),
        ("noise_chance", Baseline(100.0, runs=ONE), NO_RANGE),
        ("hosts", Baseline(100.0), "the baseline does not have the number of its hosts"),
        ("1 / (x - 0.1)", Baseline(100.0), "the criterion has no value"),
    ],
)
def test_a_value_that_cannot_be_judged(variable: str, baseline: Baseline | None, why: str) -> None:
    host, found = judged(f"{variable} > 5", baseline)
    assert host.unjudged == (Unjudged("v", "m", why),)
    assert (host.judged, host.defects) == (1, ())
    assert found.warnings == (f"v: 1 value not judged, {why}",)


@pytest.mark.parametrize(
    ("variable", "baseline"),
    [
        ("worst", Baseline(0.0)),
        ("worst_chance", Baseline(0.0)),
        ("worst_chance", Baseline(100.0, runs=ONE)),
        ("least_worse", Baseline(100.0)),
        ("least_worse", Baseline(100.0, runs=ONE)),
        ("least_worse", Baseline(0.0, runs=sample_of({"b": (1.0, 2.0), "c": (1.0, 2.0)}))),
    ],
)
def test_a_rule_of_runs_needs_several_runs(variable: str, baseline: Baseline) -> None:
    one, _ = judged(f"{variable} > 5", baseline)
    assert (one.judged, one.unjudged) == (1, ())
    several, found = judged(f"{variable} > 5", baseline, (110.0, 111.0))
    assert (several.judged, several.unjudged, found.warnings) == (1, (), ())


def test_a_metric_without_a_bad_side() -> None:
    host, found = judged("worse > 0.05", SPREAD, relativity=UNDEFINED, others={"b": (110.0,)})
    assert (host.judged, host.unjudged) == (1, ())
    assert found.warnings == ("v: 2 values not judged, neither more nor less is better",)
    other, found = judged("x > 0.05", SPREAD, relativity=UNDEFINED)
    assert (other.judged, len(other.defects), found.warnings) == (2, 1, ())


def test_a_defect_has_the_numbers_that_it_is_based_on() -> None:
    host, _ = judged("x > 0.05", SPREAD)
    defect = Defect("v", Function.VARIANCE, "v", "x > 0.05", "m", 110.0, "s", 100.0, 0.1, 0.6745 * 10)
    assert host.defects == (defect,)
    assert host.judged == 2
    none, _ = judged("x > 0.05", Baseline(100.0, mad=0.0))
    assert none.defects[0].z is None
    fine, _ = judged("x > 0.2", SPREAD)
    assert (fine.judged, fine.defects) == (2, ())


def test_of_several_runs_the_worst_is_shown() -> None:
    host, _ = judged("worst > 0.15", SPREAD, (101.0, 120.0, 100.0))
    (defect,) = host.defects
    assert (defect.value, defect.variance, defect.z) == (120.0, pytest.approx(0.2), pytest.approx(0.6745))
    other, _ = judged("worst_chance < 1", SPREAD, (99.0, 80.0, 100.0), Relativity.HIGHER)
    (defect,) = other.defects
    assert (defect.value, defect.variance) == (80.0, pytest.approx(-0.2))


OTHERS = {"b": (99.0, 101.0), "c": (100.0, 102.0), "d": (98.0,)}
OF_FLEET = Baseline(
    100.0,
    "s",
    1.0,
    4,
    ("a", "x", "y"),
    sample_of({"a": (110.0,), "b": (100.0,), "c": (101.0,), "d": (98.0,)}),
    sample_of(OTHERS | {"a": (104.0, 116.0)}),
)


def tail(values: tuple[float, ...], value: float, sign: int = 1) -> float:
    """Return the probability that a host differs this much from the others."""
    scale = statistics.stdev(values) * math.sqrt(1 + 1 / 3)
    return t_tail(sign * (value - statistics.fmean(values)) / scale, 2)


@pytest.mark.parametrize(
    ("variable", "runs", "relativity", "expected"),
    [
        # Four medians; if single runs are judged too, half of the chance is theirs: those of three hosts.
        ("chance", (110.0,), Relativity.LOWER, 4 * tail((100, 101, 98), 110)),
        ("chance", (104.0, 116.0), Relativity.LOWER, 4 * tail((100, 101, 98), 110)),
        ("chance + 0 * worst", (104.0, 116.0), Relativity.LOWER, 4 * tail((100, 101, 98), 110)),
        ("chance + 0 * worst_chance", (104.0, 116.0), Relativity.LOWER, 8 * tail((100, 101, 98), 110)),
        ("chance", (90.0,), Relativity.HIGHER, 4 * tail((100, 101, 98), 90, -1)),
        ("chance", (110.0,), Relativity.HIGHER, 1.0),
        ("chance", (90.0, 90.0), UNDEFINED, 2 * 4 * tail((100, 101, 98), 90, -1)),
        ("worst", (104.0, 116.0), Relativity.LOWER, 0.16),
        ("worst", (104.0, 116.0), Relativity.HIGHER, -0.04),
        ("worst_chance", (104.0, 116.0), Relativity.LOWER, 2 * 6 * tail((99, 101, 100, 102, 98), 116)),
        ("worst_chance", (90.0, 91.0), Relativity.LOWER, 1.0),
        # Of the 21 ways to draw 2 of 7 runs, 1 has the 2 worst. Four medians, three hosts were dropped.
        ("noise_chance", (102.5, 103.0), Relativity.LOWER, 4 * 3 / 21),
        ("noise_chance", (90.0, 91.0), Relativity.LOWER, 1.0),
    ],
)
def test_a_variable_is_over_all_values(
    variable: str, runs: tuple[float, ...], relativity: Relativity, expected: float
) -> None:
    host, _ = judged(f"abs(({variable}) / {expected!r} - 1) < 1e-9", OF_FLEET, runs, relativity, OTHERS)
    assert [defect.metric for defect in host.defects] == ["m"]


LEAST = sample_of(OTHERS).least_distance((104.0, 116.0), "a", 1, ALPHA / 4) or 0.0


@pytest.mark.parametrize(
    ("variable", "runs", "changes", "expected"),
    [
        ("noise_chance", (102.5, 103.0), {"dropped": ("x", "y")}, 4 / 21),
        ("least_worse", (104.0, 116.0), {}, LEAST / 100),
        ("least_worse", (104.0, 116.0), {"value": -100.0}, LEAST / 100),
        ("worst", (0.0, -1.0), {"value": 0.0}, 0.0),
    ],
)
def test_a_variable_depends_on_the_baseline(
    variable: str, runs: tuple[float, ...], changes: dict[str, Any], expected: float
) -> None:
    baseline = replace(OF_FLEET, **changes)
    host, _ = judged(f"abs({variable} - {expected!r}) < 1e-9", baseline, runs, others=OTHERS)
    assert [defect.rule for defect in host.defects if defect.rule == "v"] == ["v"]


def test_only_values_with_a_baseline_and_a_side_are_counted() -> None:
    kinds = {"m": Relativity.LOWER, "n": Relativity.LOWER, "u": UNDEFINED}
    values = [one for metric, kind in kinds.items() for one in measured({"a": (102.0,)}, metric, kind)]
    chance = t_tail(2 / math.sqrt(1 + 1 / 9), 8)
    criteria = f"abs(chance / {chance!r} - 1) < 1e-9 and worse > 0"
    rules = read_rules(f"rules: {{v: {{function: variance, criteria: {criteria}, metrics: ['*']}}}}", "r")
    found = diagnose(observe(values), rules, {"m": SPREAD, "u": SPREAD})
    assert [defect.metric for defect in found.hosts[0].defects] == ["m"]


def test_half_of_the_chance_is_for_single_runs() -> None:
    assert [Family(5, runs).medians for runs in (0, 3)] == [5, 10]
    assert Family() == Family(0, 0)


def test_where_hosts_differ_much_a_good_value_is_not_judged() -> None:
    wide = Baseline(100.0, "s", 1.0, 9, sample=Sample(100.0, 20.0, 9))
    host, _ = judged("chance < 0.03", wide, (101.0,))
    why = "m: the hosts differ so much that one 10% worse would not be noticed"
    assert host.unjudged == (Unjudged("v", "m", why),)
    narrow = Baseline(100.0, "s", 1.0, 9, sample=Sample(100.0, 1.0, 9))
    assert judged("chance < 0.03", narrow, (101.0,))[0].unjudged == ()
    humps = Baseline(100.0, "s", 1.0, 9, sample=Sample(100.0, 1.0, 9), humps="two humps")
    assert judged("chance < 0.03", humps, (101.0,))[0].unjudged == (Unjudged("v", "m", "m: two humps"),)


@pytest.mark.parametrize(
    ("deviation", "relativity", "is_vague"),
    [(1.001, Relativity.LOWER, True), (0.999, Relativity.LOWER, False), (2.0, UNDEFINED, False)],
)
def test_a_loss_of_a_tenth_has_to_be_noticed(
    deviation: float, relativity: Relativity, *, is_vague: bool
) -> None:
    deviation *= 10 / (t_limit(ALPHA / 2, 8) * math.sqrt(1 + 1 / 9))
    baseline = Baseline(100.0, "s", sample=Sample(100.0, deviation, 9))
    host, _ = judged("chance < 0.0001", baseline, (101.0,), relativity, {"b": (101.0,)})
    assert bool(host.unjudged) is is_vague


def test_what_a_host_hides_is_measured_without_it() -> None:
    sample = sample_of({"a": (10.0,)} | {f"h{number}": (100.0 + number % 2,) for number in range(8)})
    host, _ = judged("chance < 0.0001", Baseline(100.0, "s", sample=sample), (10.0,))
    assert (host.judged, host.unjudged) == (2, ())


def test_a_baseline_of_a_name_is_for_all_ranks() -> None:
    rules = read_rules("rules: {v: {function: variance, criteria: x > 0.05, metrics: ['*']}}", "r")
    values = {"m:0": 110.0, "m:1": 100.0, "m:2:0": 110.0}
    observed = observe([one for name, value in values.items() for one in measured({"a": (value,)}, name)])
    found = diagnose(observed, rules, {"m": Baseline(100.0), "m:1": Baseline(50.0), "m:2": Baseline(10.0)})
    assert [(one.metric, one.baseline) for one in found.hosts[0].defects] == [
        ("m:0", 100.0),
        ("m:1", 50.0),
        ("m:2:0", 10.0),
    ]


def test_a_baseline_in_another_unit_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        judged("x > 0.05", Baseline(100.0, "ms"))
    assert caught.value.message == "m is measured in s, its baseline is in ms"
    assert judged("x > 0.05", Baseline(100.0))[0].judged == 2


def test_suspicions_are_of_metrics_without_a_defect() -> None:
    rules = read_rules(
        "rules:\n  bad: {function: value, criteria: x > 200, metrics: [m]}\n"
        "  odd: {function: variance, criteria: x > 0.05, metrics: ['*'], suspect: true}",
        "r",
    )
    both = [*measured({"a": (300.0,), "b": (110.0,), "c": (110.0,)}), *measured({"a": (110.0,)}, "n")]
    found = diagnose(observe(both), rules, {"m": Baseline(100.0), "n": Baseline(100.0)})
    assert [[one.metric for one in host.suspicions] for host in found.hosts] == [["n"], ["m"], ["m"]]
    assert [[one.rule for one in host.defects] for host in found.hosts] == [["bad"], [], []]
    assert [host.absent for host in found.hosts] == [(), ("n",), ("n",)]
    told = (
        "{} suspect because of a single run, which does not show whether the host is slow or the run was: "
        "measure each host three times (--iterations 3, or three runs in one diagnose)"
    )
    assert found.warnings == (told.format("3 hosts are"),)
    one = diagnose(observe(measured({"b": (110.0,)})), rules, {"m": Baseline(100.0)})
    assert one.warnings == (told.format("1 host is"),)
    repeated = diagnose(observe(measured({"b": (110.0, 111.0)})), rules, {"m": Baseline(100.0)})
    assert (len(repeated.hosts[0].suspicions), repeated.warnings) == (1, ())


def test_rules_that_match_nothing_are_told() -> None:
    rules = read_rules(
        "rules:\n  v: {function: variance, criteria: x > 0.05, metrics: [n]}\n"
        "  f: {function: failure_check, metrics: [m]}\n"
        "  w: {function: value, criteria: 1 / x > 0, metrics: [m]}",
        "r",
    )
    found = diagnose(observe(measured({"a": (0.0,), "b": (0.0, 1.0)})), rules, {})
    assert found.warnings == (
        "v: no metric matches",
        "w: 2 values not judged, the criterion has no value",
    )
    assert found.hosts[0].unjudged == (Unjudged("w", "m", "the criterion has no value"),)
    with pytest.raises(UsageError) as caught:
        diagnose(observe(measured({"a": (1.0,)})), rules[:1], {})
    assert caught.value.message == "no rule could judge a value"
    assert caught.value.details == ("v: no metric matches",)
    remedy = "compare the metrics of the rules with those of the runs, and give a --baseline"
    assert caught.value.remedy == remedy


def test_a_reason_is_told_once_for_each_value() -> None:
    rules = read_rules(
        "rules:\n  v: {function: variance, criteria: x > 1, metrics: ['*']}\n"
        "  w: {function: variance, criteria: x > 2, metrics: ['*']}\n"
        "  y: {function: value, criteria: 1 / x > 0, metrics: ['*']}\n"
        "  any: {function: value, criteria: x < 0, metrics: ['*']}",
        "r",
    )
    values = [one for name in "mn" for one in measured({"a": (0.0,), "b": (0.0,)}, name)]
    found = diagnose(observe(values, ["c"]), rules, {})
    why, no_value = "there is no baseline", "the criterion has no value"
    each = tuple(Unjudged(rule, name, text) for rule, text in (("v", why), ("y", no_value)) for name in "mn")
    assert [host.unjudged for host in found.hosts] == [each, each, ()]
    assert [host.has_records for host in found.hosts] == [True, True, False]
    assert found.hosts[2] == HostDiagnosis("c", has_records=False, judged=0, defects=(), absent=())
    assert found.warnings == (f"v: 4 values not judged, {why}", f"y: 4 values not judged, {no_value}")


def test_violators_of_a_rule_are_no_part_of_what_others_are_compared_with() -> None:
    rules = read_rules("rules: {v: {function: variance, criteria: abs(x) > 0.1, metrics: [m]}}", "r")
    values = {f"h{number}": (value,) for number, value in enumerate((80.0, 85.0, 95.0, 100.0, 105.0, 101.0))}
    found = diagnose(observe(measured(values)), rules)
    assert [one.baseline for host in found.hosts for one in host.defects] == [100.5, 100.5]


def test_hosts_of_a_group_are_compared_with_each_other() -> None:
    rules = read_rules(
        "rules:\n  v: {function: variance, criteria: x > 0.5, metrics: [m]}\n"
        "  f: {function: failure_check, metrics: [m]}",
        "r",
    )
    values = {f"a{number}": (10.0 + number,) for number in range(5)} | {"b": (900.0,)}
    groups = dict.fromkeys([host for host in values if host != "b"], "A") | {"b": "B"}
    found = diagnose(observe(measured(values)), rules, groups=groups)
    assert [(host.group, host.defects, host.judged) for host in found.hosts] == [
        *[("A", (), 2)] * 5,
        ("B", (), 1),
    ]
    why = "m: 1 host to compare, at least 4 are needed"
    assert found.hosts[5].unjudged == (Unjudged("v", "m", why),)
    assert found.warnings == (f"B: v: 1 value not judged, {why}",)


def test_the_group_is_named_where_there_are_several() -> None:
    rules = read_rules(
        "rules:\n  v: {function: variance, criteria: x > 0.5, metrics: [m]}\n"
        "  any: {function: value, criteria: x < 0, metrics: [m]}",
        "r",
    )
    told = "v: 1 value not judged, m: 1 host to compare, at least 4 are needed"
    one = diagnose(observe(measured({"a": (1.0,)})), rules, groups={"a": "A"})
    assert one.warnings == (told,)
    two = diagnose(observe(measured({"a": (1.0,), "b": (1.0,)})), rules, groups={"b": "B"})
    assert two.warnings == (told, f"B: {told}")


def test_a_metric_of_another_group_is_missing_only_where_failures_are_checked() -> None:
    rules = read_rules(
        "rules:\n  f: {function: failure_check, criteria: x > 5, metrics: ['*'], categories: C}\n"
        "  v: {function: value, criteria: x > 7, metrics: ['*'], categories: D}",
        "r",
    )
    values = [*measured({"a": (9.0, 1.0)}), *measured({"b": (6.0,)}, "n")]
    groups = {"a": "A", "b": "B"}
    first, second = diagnose(observe(values), rules, {}, groups).hosts
    kind = Function.FAILURE_CHECK
    assert first.defects == (
        Defect("f", kind, "C", metric="n"),
        Defect("f", kind, "C", "x > 5", "m", 9.0, "s"),
        Defect("v", Function.VALUE, "D", "x > 7", "m", 9.0, "s"),
    )
    assert second.defects == (
        Defect("f", kind, "C", metric="m"),
        Defect("f", kind, "C", "x > 5", "n", 6.0, "s"),
    )
    assert [host.absent for host in (first, second)] == [("n",), ("m",)]
    assert [host.absent for host in diagnose(observe(values), rules[1:], {}, groups).hosts] == [(), ()]
    (alone,) = read_rules("rules: {f: {function: failure_check, metrics: [m, k]}}", "r")
    (host,) = diagnose(observe(measured({"a": (9.0,)})), [alone], {}).hosts
    assert (host.judged, host.defects) == (2, (Defect("f", kind, "f", metric="k"),))


def test_stored_values_are_the_evidence_of_a_later_rule() -> None:
    rules = read_rules(
        "rules:\n  kept: {metrics: [m], store: true}\n"
        "  low: {function: multi_rules, criteria: 'min(label[\"kept\"].values()) < 5'}",
        "r",
    )
    values = [*measured({"a": (1.0, 3.0), "c": (6.0,)}), *measured({"b": (1.0,)}, "n")]
    first, second, third = diagnose(observe(values), rules, {}).hosts
    kept = Defect("kept", Function.STORE, "kept", metric="m", value=2.0, unit="s")
    low = Defect("low", Function.MULTI_RULES, "low", 'min(label["kept"].values()) < 5', evidence=(kept,))
    assert (first.judged, first.defects, first.unjudged) == (1, (low,), ())
    why = "what it combines was not measured"
    assert (second.judged, second.defects, second.unjudged) == (0, (), (Unjudged("low", "", why),))
    assert (third.judged, third.defects, third.unjudged) == (1, (), ())
