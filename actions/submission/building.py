"""Build a submission's tree from runs: only results that pass every check, with a list of missing ones."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from actions.submission.accuracy import CUT, MOST_LOG_BYTES
from actions.submission.checking import check_result, check_tree
from actions.submission.findings import Finding
from actions.submission.power import POWER_FILES, POWER_REMEDY, is_measured, power_folders
from actions.submission.reruns import Rerun, Reruns, command_lines
from actions.submission.same_settings import has_settings, in_one_line, setting_differences
from actions.submission.system_description import missing_fields, system_description
from actions.submission.tree import ACCURACY_LOG, ACCURACY_TEXT, MODEL_MAPPING, Place, Submitter
from agent.core.errors import UsageError, host_errors
from agent.core.file_hash import sha256_of
from agent.core.mlperf import TESTS_RUN
from agent.core.records import Relativity
from agent.store.documents import SummaryDocument
from parsers.loadgen import DETAIL_NAME, read_detail
from parsers.loadgen.settings import MILLISECOND_NS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from actions.submission.findings import CheckedResult
    from actions.submission.rounds import Round
    from actions.submission.runs import Case

_SUMMARY_NAME = "mlperf_log_summary.txt"
_VIEWABLE_BYTES = 4096
_ASKED = {
    "Offline": ("target_qps", "requested_offline_expected_qps", 1),
    "Server": ("target_qps", "requested_server_target_qps", 1),
    "SingleStream": ("target_latency", "requested_single_stream_expected_latency_ns", MILLISECOND_NS),
    "MultiStream": ("target_latency", "requested_multi_stream_expected_latency_ns", MILLISECOND_NS),
}
"""Name in user.conf of a scenario's load, the setting in LoadGen's log, and the factor to user.conf's
unit."""
_PERCENT = 100


@dataclass(frozen=True)
class Order:
    """Description of a submission to build.

    Args:
        output: the tree's folder; must not exist.
        division: closed or open.
        mlperf_round: the round.
        submitter: the submitter's name.
        system: the system's name, also the name of its folder.
        system_type: datacenter, edge, or both.
        said: the owner's fields of the system description.
        measurements: the owner's fields of the measurements.
        benchmarks: the benchmark as which a run's model is submitted (closed), or that it stands for (open).
        compliance: folder with BENCHMARK/SCENARIO/TESTxx of the compliance runs; None if there are none.
        power: folder with BENCHMARK/SCENARIO of the power measurements; None if there are none.
    """

    output: Path
    division: str
    mlperf_round: Round
    submitter: str
    system: str
    system_type: str
    said: Mapping[str, str]
    measurements: Mapping[str, str]
    benchmarks: Mapping[str, str]
    compliance: Path | None = None
    power: Path | None = None


@dataclass(frozen=True)
class Missing:
    """Something that must be run or fixed before it can be filed."""

    what: str
    why: str
    remedy: str = ""
    reruns: tuple[Rerun, ...] = ()


@dataclass(frozen=True)
class Built:
    """A built tree: the filed results, and the missing ones."""

    filed: tuple[CheckedResult, ...]
    missing: tuple[Missing, ...]

    @property
    def commands(self) -> list[str]:
        """Return the commands that run what is missing, as far as the runs' profiles have the tests."""
        return command_lines(dict.fromkeys(rerun for each in self.missing for rerun in each.reruns))


def build(order: Order, cases: Sequence[Case]) -> Built:
    """Build a tree from tests; it is written completely or not at all.

    Raises:
        UsageError: if the folder exists, or a field of the description is empty.
        HostError: if the tree cannot be written.
    """
    if order.output.exists() or order.output.is_symlink():
        raise UsageError(
            f"{order.output} already exists",
            remedy="give a new folder with --output: a submission is never overwritten",
        )
    system = system_description(
        cases, order.said, division=order.division, submitter=order.submitter, system_type=order.system_type,
        name=order.said.get("system_name") or order.system,
    )  # fmt: skip
    if empty := missing_fields(system, order.measurements):
        raise UsageError(
            "the system description has fields that cannot be read from the host",
            details=tuple(empty),
            remedy="set them with --set 'field=value', or with field: value in a file for --description",
        )
    with host_errors(str(order.output)):
        order.output.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(mkdtemp(prefix=f".{order.output.name}-", dir=order.output.parent))
        try:
            built = stage(order, cases, staged, system)
            if built.filed:
                staged.chmod(0o755)
                staged.rename(order.output)
            return built
        finally:
            shutil.rmtree(staged, ignore_errors=True)


