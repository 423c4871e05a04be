from __future__ import annotations

import re

import pytest

from actions.submission.compliance import VERIFIED_BY
from actions.submission.rounds import find_round, known_rounds
from agent.core.errors import UsageError
from agent.core.mlperf import TESTS_NOT_RUN, TESTS_RUN


def test_rounds_and_their_layouts() -> None:
    assert list(known_rounds()) == ["v4.1", "v5.0", "v5.1", "v6.0", "v6.1"]
    assert [each.is_flat for each in known_rounds().values()] == [False, False, False, True, True]
    assert find_round("6.1").source_folder == "src"
    assert find_round("v5.1").source_folder == "code"


def test_every_round_has_seeds_of_its_own() -> None:
    seeds = {tuple(each.seeds.values()) for each in known_rounds().values()}
    assert len(seeds) == len(known_rounds())
    assert all(set(each.seeds) == {"qsl", "sample_index", "schedule"} for each in known_rounds().values())


def test_an_unknown_round() -> None:
    with pytest.raises(UsageError, match=r"no round is named 'v9\.9'"):
        find_round("v9.9")


@pytest.mark.parametrize(
    ("folder", "mapping", "official"),
    [
        ("llama3_1-8b", {}, "llama3.1-8b"),
        ("resnet50", {}, "resnet"),
        ("mine", {"mine": "llama2-70b-99.9"}, "llama2-70b-99.9"),
        ("bert-base-pruned90-bert-99", {}, "bert-99"),
        ("mine", {}, "mine"),
    ],
)
def test_official_names(folder: str, mapping: dict[str, str], official: str) -> None:
    assert find_round("v6.1").official_name(folder, mapping) == official


def test_scenarios_of_a_system() -> None:
    benchmark = find_round("v6.1").benchmarks["bert-99"]
    assert benchmark.scenarios("datacenter") == ()
    assert benchmark.scenarios("datacenter,edge") == ("Offline", "SingleStream")
    assert find_round("v6.1").benchmarks["llama3.1-8b"].scenarios("datacenter") == (
        "Offline",
        "Server|Interactive",
    )


def test_every_compliance_test_is_run_or_named_with_its_benchmarks() -> None:
    needed: dict[str, set[str]] = {}
    for each in known_rounds().values():
        for name, benchmark in each.benchmarks.items():
            for test in benchmark.tests:
                needed.setdefault(test, set()).add(re.sub(r"-9[59](\.9)?$", "", name))
    assert {test: set(names) for test, names in TESTS_NOT_RUN.items()} == {
        test: names for test, names in needed.items() if test not in TESTS_RUN
    }
    assert VERIFIED_BY.keys() == needed.keys()


@pytest.mark.parametrize("name", ["llama2-70b-99.9", "llama3.1-8b"])
def test_the_language_models_of_the_profiles_need_one_test_which_vcagent_runs(name: str) -> None:
    asked = [each.benchmarks[name].tests for each in known_rounds().values() if name in each.benchmarks]
    assert {tests for tests in asked if tests} == {TESTS_RUN}
    assert find_round("v6.1").benchmarks["llama3.1-8b-edge"].tests == ()
