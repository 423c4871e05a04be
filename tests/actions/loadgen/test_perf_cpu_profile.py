"""The embedded profile, planned but not run."""

from __future__ import annotations

from actions.loadgen.executor import LoadGenExecutor
from agent.facts import Facts
from agent.profile import Variables, check, load, resolve

VARIABLES = Variables({}, {"PackageDir": lambda name: f"/packages/{name}"})
LEAST_QUERIES = {"Server": 459, "SingleStream": 64, "Offline": 1}
"""Least queries for early stopping without overruns (mlcommons/inference, loadgen/early_stopping.cc)."""


def test_every_action_can_be_planned_and_be_valid() -> None:
    profile = load(["PERF-CPU-MLPERF.yaml"])
    check(profile, VARIABLES)
    cases = []
    for element in profile.actions:
        parameters = LoadGenExecutor.Parameters.model_validate(resolve(element, profile, VARIABLES))
        action = LoadGenExecutor(parameters)
        (step,) = action.plan(Facts(modelled={})).steps
        cases.append((action.asked.case, step.name))
        if action.asked.mode == "performance":
            assert (action.asked.min_query_count or 0) >= LEAST_QUERIES[action.asked.loadgen_scenario]
    assert cases == [(name, name) for _, name in cases]
    assert len(set(cases)) == 8


def test_the_small_form() -> None:
    profile = load(["PERF-CPU-MLPERF.yaml"], overrides={"OfflineMinDuration": "3", "AccuracySamples": "16"})
    first, last = (
        LoadGenExecutor.Parameters.model_validate(resolve(profile.actions[number], profile, VARIABLES))
        for number in (0, 3)
    )
    assert first.model_dump()["min_duration"] == 3
    assert last.model_dump()["samples"] == 16


def test_a_slow_processor_gets_more_time_in_every_case() -> None:
    profile = load(["PERF-CPU-MLPERF.yaml"], overrides={"SampleTimeout": "01:00:00"})
    for element in profile.actions:
        asked = LoadGenExecutor.Parameters.model_validate(resolve(element, profile, VARIABLES))
        assert asked.model_dump()["sample_timeout"] == 3600


def test_the_requirements_are_whole_and_exact() -> None:
    profile = load(["PERF-CPU-MLPERF.yaml"])
    (environment,) = (each for each in profile.dependencies if each.type == "PythonEnvironmentInstallation")
    requirements = environment.parameters["requirements"]
    assert all("==" in requirement for requirement in requirements)
    assert len(requirements) == 14