def stage(
    order: Order,
    cases: Sequence[Case],
    staged: Path,
    system: Mapping[str, str],
    *,
    keeps_rejected: bool = False,
) -> Built:
    """Write a tree's files into an existing folder.

    Args:
        order: the description of the tree.
        cases: the tests.
        staged: the folder.
        system: the system description.
        keeps_rejected: True to leave rejected results in the tree, so that a checker can read them.
    """
    submitter = Submitter(staged, order.division, order.submitter)
    _write_frame(order, submitter, cases, system)
    filed: list[CheckedResult] = []
    missing: list[Missing] = []
    reruns = Reruns(cases)
    unfiled_power = power_folders(order.power)
    for model, scenario in dict.fromkeys((case.model, case.scenario) for case in cases):
        here = [case for case in cases if (case.model, case.scenario) == (model, scenario)]
        place = Place(submitter, order.mlperf_round, order.system, _folder_of(order, model), scenario)
        if power := unfiled_power.pop((place.benchmark, place.scenario), None):
            here = [case for case in here if case.mode != "performance" or is_measured(power, case.logs)]
        chosen = _choose(here)
        performance, accuracy = chosen["performance"], chosen["accuracy"]
        if performance is None or accuracy is None:
            missing += (
                Missing(
                    f"{model} {scenario} power", f"none of these runs was measured in {power}", POWER_REMEDY
                )
                if power and mode == "performance"
                else Missing(
                    f"{model} {scenario} {mode}",
                    "no run has this test",
                    f"run it with mode: {mode}",
                    tuple(reruns.find(model, (scenario,), mode)),
                )
                for mode in ("performance", "accuracy")
                if chosen[mode] is None
            )
            continue
        _file(order, place, performance, accuracy)
        if power:
            _file_power(power, place)
        faults = list(_settings_findings(performance, accuracy))
        for test in TESTS_RUN if order.division != "open" else ():
            faults += _file_compliance(place, test, chosen[test], performance)
        checked = check_result(place)
        refused = {finding.test for finding in faults} - {"accuracy"}
        faults += (finding for finding in checked.errors if finding.test not in refused)
        if not faults:
            filed.append(checked)
            continue
        missing += (
            Missing(
                f"{model} {scenario}",
                finding.message,
                finding.remedy,
                tuple(reruns.find(model, (scenario,), finding.test)),
            )
            for finding in faults
        )
        if not keeps_rejected:
            _remove(place)
    missing += (
        Missing(f"{benchmark} {scenario} power", f"no run is of this test, but {folder} is", POWER_REMEDY)
        for (benchmark, scenario), folder in unfiled_power.items()
    )
    kept, incomplete = _whole_benchmarks(order, staged, filed, reruns)
    return Built(tuple(kept), (*missing, *incomplete))


def _whole_benchmarks(
    order: Order, staged: Path, filed: Sequence[CheckedResult], reruns: Reruns
) -> tuple[list[CheckedResult], list[Missing]]:
    """Remove benchmarks of a closed submission that lack a scenario."""
    if not filed:
        return [], []
    findings = [finding for _, finding in check_tree(staged, order.mlperf_round).findings if finding.is_error]
    kept = []
    for result in filed:
        name = f"{result.place.system}/{result.place.benchmark}: "
        if any(finding.message.startswith(name) for finding in findings):
            _remove(result.place)
        else:
            kept.append(result)
    missing = [
        Missing(
            order.mlperf_round.name,
            each.message,
            each.remedy,
            tuple(_of_missing_scenario(order, each, reruns)),
        )
        for each in findings
    ]
    return kept, missing


def _of_missing_scenario(order: Order, finding: Finding, reruns: Reruns) -> Iterator[Rerun]:
    """Yield the tests of a scenario that no run has; what a run's own scenario lacks is listed with it."""
    for model in dict.fromkeys(case.model for case in reruns.cases):
        folder = _folder_of(order, model)
        has_run = {case.scenario for case in reruns.cases if case.model == model}
        if f"/{folder}: " not in finding.message or has_run & set(finding.scenarios):
            continue
        asked = order.mlperf_round.benchmarks.get(folder)
        tests = [test for test in TESTS_RUN if asked and test in asked.tests]
        for mode in ("performance", "accuracy", *tests):
            yield from reruns.find(model, finding.scenarios, mode)


