"""PERF-ENDPOINT, planned but not run."""

from __future__ import annotations

import pytest

from actions.endpoint.sweep import EndpointSweep
from agent.facts import Facts
from agent.profile import Variables, check, load, resolve
from parsers.endpoint_load.requests import Limits

VARIABLES = Variables({}, {"PackageDir": lambda name: f"/packages/{name}"})


def sweep(**overrides: str) -> EndpointSweep:
    profile = load(["PERF-ENDPOINT.yaml"], overrides=overrides)
    check(profile, VARIABLES)
    (element,) = profile.actions
    return EndpointSweep(EndpointSweep.Parameters.model_validate(resolve(element, profile, VARIABLES)))


def test_it_can_be_planned() -> None:
    action = sweep(Endpoint="http://127.0.0.1:8000")
    names = [step.name for step in action.plan(Facts(modelled={})).steps]
    assert names == [*(f"concurrency-{users}" for users in (1, 2, 4, 8, 16, 32)), "highest-rate"]
    assert action.asked.limits == Limits(ttft_s=1.0, tpot_s=0.05)
    assert action.asked.request == {"ignore_eos": True, "temperature": 0}


def test_parameters_reach_the_sweep() -> None:
    given = {
        "Rates": "2,0.5",
        "TtftLimitMs": "",
        "LatencyLimitMs": "9000",
        "LimitShare": "0.9",
        "Api": "chat",
    }
    asked = sweep(Endpoint="http://127.0.0.1:8000", **given).asked
    assert (asked.rates, asked.limit_share, asked.as_text) == ((0.5, 2.0), 0.9, True)
    assert asked.limits == Limits(tpot_s=0.05, latency_s=9.0)


def test_without_an_endpoint_it_says_what_to_give() -> None:
    with pytest.raises(ValueError, match="give the URL of the server"):
        sweep()
