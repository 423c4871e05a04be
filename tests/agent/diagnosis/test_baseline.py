"""Baselines: what they are made of, why a metric has none, and their file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.core.errors import UsageError
from agent.core.records import Relativity
from agent.diagnosis.baseline import (
    Baseline,
    baseline_to_json,
    find_baselines,
    make_baselines,
    read_baselines,
    variance_variables,
)
from agent.diagnosis.observations import Measured, MetricKind, observe
from agent.diagnosis.rules import read_rules
from agent.diagnosis.spread import Sample, sample_of

HIGHER, LOWER, UNDEFINED = (
    MetricKind("s", relativity, 1)
    for relativity in (Relativity.HIGHER, Relativity.LOWER, Relativity.UNDEFINED)
)
REMEDY = "vcagent baseline RUNS… -o baseline.json makes one"


@pytest.mark.parametrize(
    ("value", "baseline", "kind", "variables"),
    [
        (90, Baseline(100), HIGHER, {"x": -0.1, "worse": 0.1}),
        (90, Baseline(100), LOWER, {"x": -0.1, "worse": -0.1}),
        (90, Baseline(100), UNDEFINED, {"x": -0.1}),
        (-110, Baseline(-100), LOWER, {"x": 0.1, "worse": -0.1}),
        (-110, Baseline(-100), HIGHER, {"x": 0.1, "worse": 0.1}),
        (0, Baseline(0), HIGHER, {"x": 0.0, "worse": 0.0}),
        (1, Baseline(0, mad=0.5), HIGHER, {"z": 0.6745 * 2}),
        (90, Baseline(100, mad=5, hosts=7), UNDEFINED, {"hosts": 7, "x": -0.1, "z": -0.6745 * 2}),
    ],
)
def test_the_variables_of_a_value(
    value: float, baseline: Baseline, kind: MetricKind, variables: dict[str, float]
) -> None:
    assert variance_variables(value, baseline, kind) == pytest.approx(variables)


def fleet(*values: float, metric: str = "m", unit: str | None = "s") -> list[Measured]:
    return [
        Measured(f"h{number}", metric, each, unit, verbosity=number_of)
        for number, value in enumerate(values)
        for each, number_of in ((value - 1, 1), (value + 1, 2))
    ]


def test_a_baseline_has_the_middles_and_the_runs_of_normal_hosts() -> None:
    observed = observe(fleet(100, 101, 102, 103, 50))
    kept = {f"h{number}": 100.0 + number for number in range(4)}
    (baseline,) = find_baselines(observed).values()
    assert isinstance(baseline, Baseline)
    assert baseline == Baseline(
        101.5,
        "s",
        1.0,
        4,
        ("h4",),
        sample_of({host: (value,) for host, value in kept.items()}),
        sample_of({host: (value - 1, value + 1) for host, value in kept.items()}),
    )
    assert baseline.humps == ""
    assert baseline.sample
    assert baseline.sample.values == {host: (value,) for host, value in kept.items()}


def test_why_a_metric_has_no_baseline() -> None:
    observed = observe([*fleet(1, 2, 3), *fleet(1, 9, 1, 9, 1, 9, metric="n")])
    rules = read_rules(
        "rules:\n  n: {function: variance, criteria: abs(x) > 0.5, metrics: ['n']}\n"
        "  v: {function: value, criteria: x > 0, metrics: ['*']}",
        "r",
    )
    assert find_baselines(observed, rules) == {
        "m": "3 hosts to compare, at least 4 are needed",
        "n": "6 of 6 hosts stand apart from the others",
    }
    assert make_baselines(observed, rules) == {}
    assert isinstance(find_baselines(observed, rules, 3)["m"], Baseline)
    assert find_baselines(observe([], ["a"])) == {}


def test_a_baseline_needs_more_than_half_of_the_hosts() -> None:
    rules = read_rules("rules: {n: {function: variance, criteria: abs(x) > 0.1, metrics: ['*']}}", "r")
    values = [80.0, 82.0, 118.0, 120.0, 99.0, 100.0, 100.0, 101.0]
    assert find_baselines(observe(fleet(*values)), rules) == {"m": "4 of 8 hosts stand apart from the others"}
    (baseline,) = find_baselines(observe(fleet(*values, 100.0)), rules).values()
    assert isinstance(baseline, Baseline)
    assert (baseline.hosts, baseline.dropped) == (5, ("h0", "h1", "h2", "h3"))


@pytest.mark.parametrize(("unit", "told"), [("s", " s"), (None, "")])
def test_two_humps_are_told_with_their_numbers(unit: str | None, told: str) -> None:
    observed = observe(fleet(200, 200, 200, 100, 100, 100, 100, 200, 200, unit=unit))
    (baseline,) = find_baselines(observed).values()
    assert isinstance(baseline, Baseline)
    assert baseline.humps == f"the hosts lie around two values: 4 near 100{told}, 5 near 200{told}"
    assert make_baselines(observed) == {}


WHOLE = Baseline(5.0, "s", 0.5, 3, ("a", "b"), Sample(1, 2, 3, 4, 5, 6), Sample(6, 5, 4, 3, 2, 1))
DOCUMENT: dict[str, Any] = {
    "value": 5.0,
    "unit": "s",
    "mad": 0.5,
    "hosts": 3,
    "dropped": ["a", "b"],
    "sample": {"mean": 1, "deviation": 2, "hosts": 3, "count": 4, "least": 5, "greatest": 6},
    "runs": {"mean": 6, "deviation": 5, "hosts": 4, "count": 3, "least": 2, "greatest": 1},
}


def test_the_file_of_baselines() -> None:
    document = baseline_to_json({"b": Baseline(1.0), "a": WHOLE})
    bare = {"value": 1.0, "unit": None, "mad": None, "hosts": None, "dropped": []}
    assert document == {"schema_version": 1, "metrics": {"a": DOCUMENT, "b": bare}}
    assert list(document["metrics"]) == ["a", "b"]
    assert read_baselines(json.dumps(document), "f") == {"a": WHOLE, "b": Baseline(1.0)}
    assert list(read_baselines('{"z": 1, "y": 2}', "f").items()) == [("y", Baseline(2)), ("z", Baseline(1))]
    earlier = {**DOCUMENT, "sample": {"mean": 1, "deviation": 2, "hosts": 3}, "runs": None, "hosts": "x"}
    (found,) = read_baselines(json.dumps({"schema_version": 1, "metrics": {"a": earlier}}), "f").values()
    assert found == Baseline(5.0, "s", 0.5, None, ("a", "b"), Sample(1, 2, 3))


def of(**changes: Any) -> str:
    return json.dumps({"schema_version": 1, "metrics": {"a": {**DOCUMENT, **changes}}})


NO_NUMBER = "which is not a finite number"


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("{", "no JSON: Expecting property name", REMEDY),
        ("[1]", "there are no baselines", REMEDY),
        ("{}", "there are no baselines", REMEDY),
        ('{"schema_version": 2, "metrics": {}}', "the schema_version is 2, known is 1", REMEDY),
        ('{"schema_version": 1, "metrics": []}', "the schema_version is 1, known is 1", REMEDY),
        ('{"schema_version": 1, "metrics": {"a": 5}}', "a has no value", None),
        ('{"a": true}', f"a is True, {NO_NUMBER}", None),
        (f'{{"a": 1{"0" * 400}}}', f"a is 1{'0' * 49}, {NO_NUMBER}", None),
        (of(unit=5), "the unit of a is not a text", None),
        (of(value=None), f"a is None, {NO_NUMBER}", None),
        (of(mad="x"), f"the MAD of a is 'x', {NO_NUMBER}", None),
        (of(sample={}), f"the mean of a is None, {NO_NUMBER}", None),
        (of(runs={"mean": 1, "deviation": 1}), f"the hosts of a is None, {NO_NUMBER}", None),
        (of(runs={**DOCUMENT["runs"], "least": "1"}), f"the least of a is '1', {NO_NUMBER}", None),
    ],
)
def test_a_file_that_is_refused(text: str, message: str, remedy: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        read_baselines(text, "baseline.json")
    assert caught.value.message.startswith(message)
    assert (caught.value.where, caught.value.remedy) == ("baseline.json", remedy)