def _folder_of(order: Order, model: str) -> str:
    """Return the folder of a model: in closed the benchmark's name, in open the model's own."""
    if order.division == "open":
        return model
    return order.benchmarks.get(model) or order.mlperf_round.official_name(model, {})


def _choose(cases: Sequence[Case]) -> dict[str, Case | None]:
    """Return the best test of each mode; those with the performance run's settings come first."""
    chosen = {"performance": _best([case for case in cases if case.mode == "performance"])}
    performance = chosen["performance"]
    for mode in ("accuracy", *TESTS_RUN):
        here = [case for case in cases if case.mode == mode]
        alike = [case for case in here if performance and not list(_settings_findings(performance, case))]
        chosen[mode] = _best(alike or here)
    return chosen


def _settings_findings(performance: Case, other: Case) -> Iterator[Finding]:
    """Yield a finding if a test was not run with the settings of the performance run, or if none is known."""
    test, known = other.mode, [has_settings(case) for case in (performance, other)]
    if not all(known) and (any(known) or test in TESTS_RUN):
        without = other if known[0] else performance
        text = f"the settings of {test} cannot be compared: {without.name} has no record of its settings"
    elif differences := setting_differences(performance, other):
        text = f"{test} was run with other settings than {performance.name}: {in_one_line(differences)}"
    else:
        return
    yield Finding("settings", text, f"run {test} with the settings of the performance run", test=test)


def _best(cases: Sequence[Case]) -> Case | None:
    """Return the valid test with the best figure; if none is valid, the newest test."""
    valid = [case for case in cases if case.part.validity == "VALID"]
    if not valid:
        return cases[-1] if cases else None
    return max(valid, key=_merit)


def _merit(case: Case) -> float:
    summary = _summary(case)
    if summary is None:
        return 0.0
    heads = [head.metric for head in summary.headline.values()]
    for metric in summary.metrics:
        if metric.name in heads and metric.relativity != Relativity.UNDEFINED.value:
            return metric.value if metric.relativity == Relativity.HIGHER.value else -metric.value
    return 0.0


def _summary(case: Case) -> SummaryDocument | None:
    """Return a test's summary; None if it does not have its own."""
    try:
        return SummaryDocument.read(case.run_dir / str(case.part.case_dir))
    except UsageError:
        return None


def _write_frame(
    order: Order, submitter: Submitter, cases: Sequence[Case], system: Mapping[str, str]
) -> None:
    """Write the common files of all results: the system description, the code and the names of models."""
    _write_json(submitter.folder / "systems" / f"{order.system}.json", system)
    source = submitter.folder / order.mlperf_round.source_folder
    source.mkdir(parents=True, exist_ok=True)
    for case in cases:
        run = case.run
        _write_json(
            source / f"{run.run_id}.json",
            {"profile": run.profile.model_dump(mode="json"), "command_line": run.command_line,
             "versions": run.versions, "containers": run.containers},
        )  # fmt: skip
    runs = "\n".join(f"- `{name}.json`" for name in dict.fromkeys(case.run.run_id for case in cases))
    (source / "README.md").write_text(
        "# How the runs were made\n\nvcagent made the runs. Each file has the profile with its resolved "
        f"parameters, the command line, and the versions and images of one run.\n\n{runs}\n",
        encoding="utf-8",
    )
    mapping = {model: name for model, name in order.benchmarks.items() if model != name}
    if order.division == "open" and mapping:
        _write_json(submitter.folder / MODEL_MAPPING, mapping)


