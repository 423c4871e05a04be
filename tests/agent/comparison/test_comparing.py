"""Comparison of runs in folders: matching, reported differences, and verdicts."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.comparison.comparing import ComparedMetric, Comparison, compare
from agent.comparison.estimates import Method
from agent.comparison.sides import Side, read_side
from agent.comparison.verdicts import Outcome
from agent.core.errors import UsageError
from agent.report.comparison_page import write_comparison_page

MakeRun = Callable[..., Path]
SPEED = "tokens_per_second"
FAST = (100.0, 101.0, 99.0, 100.5, 99.5)
SLOW = (95.0, 96.0, 94.0, 95.5, 94.5)


@pytest.fixture
def side(tmp_path: Path) -> Callable[[object], Side]:
    return lambda name: read_side(str(name), tmp_path / "results")


def _only(comparison: Comparison) -> ComparedMetric:
    (metric,) = comparison.metrics
    return metric


def test_rounds_of_one_run_are_repeats(make_run: MakeRun, side: Any) -> None:
    comparison = compare(
        [side(make_run("a", {SPEED: FAST})), side(make_run("b", {SPEED: SLOW}))], threshold=0.03
    )
    metric = _only(comparison)
    assert (metric.key.scenario, metric.repeats) == ("m/Server/performance", (5, 5))
    assert (metric.outcome, metric.direction, comparison.regressions) == (Outcome.CHANGED, "worse", 1)
    assert metric.notes == ("rounds of one run: the noise does not include differences between runs",)


def test_the_direction_is_the_metrics_own(make_run: MakeRun, side: Any) -> None:
    fast = {"ttft_p99": FAST, SPEED: FAST, "wakeups": FAST}
    slow = {"ttft_p99": SLOW, SPEED: SLOW, "wakeups": SLOW}
    comparison = compare([side(make_run("a", fast)), side(make_run("b", slow))], threshold=0.03)
    found = {metric.key.metric: (metric.outcome, metric.direction) for metric in comparison.metrics}
    assert found == {
        "ttft_p99": (Outcome.CHANGED, "better"),
        SPEED: (Outcome.CHANGED, "worse"),
        "wakeups": (Outcome.CHANGED, None),
    }
    assert comparison.regressions == 1


def test_runs_of_a_side_are_its_repeats(make_run: MakeRun, side: Any, tmp_path: Path) -> None:
    for number, (fast, slow) in enumerate(zip(FAST, SLOW, strict=True)):
        make_run(f"a-{number}", {SPEED: [fast - 5, fast + 5]})
        make_run(f"b-{number}", {SPEED: [slow, slow]}, folder=tmp_path / "after")
    comparison = compare([side(tmp_path / "a-*"), side(tmp_path / "after")], threshold=0.02)
    metric = _only(comparison)
    assert metric.repeats == (5, 5)
    assert (metric.before, metric.after) == (100, 95)
    assert metric.estimate
    assert metric.estimate.method is Method.REPEATS
    assert (
        metric.estimate.interval[1] - metric.estimate.interval[0] < 0.03
    )  # the rounds within a run do not count as repeats
    named = ",".join(str(tmp_path / f"a-{number}") for number in range(5))
    assert side(named).runs == side(tmp_path / "a-*").runs


def test_a_fleet_is_compared_host_by_host(make_run: MakeRun, side: Any, tmp_path: Path) -> None:
    speeds = {"h1": 100.0, "h2": 200.0, "h3": 400.0, "h4": 50.0}
    for fleet, factor in (("before", 1.0), ("after", 0.95)):
        folder = tmp_path / fleet
        for place, (host, speed) in enumerate(speeds.items()):
            value = speed * factor * (1 + place / 1000)
            make_run(host, {SPEED: value}, host=host, folder=folder / "hosts")
        hosts = [{"name": host, "folder": host} for host in (*speeds, "h5")]
        (folder / "fleet.json").write_text(json.dumps({"hosts": hosts}), encoding="utf-8")
    before, after = side(tmp_path / "before"), side(tmp_path / "after")
    comparison = compare([before, after], threshold=0.03)
    metric = _only(comparison)
    assert metric.estimate
    assert (metric.estimate.method, metric.direction) == (Method.HOSTS, "worse")
    assert metric.estimate.change == pytest.approx(-0.05, abs=1e-6)
    assert [warning.partition(": ")[2] for warning in comparison.warnings] == ["left out h5: no run.json"] * 2


def test_hosts_that_one_side_lacks_are_left_out_and_named(make_run: MakeRun, side: Any) -> None:
    a = ",".join(str(make_run(f"a{host}", {SPEED: FAST}, host=host)) for host in ("h1", "h2"))
    metric = _only(compare([side(a), side(make_run("b", {SPEED: FAST}, host="h1"))], threshold=0.02))
    assert "hosts on one side only are left out: h2" in metric.notes
    assert metric.repeats == (5, 5)
    other = _only(compare([side(a), side(make_run("c", {SPEED: FAST}, host="h9"))], threshold=0.02))
    assert "no host is on both sides: the change may come from the hosts" in other.notes


def _samples(seed: int, pace: float) -> tuple[str, float]:
    chance = random.Random(seed)  # noqa: S311 - noise
    moment_s, rows = 0.0, ["issued_s,first_token_s,completed_s,output_tokens"]
    for _ in range(1000):
        moment_s += pace * chance.uniform(0.5, 1.5)
        rows.append(f"0,0,{moment_s:.6f},100")
    return "\n".join(rows) + "\n", 100 * 1000 / moment_s


def test_one_run_a_side_is_undecided_without_history(make_run: MakeRun, side: Any) -> None:
    (before, fast), (after, slow) = _samples(1, 0.01), _samples(2, 0.0106)
    a = side(make_run("a", {SPEED: fast}, samples=before))
    b = side(make_run("b", {SPEED: slow}, samples=after))
    alone = _only(compare([a, b], threshold=0.02))
    assert alone.estimate
    assert (alone.estimate.method, alone.outcome) == (Method.ASSUMED, Outcome.UNDECIDED)
    history = [
        run
        for number, speed in enumerate(FAST)
        for run in side(make_run(f"h{number}", {SPEED: speed * 7})).runs
    ]
    known = _only(compare([a, b], threshold=0.02, history=history))
    assert known.estimate
    assert (known.estimate.method, known.direction) == (Method.HISTORY, "worse")
    without = _only(
        compare(
            [side(make_run("c", {SPEED: fast})), side(make_run("d", {SPEED: slow}))],
            threshold=0.02,
            history=history,
        )
    )
    assert without.estimate
    assert without.estimate.error < known.estimate.error
    assert without.notes == ("no samples to estimate the noise within the runs",)


def test_a_result_that_no_longer_counts_is_a_regression(make_run: MakeRun, side: Any) -> None:
    valid, invalid = make_run("a", {SPEED: FAST}), make_run("b", {SPEED: FAST}, validity="INVALID")
    comparison = compare([side(valid), side(invalid)], threshold=0.02)
    assert comparison.invalid == ((str(invalid), "m/Server/performance"),)
    assert (comparison.regressions, _only(comparison).outcome) == (1, Outcome.SAME)
    assert compare([side(invalid), side(valid)], threshold=0.02).regressions == 0


def test_what_else_differs_is_named(make_run: MakeRun, side: Any) -> None:
    def facts(driver: str, free: int) -> dict[str, Any]:
        memory = {"total_bytes": 5, "available_bytes": free}
        gpus = [{"bus_id": str(place), "name": "H100", "driver": driver} for place in range(2)]
        return {"gpus": gpus, "memory": memory, "driver_version": driver, "kernel": "6.8"}

    def profile(**parameters: Any) -> dict[str, Any]:
        return {"name": "P", "parameters": parameters}

    a = make_run(
        "a", {SPEED: FAST}, facts=facts("550", 3), profile=profile(batch=8, seed=1), clock=1980e6,
        versions={"vllm": "0.9"},
    )  # fmt: skip
    b = make_run(
        "b", {SPEED: FAST}, facts=facts("570", 4), profile=profile(batch=16, seed=1), clock=1700e6, host="h",
        versions={"vllm": "0.9"},
    )  # fmt: skip
    found = compare([side(a), side(b)], threshold=0.02).context
    assert [(one.kind, one.name, one.values) for one in found] == [
        ("settings", "batch", (("8",), ("16",))),
        ("versions", "driver_version", (("550",), ("570",))),
        ("clocks", "m/Server/performance: gpu0_sm_clock_mean", (("1.98e+09 hertz",), ("1.7e+09 hertz",))),
        ("host", "gpus.driver", (("550",), ("570",))),
        ("host", "host name", (("gpu-1",), ("h",))),
    ]
    alike = make_run(
        "c", {SPEED: FAST}, facts=facts("550", 9), profile=profile(batch=8, seed=1), clock=1981e6,
        versions={"vllm": "0.9"},
    )  # fmt: skip
    assert compare([side(a), side(alike)], threshold=0.02).context == ()


def test_results_among_a_cases_details_are_no_settings(make_run: MakeRun, side: Any) -> None:
    def details(number: int, **own: Any) -> dict[str, Any]:
        return {
            "client_loop_lag_max_s": number / 7, "early_stopping_met": bool(number), "errors": number,
            "loadgen_verdict": ("VALID", "INVALID")[number], "engine_url": f"http://127.0.0.1:3000{number}",
            "samples": 64, "max_output_tokens": 8 + number, **own,
        }  # fmt: skip

    a, b = (make_run(name, {SPEED: FAST}, details=details(number)) for number, name in enumerate("ab"))
    (one,) = compare([side(a), side(b)], threshold=0.02).context
    assert (one.name, one.values) == ("max_output_tokens", (("8",), ("9",)))
    away = make_run("c", {SPEED: FAST}, details=details(0, engine_url="http://node:8000"))
    assert [one.name for one in compare([side(a), side(away)], threshold=0.02).context] == ["engine_url"]


def test_settings_of_a_case_that_one_side_lacks_are_left_out(make_run: MakeRun, side: Any) -> None:
    a = make_run("a", {SPEED: FAST}, details={"batch": 8})
    b = make_run("b", {SPEED: FAST}, details={"batch": 9}, scenario="m/Offline/performance")
    both = Side("both", (*side(a).runs, *side(b).runs))
    names = [one.name for one in compare([side(a), both], threshold=0.02).context]
    assert names == []


def test_paths_into_the_runs_own_folder_do_not_differ(make_run: MakeRun, side: Any) -> None:
    a, b = (
        make_run(
            name, {SPEED: FAST}, profile={"parameters": {"log": f"/results/{name}/log", "tag": f"x{name}"}}
        )
        for name in ("a", "b")
    )
    found = compare([side(a), side(b)], threshold=0.02).context
    assert [(one.name, one.values) for one in found] == [("tag", (("xa",), ("xb",)))]


def test_unmatched_scenarios_and_unfinished_runs_are_named(make_run: MakeRun, side: Any) -> None:
    a = make_run("a", {SPEED: FAST})
    other = make_run("b", {SPEED: FAST}, scenario="m/Offline/performance")
    with pytest.raises(UsageError, match="no metric in common") as error:
        compare([side(a), side(other)], threshold=0.02)
    assert "m/Offline/performance: only" in str(error.value)
    with pytest.raises(UsageError, match="did not finish"):
        side(make_run("c", {SPEED: FAST}, end=None))


def test_another_case_of_one_round_is_no_repeat(make_run: MakeRun, side: Any) -> None:
    run = make_run("a", {SPEED: [100.0, 50.0]})
    document = json.loads((run / "run.json").read_text(encoding="utf-8"))
    for case in document["cases"]:
        case["step"] = "1:actions[0]/run"
    (run / "run.json").write_text(json.dumps(document), encoding="utf-8")
    (measured,) = side(run).runs
    assert {key.scenario: values for key, values in measured.values.items()} == {
        "m/Server/performance": [100.0],
        "m/Server/performance#2": [50.0],
    }


@pytest.mark.parametrize("name", ["nothing-*", "", "."])
def test_a_side_without_runs_is_refused(
    name: str, side: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        side(name)


def test_the_page_shows_the_sides_over_one_another_and_over_time(
    make_run: MakeRun, side: Any, tmp_path: Path
) -> None:
    (before, fast), (after, slow) = _samples(1, 0.01), _samples(2, 0.0106)
    a = side(make_run("<a>", {SPEED: fast}, samples=before, versions={"vllm": "<b>0.9</b>"}))
    b = side(make_run("b", {SPEED: slow}, samples=after, validity="INVALID"))
    page = tmp_path / "page.html"
    write_comparison_page(page, compare([a, b], threshold=0.02), [a, b])
    text = page.read_text(encoding="utf-8")
    assert "1 regression" in text
    assert "the result of B no longer counts" in text
    assert "End-to-end latency, samples" in text
    assert "tokens_per_second over time" in text
    assert text.count("<svg") == 4  # three times of the samples, and the metric
    assert "undecided" in text
    assert "&lt;b&gt;0.9" in text
    assert "<b>0.9" not in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")
