"""Numbers by host and metric, and the patterns that select metrics."""

from __future__ import annotations

import pytest

from agent.core.errors import UsageError
from agent.core.records import Relativity
from agent.diagnosis.observations import Measured, MetricKind, Observations, observe
from agent.diagnosis.patterns import own_pattern, superbench_pattern

HIGHER, LOWER, UNDEFINED = Relativity.HIGHER, Relativity.LOWER, Relativity.UNDEFINED
MEASURED = [
    Measured("b", "m/two", 3, "seconds", LOWER),
    Measured("b", "m/one", 9, "bytes", HIGHER, 2),
    Measured("a", "m/two", 5, "seconds", LOWER),
    Measured("b", "m/two", 1, "seconds", LOWER),
    Measured("b", "m/two", 7, "seconds", LOWER),
]
TWO, ONE = MetricKind("seconds", LOWER, 1), MetricKind("bytes", HIGHER, 2)


def test_numbers_are_sorted_by_host_and_metric() -> None:
    found = observe(MEASURED, ["c"])
    assert list(found.metrics.items()) == [("m/one", ONE), ("m/two", TWO)]
    assert list(found.hosts.items()) == [
        ("a", {"m/two": (5,)}),
        ("b", {"m/one": (9,), "m/two": (1, 3, 7)}),
        ("c", {}),
    ]
    assert list(found.hosts["b"]) == ["m/one", "m/two"]
    assert observe([Measured("a", "m", 1)]).metrics == {"m": MetricKind(None, UNDEFINED, 1)}


def test_a_hosts_middle_is_its_median() -> None:
    found = observe(MEASURED, ["c"])
    assert [found.middle(host, "m/two") for host in "abc"] == [5, 3, None]
    assert found.middles("m/two") == {"a": 5, "b": 3}
    assert found.middles("m/three") == {}


def test_some_hosts_have_the_metrics_that_were_measured_on_them() -> None:
    found = observe(MEASURED, ["c"])
    assert found.only(["a", "c"]) == Observations({"m/two": TWO}, {"a": {"m/two": (5,)}, "c": {}})
    assert found.only(["b"]).metrics == found.metrics


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ((HIGHER, 1), (HIGHER, 2), (HIGHER, 1)),
        ((LOWER, 2), (HIGHER, 2), (UNDEFINED, 2)),
        ((LOWER, 3), (UNDEFINED, 2), (UNDEFINED, 2)),
    ],
)
def test_a_metric_of_two_kinds(
    one: tuple[Relativity, int], other: tuple[Relativity, int], both: tuple[Relativity, int]
) -> None:
    measured = [Measured(host, "m", 1, "s", *kind) for host, kind in (("a", one), ("b", other))]
    assert observe(measured).metrics == {"m": MetricKind("s", *both)}


@pytest.mark.parametrize(
    ("units", "told"),
    [(("s", "ms"), "ms and in s"), (("s", None), "no unit and in s"), ((None, "s"), "no unit and in s")],
)
def test_a_metric_in_two_units_is_refused(units: tuple[str | None, ...], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        observe(Measured("a", "x/m", 1, unit) for unit in units)
    assert caught.value.message == f"x/m is measured in {told}"
    assert caught.value.remedy == "diagnose runs of one version of the workload together"


@pytest.mark.parametrize(
    ("pattern", "metric", "matches"),
    [
        ("a/*", "a/b", True),
        ("a/*", "xa/b", False),
        ("a/?", "a/bc", False),
        ("a/[bc]", "a/b", True),
        ("a/[bc]", "a/[bc]", True),
        ("~b+$", "a/bb", True),
        ("~b+$", "~b+$", False),
        ("~^b", "a/b", False),
        ("~(?=a).*/c", "a/b/c", True),
    ],
)
def test_a_pattern_of_names(pattern: str, metric: str, *, matches: bool) -> None:
    made = own_pattern(pattern)
    assert (made.matches(metric), made.text) == (matches, pattern)


@pytest.mark.parametrize(
    ("pattern", "metric", "matches"),
    [
        ("copy/in", "copy/in:0", True),
        ("copy/in", "copy:variant/in", False),
        ("copy:v/in", "copy:v/in", True),
        ("copy/(in|out)", "copy/out", True),
        ("copy/in$x", "copy/in$x", True),
        ("copy/.*", "copy/in/deep", True),
        ("copy/in", "other/copy/in", False),
        (r"copy:.*/x\d", "copy:a/x1", True),
        ("copy/in", "copy", False),
    ],
)
def test_a_pattern_of_superbench(pattern: str, metric: str, *, matches: bool) -> None:
    made = superbench_pattern(pattern)
    assert (made.matches(metric), made.text) == (matches, pattern)


@pytest.mark.parametrize(
    ("pattern", "message", "remedy"),
    [
        ("speed", "'speed' names no benchmark", "SuperBench's metrics are benchmark/metric"),
        ("/speed", "'/speed' names no benchmark", "SuperBench's metrics are benchmark/metric"),
        ("a/(", "'a/(' is not a regular expression: missing ), unterminated subpattern", None),
    ],
)
def test_a_pattern_that_selects_nothing_is_refused(pattern: str, message: str, remedy: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        superbench_pattern(pattern)
    assert caught.value.message.startswith(message)
    assert caught.value.remedy == remedy
    with pytest.raises(UsageError, match=r"^'\(' is not a regular expression: "):
        own_pattern("~(")