def _file(order: Order, place: Place, performance: Case, accuracy: Case) -> None:
    """Copy one result's logs and write its papers."""
    for folder, case in ((place.performance, performance), (place.accuracy, accuracy)):
        folder.mkdir(parents=True)
        for name in (DETAIL_NAME, _SUMMARY_NAME):
            if (case.logs / name).is_file():
                shutil.copyfile(case.logs / name, folder / name)
    _file_accuracy(place, accuracy)
    place.measurements.mkdir(parents=True, exist_ok=True)
    name = "measurements.json" if order.mlperf_round.is_flat else f"{place.system}.json"
    _write_json(place.measurements / name, order.measurements)
    (place.measurements / "user.conf").write_text(_user_conf(performance), encoding="utf-8")
    source = order.mlperf_round.source_folder
    (place.measurements / "README.md").write_text(
        f"# {place.benchmark}, {place.scenario}\n\n"
        f"- performance: {performance.name}\n- accuracy: {accuracy.name}\n\n"
        f"The commands and settings of these runs are in `{source}/`.\n",
        encoding="utf-8",
    )
    tests = order.compliance and order.compliance / place.benchmark / place.scenario
    for test in sorted(tests.glob("TEST*")) if tests else ():
        if test.is_dir():
            shutil.copytree(test, place.compliance / test.name)


def _file_power(folder: Path, place: Place) -> None:
    """Copy a power measurement into a result: all of its files, unchanged."""
    for name in POWER_FILES:
        if (folder / name).is_dir():
            shutil.copytree(folder / name, place.performance.parent / name, dirs_exist_ok=True)


def _file_compliance(place: Place, test: str, case: Case | None, performance: Case) -> list[Finding]:
    """File a compliance run's logs as its official script does; those given by the owner stay.

    Returns:
        the reason why the run is not filed, if it was not made with the settings of the performance run.
    """
    folder = place.compliance / test
    if case is None or folder.exists() or test not in place.asked_tests:
        return []
    if found := list(_settings_findings(performance, case)):
        return found
    for source, target in (
        (case.logs / "verify_accuracy.txt", folder / "verify_accuracy.txt"),
        (case.logs / ACCURACY_LOG, folder / "accuracy" / ACCURACY_LOG),
    ):
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    return []


def _user_conf(case: Case) -> str:
    """Return the run's user.conf; without one, the rate or latency that LoadGen logged as requested."""
    path = case.logs / "user.conf"
    if path.is_file():
        return path.read_text(encoding="utf-8", errors="replace")
    log = read_detail(case.logs / DETAIL_NAME)
    name, key, unit = _ASKED[log.scenario]
    value = log.number(key)
    line = f"*.{log.scenario}.{name} = {value / unit:.10g}\n" if value is not None else ""
    return f"# The load that was requested, from LoadGen's log.\n{line}"


def _file_accuracy(place: Place, case: Case) -> None:
    """File the truncated accuracy log, and its score with the hash of the whole log.

    The log is truncated like by tools/submission/truncate_accuracy_log.py.
    """
    log = case.logs / ACCURACY_LOG
    score = next((path for path in (case.logs / ACCURACY_TEXT,) if path.is_file()), None)
    text = score.read_text(encoding="utf-8", errors="replace") if score else _own_score(case)
    if log.is_file():
        text = f"{text.rstrip()}\n\nhash={sha256_of(log)}\n"
        with log.open("rb") as whole, (place.accuracy / ACCURACY_LOG).open("wb") as target:
            size = log.stat().st_size
            if size <= MOST_LOG_BYTES:
                shutil.copyfileobj(whole, target)
            else:
                target.write(whole.read(_VIEWABLE_BYTES) + CUT)
                whole.seek(size - _VIEWABLE_BYTES)
                target.write(whole.read(_VIEWABLE_BYTES))
    (place.accuracy / ACCURACY_TEXT).write_text(text, encoding="utf-8")


def _own_score(case: Case) -> str:
    """Return the scores of an own data set, in percent, in the format of MLPerf's scripts."""
    summary = _summary(case)
    scores = {
        metric.name: str(round(metric.value * _PERCENT, 4))
        for metric in (summary.metrics if summary else ())
        if metric.unit == "ratio" and metric.verbosity <= 1
    }
    return f"{scores}\n" if scores else ""


def _remove(place: Place) -> None:
    """Remove a result from the tree, with folders that become empty."""
    for folder in dict.fromkeys((place.results, place.measurements, place.compliance)):
        shutil.rmtree(folder, ignore_errors=True)
        for above in list(folder.parents)[:3]:
            if above.is_dir() and not any(above.iterdir()):
                above.rmdir()


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
