"""Submissions of a real run of the embedded profile with real LoadGen: whole, but too short and too small."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from actions.submission.building import Order, build, stage
from actions.submission.checking import check_tree
from actions.submission.official import run_checker
from actions.submission.rounds import find_round
from actions.submission.runs import cases_of
from actions.submission.system_description import system_description
from agent.core.progress import run_progress
from agent.core.yaml_data import yaml_data
from agent.run.request import RunRequest
from agent.run.session import start
from tests.actions.submission.conftest import MEASUREMENTS, SAID, TEST06

if TYPE_CHECKING:
    from pathlib import Path

    from actions.submission.building import Built
    from actions.submission.runs import Case

pytestmark = pytest.mark.engine

SMALL = {
    "OfflineMinDuration": "0.5", "OfflineMinQueryCount": "32", "ServerMinDuration": "0.5",
    "ServerMinQueryCount": "16", "SingleStreamMinDuration": "0.5", "SingleStreamMinQueryCount": "16",
    "AccuracySamples": "8", "MaxOutputTokens": "4", "Compliance": "true",
}  # fmt: skip
CPU = {
    **SAID, "accelerators_per_node": "0", "accelerator_model_name": "N/A",
    "accelerator_memory_capacity": "N/A", "host_storage_type": "SSD", "host_storage_capacity": "1 TB",
    "host_processor_model_name": "x", "host_processors_per_node": "1", "host_processor_core_count": "2",
}  # fmt: skip
SCENARIOS = {"datacenter": ["Offline", "Server"], "edge": ["Offline", "SingleStream"]}
TOO_SMALL = {
    "min_duration_setting", "duration", "performance_samples", "accuracy_samples", "offline_samples",
    "early_stopping", "limits", "configuration", "accuracy_hash",
}  # fmt: skip
"""Faults of a run of half a second over 64 prompts, with limits of its own; 8 other ones for the accuracy."""
NOT_THE_BENCHMARK = {"accuracy", "accuracy_unreadable"}
OFFICIAL_TOO_SMALL = (
    "performance_sample_count, found 64", "Required minimum samples per query not met",
    "Test duration less than 600s", "Early stopping condition was not met", "run does not cover all dataset",
    "Failed extra check for TTFT and TPOT", "Checks failed for",
)  # fmt: skip
COMBINATIONS = [(kind, division) for kind in SCENARIOS for division in ("closed", "open")]


@pytest.fixture(scope="module")
def cases(bench_python: Path, tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """Return the tests of one run of the embedded profile, on a tiny model, shared by all trees."""
    folder = tmp_path_factory.mktemp("real")
    document = yaml_data((files("profiles") / "PERF-CPU-MLPERF.yaml").read_text())
    document["dependencies"] = document["monitors"] = []
    for action in document["actions"]:
        action["parameters"] |= {
            "environment": str(bench_python.parent.parent),
            "server": {"model": str(tiny_gguf), "parallel": 4, "context": 256},
        }
    profile = folder / "EMBEDDED.json"
    profile.write_text(json.dumps(document))
    request = RunRequest(
        (str(profile),), parameters=SMALL, results_dir=folder / "results", package_dir=folder / "packages"
    )
    return cases_of([start(request, run_progress(quiet=True)).run_dir])


def order(output: Path, kind: str, division: str) -> Order:
    benchmark = "llama3.1-8b" if kind == "datacenter" else "llama3.1-8b-edge"
    names = {"smollm2-135m": benchmark}
    return Order(output, division, find_round("v6.1"), "Demo", "cpu", kind, CPU, MEASUREMENTS, names)


def chosen(cases: list[Case], kind: str) -> list[Case]:
    return [case for case in cases if case.scenario in SCENARIOS[kind]]


@pytest.fixture
def tree(cases: list[Case], tmp_path: Path, kind: str, division: str) -> tuple[Path, Built]:
    """Return a tree of the short run, with the results that are not to be submitted."""
    wanted = order(tmp_path / "tree", kind, division)
    wanted.output.mkdir()
    here = chosen(cases, kind)
    system = system_description(here, CPU, division=division, submitter="Demo", system_type=kind, name="cpu")
    return wanted.output, stage(wanted, here, wanted.output, system, keeps_rejected=True)


@pytest.mark.parametrize(("kind", "division"), COMBINATIONS)
def test_nothing_of_a_short_run_is_filed(cases: list[Case], tmp_path: Path, kind: str, division: str) -> None:
    wanted = order(tmp_path / "tree", kind, division)
    built = build(wanted, chosen(cases, kind))
    assert built.filed == ()
    assert not wanted.output.exists()
    whys = " ".join(missing.why for missing in built.missing)
    assert "min_duration is 0.5 s, the rules require 600 s" in whys
    assert "the run itself took" in whys
    names = {name for line in built.commands for name in line.split("--scenarios ")[1].split(",")}
    assert {f"{name.lower()}-performance" for name in SCENARIOS[kind]} <= names


@pytest.mark.parametrize(("kind", "division"), COMBINATIONS)
def test_only_its_size_is_wrong(tree: tuple[Path, Built], kind: str, division: str) -> None:
    root, _ = tree
    checked = check_tree(root, find_round("v6.1"))
    assert [result.place.scenario for result in checked.results] == SCENARIOS[kind]
    codes = {finding.code for result in checked.results for finding in result.errors}
    assert codes <= TOO_SMALL | (NOT_THE_BENCHMARK if division == "closed" else set())
    assert {"duration", "performance_samples", "accuracy_samples"} <= codes
    assert not [finding for _, finding in checked.findings if finding.is_error]


@pytest.mark.parametrize(("kind", "division"), COMBINATIONS)
def test_the_official_checker_finds_no_more(
    inference: Path, tree: tuple[Path, Built], kind: str, division: str
) -> None:
    root, _ = tree
    official = run_checker(inference, root, "v6.1", submitters=["Demo"])
    assert not official.has_passed
    assert not official.has_crashed
    for scenario in SCENARIOS[kind]:
        assert any(f"/{scenario}/performance/run_1" in text for text in official.errors)
    others = [text for text in official.errors if not any(part in text for part in OFFICIAL_TOO_SMALL)]
    assert others == []


def test_its_compliance_runs_pass(cases: list[Case]) -> None:
    tests = {case.scenario: case for case in cases if case.mode == "TEST06"}
    assert set(tests) == {"Offline", "Server"}, cases[0].run.exit_reason
    for scenario, case in tests.items():
        assert case.part.validity == "VALID", case.part.reasons
        first = "Skipped" if scenario == "Offline" else "True"
        text = (case.logs / "verify_accuracy.txt").read_text()
        assert text == TEST06.replace("Skipped", first) + "TEST06 verification complete\n"
