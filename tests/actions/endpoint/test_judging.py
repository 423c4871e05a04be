"""Judges whether a rate holds, how exact a figure is, and what the search concludes from it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from actions.endpoint.judging import combined, misses, with_errors
from actions.endpoint.point import Asked, Measured, Run
from actions.endpoint.rate_search import RateSearch
from actions.endpoint.sweep import judged
from agent.core.records import Metric, ParsedOutput, Reason, Validity, Verdict
from parsers.endpoint_load.requests import Limits, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def requests(ttft_s: Callable[[int], float | None], count: int = 200) -> list[Request]:
    """Make 200 requests, one per tenth of a second, with 11 tokens at 10 ms each; None for a failed one."""
    made = []
    for number in range(count):
        due_s, first_s = number * 0.1, ttft_s(number)
        if first_s is None:
            made.append(Request(due_s, None, None, 0))
        else:
            made.append(Request(due_s, due_s + first_s, due_s + first_s + 0.1, 11))
    return made


def missed(found: Sequence[Request], share: float | None = None, **limits: float) -> str:
    return misses(found, Limits(**limits), percentile=99, share=share)


def test_a_rate_holds_within_its_limits() -> None:
    assert missed(requests(lambda _: 0.05), ttft_s=0.06, tpot_s=0.011, latency_s=0.2) == ""


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"ttft_s": 0.04}, "ttft p99 is 0.05 s, the limit is 0.04 s"),
        ({"tpot_s": 0.009}, "tpot p99 is 0.01 s"),
        ({"latency_s": 0.1}, "latency p99 is 0.15 s"),
    ],
)
def test_a_limit_that_is_missed_is_named(limits: dict[str, float], words: str) -> None:
    assert words in missed(requests(lambda _: 0.05), **limits)


def test_one_in_a_hundred_may_be_slow_and_three_may_not() -> None:
    def some(slow: int) -> list[Request]:
        return requests(lambda number: 1.0 if number % 100 < slow else 0.05)

    assert missed(some(1), ttft_s=0.1) != ""  # the 99th percentile of 200 is the 199th, a slow one
    assert missed(some(0), ttft_s=0.1) == ""
    assert missed(some(3), share=0.97, ttft_s=0.1) == ""
    assert missed(some(3), share=0.98, ttft_s=0.1) == "97.00% of the requests meet the limits, 98.00% must"


def test_a_request_that_fails_misses_every_limit() -> None:
    found = requests(lambda number: None if number % 20 == 0 else 0.05)
    assert "no answer" in missed(found, tpot_s=1.0)
    assert missed(found, share=0.96, latency_s=1.0).startswith("95.00%")


def test_an_endpoint_that_falls_behind_does_not_hold_however_wide_the_limit() -> None:
    assert "falls behind" in missed(requests(lambda number: 0.05 + number * 0.002), ttft_s=0.5)


def test_an_answer_of_one_token_has_no_time_per_token() -> None:
    assert missed([Request(0.0, 0.1, 0.1, 1)] * 10, tpot_s=0.001) == ""


def test_figures_get_the_errors_that_their_requests_tell() -> None:
    chance = random.Random(1)  # noqa: S311 - times; no secret
    found = requests(lambda _: chance.expovariate(20), 1000)
    times = sorted(request.first_token_s - request.due_s for request in found)  # type: ignore[operator]
    metrics = (
        Metric("ttft_p50", times[500], "seconds"),
        Metric("slo_attainment", 0.9, "ratio"),
        Metric("goodput", 9.0, "requests/s"),
        Metric("requests_per_second", 10.0, "requests/s"),
        Metric("concurrency", 3, "count"),
    )
    output = with_errors(ParsedOutput("f", "t", metrics=metrics), found, Limits(ttft_s=0.1))
    ttft, met, goodput, rate, plain = (metric.metadata.get("standard_error") for metric in output.metrics)
    # The median of n exponential values: mean / sqrt(n); a share p: sqrt(p (1 - p) / n).
    assert ttft == pytest.approx(0.05 / 1000**0.5, rel=0.5)
    assert met == pytest.approx((0.865 * 0.135 / 1000) ** 0.5, rel=0.4)
    assert goodput == pytest.approx(9.0 * met / 0.865, rel=0.05)  # type: ignore[operator]
    assert rate is not None
    assert plain is None


def test_a_share_of_all_or_none_has_no_error_that_the_requests_tell() -> None:
    metrics = (Metric("slo_attainment", 1.0, "ratio"), Metric("goodput", 10.0, "requests/s"))
    found = with_errors(ParsedOutput("f", "t", metrics=metrics), requests(lambda _: 0.05), Limits(ttft_s=1.0))
    assert all("standard_error" not in metric.metadata for metric in found.metrics)


def output(value: float, *reasons: str) -> ParsedOutput:
    verdict = Verdict(
        Validity.INVALID if reasons else Validity.VALID, tuple(Reason(code, code=code) for code in reasons)
    )
    names = ("requests_per_second", "offered_rate")
    metrics = tuple(Metric(name, value, "requests/s") for name in names)
    return ParsedOutput("endpoint_load", "vcagent", metrics=metrics, verdict=verdict)


def test_runs_become_their_mean_with_their_spread_and_the_worst_verdict() -> None:
    one = combined([output(10.0), output(14.0, "client_cpu")])
    rate = one.metrics[0]
    assert (rate.value, rate.metadata["minimum"], rate.metadata["maximum"]) == (12.0, 10.0, 14.0)
    assert rate.metadata["standard_error"] == pytest.approx(2.0)
    assert one.validity is Validity.INVALID
    assert one.verdict is not None
    assert one.verdict.reasons[0].message == "in 1 of 2 runs: client_cpu"


class Endpoint:
    """Sustains load up to a rate; some rates hold only in the first runs."""

    def __init__(self, capacity: float, *, falls: dict[float, int] | None = None, reasons: str = "") -> None:
        self.capacity = capacity
        self.falls = falls or {}
        self.reasons = reasons
        self.asked: list[tuple[float, int]] = []

    def run(self, point: Asked, number: int) -> Run:
        assert point.rate is not None
        self.asked.append((point.rate, number))
        is_good = point.rate <= self.capacity and number < self.falls.get(point.rate, 99)
        reasons = [self.reasons] if self.reasons and not is_good else []
        return Run(point, output(point.rate, *reasons), (), "" if is_good or reasons else "too slow")


def search(endpoint: Endpoint, *known: Measured, most_trials: int = 12) -> RateSearch:
    made = RateSearch(known, precision=0.05, most_trials=most_trials, confirmations=2, run=endpoint.run)
    made.execute()
    return made


def alone(rate: float, concurrency: int = 1) -> Measured:
    asked = Asked(concurrency=concurrency)
    return Measured(asked, (Run(asked, output(rate), (), ""),))


def test_the_highest_rate_is_bracketed_and_confirmed() -> None:
    endpoint = Endpoint(capacity=37.0)
    found = search(endpoint, alone(4.0), alone(30.0, 16))
    assert found.found is not None
    assert found.lowest_bad is not None
    assert found.found.offered <= 37.0 < found.lowest_bad <= found.found.offered * 1.05
    assert endpoint.asked[0] == (21.0, 1)  # 0.7 of the best throughput
    assert [number for rate, number in endpoint.asked if rate == found.found.offered] == [1, 2, 3]


def test_a_rate_that_does_not_hold_again_is_not_the_answer() -> None:
    rate = search(Endpoint(capacity=37.0), alone(4.0), alone(30.0, 16)).found
    assert rate is not None
    found = search(Endpoint(capacity=37.0, falls={rate.offered: 2}), alone(4.0), alone(30.0, 16))
    assert found.found is not None
    assert found.found.offered == pytest.approx(rate.offered * 0.97, rel=1e-3)
    assert found.lowest_bad == rate.offered


def test_rates_that_are_known_are_not_tried_again_at_first() -> None:
    def rate_point(rate: float, missed: str = "") -> Measured:
        return Measured(Asked(rate=rate), (Run(Asked(rate=rate), output(rate), (), missed),))

    endpoint = Endpoint(capacity=37.0)
    search(endpoint, rate_point(30.0), rate_point(60.0, "too slow"))
    assert endpoint.asked[0][0] == pytest.approx((30 * 60) ** 0.5, rel=1e-3)


def test_a_limit_that_one_request_alone_misses_ends_the_search_soon() -> None:
    endpoint = Endpoint(capacity=0.0)
    found = search(endpoint, alone(10.0))
    assert found.found is None
    assert min(rate for rate, _ in endpoint.asked) >= 1.0


def test_a_client_that_is_the_limit_does_not_hold() -> None:
    found = search(Endpoint(capacity=37.0, reasons="client_cpu"), alone(4.0), alone(30.0, 16))
    assert found.lowest_bad is not None
    assert not found.tried[found.lowest_bad].is_valid
    verdict = judged(found, ())
    assert [reason.code for reason in verdict.reasons] == ["client_cpu"]
    assert verdict.reasons[0].message.startswith("above 3")


def test_a_search_that_found_nothing_is_invalid_and_one_that_found_a_rate_is_valid() -> None:
    nothing = judged(search(Endpoint(capacity=0.0), alone(10.0)), ())
    assert [reason.code for reason in nothing.reasons] == ["no_rate_holds"]
    assert judged(search(Endpoint(capacity=37.0), alone(4.0), alone(30.0, 16)), ()) == Verdict(Validity.VALID)
