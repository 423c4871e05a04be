"""Validate a submission. Rejects INVALID runs, errors and empty trees, which the official checker accepts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from actions.submission.accuracy import accuracy_findings, configuration_findings
from actions.submission.compliance import compliance_findings
from actions.submission.findings import CheckedResult, CheckedTree, Finding, note
from actions.submission.papers import SYSTEM_TYPES, measurement_findings, source_findings, system_findings
from actions.submission.performance import (
    figure_of,
    performance_findings,
    read_run,
    scenario_of,
    seed_findings,
    user_conf_findings,
)
from actions.submission.power import power_findings
from actions.submission.tree import bad_links, places, read_json, submitters, system_names
from agent.core.file_hash import sha256_of
from parsers.loadgen import DETAIL_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from actions.submission.rounds import Benchmark, Round
    from actions.submission.tree import Place, Submitter

_ALTERNATIVES = "|"


def check_tree(root: Path, mlperf_round: Round, *, submitter: str = "") -> CheckedTree:
    """Check a submission's tree.

    Args:
        root: the folder with closed/, open/ or network/.
        mlperf_round: the round of the submission.
        submitter: check only this submitter.

    Raises:
        UsageError: if the folder is not such a tree, or does not have the submitter.
    """
    whose = [each for each in submitters(root) if not submitter or each.name == submitter]
    found: list[tuple[str, Finding]] = []
    results: list[CheckedResult] = []
    for each in whose:
        place = f"{each.division}/{each.name}"
        here = list(places(each, mlperf_round))
        results += map(check_result, here)
        found += [(place, finding) for finding in _submitter_findings(each, mlperf_round, here)]
    if not results:
        text = "the tree has no result" + (f" of {submitter}" if submitter else "")
        found.append((str(root), Finding("empty", text, "build it from runs: vcagent submission build")))
    return CheckedTree(tuple(results), tuple(found))


def _submitter_findings(submitter: Submitter, mlperf_round: Round, here: list[Place]) -> Iterator[Finding]:
    yield from source_findings(submitter, mlperf_round.source_folder)
    for path, why in bad_links(submitter):
        yield Finding("link", f"{path} is a link {why}", "put the file itself in its place")
    yield from _copied_logs(here)
    with_results = {place.system for place in here}
    for system in sorted(set(system_names(submitter)) - with_results):
        yield note("no_results", f"the system {system} has no results")
    if submitter.division == "open":
        return
    done: dict[tuple[str, str], set[str]] = {}
    for place in here:
        done.setdefault((place.system, place.benchmark), set()).add(place.official_scenario)
    for (system, benchmark), scenarios in done.items():
        yield from _missing_scenarios(submitter, mlperf_round, system, benchmark, scenarios)


def _copied_logs(here: list[Place]) -> Iterator[Finding]:
    """Yield a finding for each result that has the log of another system."""
    whose: dict[str, Place] = {}
    for place in here:
        for folder in (place.performance, place.accuracy):
            if not (folder / DETAIL_NAME).is_file():
                continue
            first = whose.setdefault(sha256_of(folder / DETAIL_NAME), place)
            if first.system != place.system:
                text = f"{place.name} has the log of {first.name} in {folder.relative_to(place.results)}"
                yield Finding("copied_log", text, "file the logs of the system that is described")


def _missing_scenarios(
    submitter: Submitter, mlperf_round: Round, system: str, benchmark: str, scenarios: set[str]
) -> Iterator[Finding]:
    asked = mlperf_round.benchmarks.get(mlperf_round.official_name(benchmark, {}))
    description = read_json(submitter.folder / "systems" / f"{system}.json")
    kind = description.get("system_type") if isinstance(description, dict) else None
    if asked is None or kind not in SYSTEM_TYPES:
        return
    wanted = asked.scenarios(str(kind))
    if not wanted:
        yield Finding("category", f"{system}/{benchmark}: the benchmark is not one of {kind} systems")
    for scenario in wanted:
        if not scenarios & set(scenario.split(_ALTERNATIVES)):
            either = " or ".join(scenario.split(_ALTERNATIVES))
            text = f"{system}/{benchmark}: {either} is missing, but required for {kind} systems"
            remedy = "run it, or submit to the open division"
            yield Finding("scenarios", text, remedy, scenarios=tuple(scenario.split(_ALTERNATIVES)))


def check_result(place: Place) -> CheckedResult:
    """Check one result of a tree."""
    official = place.round.official_name(place.benchmark, place.submitter.model_mapping)
    asked = place.round.benchmarks.get(official)
    findings = list(_benchmark_findings(place, official, asked))
    performance, output, missing = read_run(place.performance, "performance")
    findings += _of_test("performance", missing)
    figure = None
    if performance is not None and output is not None:
        findings += _of_test("performance", performance_findings(place, asked, official, performance, output))
        findings += user_conf_findings(place, official, performance, "performance")
        figure = figure_of(performance) if performance.scenario == scenario_of(place) else None
    accuracy, output, missing = read_run(place.accuracy, "accuracy")
    findings += _of_test("accuracy", missing)
    if accuracy is not None and output is not None:
        findings += _of_test("accuracy", accuracy_findings(place, asked, official, accuracy, output))
        findings += _of_test("accuracy", seed_findings(place.round, accuracy, "accuracy"))
        if performance is not None:
            findings += _of_test("accuracy", configuration_findings(place, performance, accuracy))
    findings += power_findings(place, performance)
    findings += measurement_findings(place)
    findings += _system_findings(place)
    if asked is not None:
        findings += compliance_findings(place, asked)
    return CheckedResult(place, tuple(dict.fromkeys(findings)), figure)


def _of_test(test: str, findings: Iterable[Finding]) -> list[Finding]:
    return [replace(finding, test=test) for finding in findings]


def _benchmark_findings(place: Place, official: str, asked: Benchmark | None) -> Iterator[Finding]:
    if asked is None:
        is_open = place.submitter.division == "open"
        text = f"{official} is not a benchmark of {place.round.name}"
        remedy = "add its benchmark to model_mapping.json" if is_open else "see the round's list"
        yield Finding("benchmark", text, remedy)


def _system_findings(place: Place) -> Iterator[Finding]:
    description = read_json(place.system_file)
    if not isinstance(description, dict):
        yield Finding("system", "the system description is missing", f"write {place.system_file}")
        return
    whose = place.submitter
    yield from system_findings(description, division=whose.division, submitter=whose.name)
