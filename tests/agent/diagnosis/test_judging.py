"""What a rule says of a value: a defect with its numbers, nothing, or why it cannot judge."""

from __future__ import annotations

import pytest

from agent.core.errors import UsageError
from agent.core.records import Relativity
from agent.diagnosis.baseline import Baseline
from agent.diagnosis.diagnosis import Defect, Diagnosis, HostDiagnosis, Unjudged
from agent.diagnosis.judging import Family, diagnose
from agent.diagnosis.observations import Measured, observe
from agent.diagnosis.rules import Function, read_rules
from agent.diagnosis.spread import Sample, t_tail

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
) -> tuple[HostDiagnosis, Diagnosis]:
    """Return the diagnosis of one host by a rule of variances, beside a rule that judges anything."""
    rules = read_rules(
        f"rules:\n  v: {{function: variance, criteria: {criteria}, metrics: [m]}}\n"
        "  any: {function: value, criteria: x < 0, metrics: [m]}",
        "r",
    )
    found = diagnose(
        observe(measured({"a": values}, relativity=relativity)), rules, {"m": baseline} if baseline else {}
    )
    return found.hosts[0], found


ZERO = "the baseline is 0: a value rule can judge it"


@pytest.mark.parametrize(
    ("variable", "baseline", "why"),
    [
        ("x", None, "there is no baseline"),
        ("x", Baseline(0.0), ZERO),
        ("worse", Baseline(0.0), ZERO),
        ("z", Baseline(100.0), "the baseline does not tell how far hosts differ"),
        (
            "chance",
            Baseline(100.0),
            "the baseline does not tell how far hosts differ, or is of fewer than two other hosts",
        ),
        (
            "noise_chance",
            Baseline(100.0),
            "the baseline does not have the least and the greatest value of at least two runs",
        ),
        ("hosts", Baseline(100.0), "the baseline does not have the number of its hosts"),
        ("1 / (x - 0.1)", Baseline(100.0), "the criterion has no value"),
    ],
)
def test_a_value_that_cannot_be_judged(variable: str, baseline: Baseline | None, why: str) -> None:
    host, found = judged(f"{variable} > 5", baseline)
    assert host.unjudged == (Unjudged("v", "m", why),)
    assert (host.judged, host.defects) == (1, ())
    assert found.warnings == (f"v: 1 value not judged, {why}",)


@pytest.mark.parametrize("variable", ["worst", "worst_chance", "least_worse"])
def test_a_rule_of_runs_needs_several_runs(variable: str) -> None:
    one, _ = judged(f"{variable} > 5", Baseline(0.0))
    assert (one.judged, one.unjudged) == (1, ())
    several, found = judged(f"{variable} > 5", Baseline(0.0), (110.0, 111.0))
    assert (several.judged, several.unjudged, found.warnings) == (1, (), ())


def test_a_metric_without_a_bad_side() -> None:
    host, found = judged("worse > 0.05", SPREAD, relativity=Relativity.UNDEFINED)
    assert (host.judged, host.unjudged) == (1, ())
    assert found.warnings == ("v: 1 value not judged, neither more nor less is better",)


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


@pytest.mark.parametrize(("variable", "factor"), [("chance", 2), ("worst_chance", 2 * 3)])
def test_chances_are_over_all_values(variable: str, factor: int) -> None:
    # The median is at 102, the worst at 104; both kinds of values share the chance.
    values, sample = (101.0, 102.0, 104.0), Sample(100.0, 2.0, 9, 18)
    baseline = Baseline(100.0, "s", 1.0, 9, sample=sample, runs=sample)
    value = 102.0 if variable == "chance" else 104.0
    limit = factor * t_tail((value - 100) / (2 * (1 + 1 / 9) ** 0.5), 8)
    for bound, is_defect in ((limit * 1.001, True), (limit * 0.999, False)):
        criteria = f"{variable} < {bound} and (chance < 2 or worst_chance < 2)"
        host, _ = judged(criteria, baseline, values)
        assert bool(host.defects) is is_defect


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


def test_a_baseline_of_a_name_is_for_all_ranks() -> None:
    rules = read_rules("rules: {v: {function: variance, criteria: x > 0.05, metrics: ['*']}}", "r")
    observed = observe([*measured({"a": (110.0,)}, "m:0"), *measured({"a": (100.0,)}, "m:1")])
    found = diagnose(observed, rules, {"m": Baseline(100.0), "m:1": Baseline(50.0)})
    assert [(one.metric, one.baseline) for one in found.hosts[0].defects] == [("m:0", 100.0), ("m:1", 50.0)]


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


def test_stored_values_are_the_evidence_of_a_later_rule() -> None:
    rules = read_rules(
        "rules:\n  kept: {metrics: [m], store: true}\n"
        "  low: {function: multi_rules, criteria: 'min(label[\"kept\"].values()) < 5'}",
        "r",
    )
    (defect,) = diagnose(observe(measured({"a": (1.0, 3.0)})), rules, {}).hosts[0].defects
    assert defect.evidence == (Defect("kept", Function.STORE, "kept", metric="m", value=2.0, unit="s"),)
