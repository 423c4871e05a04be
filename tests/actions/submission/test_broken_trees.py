"""Submissions that went wrong on their way: each is refused, and the words say what is wrong."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from actions.submission.checking import check_tree
from actions.submission.rounds import find_round
from agent.core.errors import UsageError
from tests.actions.submission.conftest import TEST06, edit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actions.submission.building import Built
    from tests.actions.submission.conftest import RunMaker

    BuildTree = Callable[..., tuple[Path, Built]]

ROUND = find_round("v6.1")
RESULTS = "closed/Demo/results"
MODEL = f"{RESULTS}/1xH100/llama3.1-8b"
OFFLINE = f"{MODEL}/Offline"
SERVER = f"{MODEL}/Server"
COPY, ORIGINAL = (f"closed/Demo/{system}/llama3.1-8b/Offline" for system in ("8xH100", "1xH100"))


@pytest.fixture
def tree(make_run: RunMaker, build_tree: BuildTree) -> Path:
    root, built = build_tree(make_run("datacenter", test06=TEST06))
    assert built.missing == ()
    return root


def renamed_system(tree: Path) -> None:
    (tree / RESULTS / "1xH100").rename(tree / RESULTS / "1xH200")


def renamed_benchmark(tree: Path) -> None:
    (tree / MODEL).rename(tree / RESULTS / "1xH100/llama-8b")


def renamed_scenario(tree: Path) -> None:
    (tree / OFFLINE).rename(tree / MODEL / "Ofline")


def renamed_run(tree: Path) -> None:
    (tree / OFFLINE / "performance/run_1").rename(tree / OFFLINE / "performance/run_2")


def detail_of_another_run(tree: Path) -> None:
    name = "performance/run_1/mlperf_log_detail.txt"
    shutil.copyfile(tree / SERVER / name, tree / OFFLINE / name)


def edited_detail_log(tree: Path) -> None:
    edit(tree / OFFLINE / "performance/run_1/mlperf_log_detail.txt",
         ('"result_samples_per_second", "value": 2', '"result_samples_per_second", "value": 3'))  # fmt: skip


def edited_score_in_both(tree: Path) -> None:
    folder = tree / OFFLINE / "performance/run_1"
    for name in ("detail", "summary"):
        path = folder / f"mlperf_log_{name}.txt"
        text = re.sub(
            r'("result_tokens_per_second", "value": |Tokens per second: )\d', r"\g<1>9", path.read_text()
        )
        path.write_text(text)


def edited_rate_in_both(tree: Path) -> None:
    folder = tree / OFFLINE / "performance/run_1"
    edit(folder / "mlperf_log_detail.txt", ("22.0169", "32.0169"), ("2818.16", "4098.16"))
    edit(folder / "mlperf_log_summary.txt", ("22.0169", "32.0169"), ("2818.16", "4098.16"))


def log_cut_by_hand(tree: Path) -> None:
    path = tree / OFFLINE / "accuracy/mlperf_log_accuracy.json"
    path.write_bytes(path.read_bytes()[:4096])


def no_measurements(tree: Path) -> None:
    (tree / SERVER / "measurements.json").unlink()


def mix_of_two_systems(tree: Path) -> None:
    shutil.copytree(tree / RESULTS / "1xH100", tree / RESULTS / "8xH100")
    description = (tree / "closed/Demo/systems/1xH100.json").read_text()
    (tree / "closed/Demo/systems/8xH100.json").write_text(description)


def link_out_of_the_tree(tree: Path) -> None:
    outside = tree.parent / "accuracy"
    (tree / OFFLINE / "accuracy").rename(outside)
    (tree / OFFLINE / "accuracy").symlink_to(outside)


def broken_link(tree: Path) -> None:
    path = tree / "closed/Demo/src/run.sh"
    path.symlink_to("nowhere")


def zero_results(tree: Path) -> None:
    shutil.rmtree(tree / RESULTS)
    (tree / RESULTS).mkdir()


def said_of(tree: Path, round_name: str = "v6.1") -> list[str]:
    """Return the messages of all errors."""
    checked = check_tree(tree, find_round(round_name))
    assert not checked.is_accepted
    of_results = [finding.message for result in checked.results for finding in result.errors]
    return of_results + [finding.message for _, finding in checked.findings if finding.is_error]


@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        (renamed_system, "the system description is missing"),
        (renamed_benchmark, "llama-8b is not a benchmark of v6.1"),
        (renamed_scenario, "the performance run is of Offline, but its folder is Ofline"),
        (renamed_run, "the performance run has no mlperf_log_detail.txt"),
        (detail_of_another_run, "the performance run is of Server, but its folder is Offline"),
        (edited_detail_log, "result_samples_per_second is 22.0169 and 32.0169"),
        (edited_score_in_both, "result_tokens_per_second is 9818.16 with 445.9 tokens a sample"),
        (edited_rate_in_both, "is 32.0169, but 13368 samples in 607.171 s are 22.0169"),
        (log_cut_by_hand, "mlperf_log_accuracy.json was cut, but not by truncate_accuracy_log.py"),
        (no_measurements, "the measurements file is missing"),
        (
            mix_of_two_systems,
            f"{COPY} has the log of {ORIGINAL}",
        ),
        (link_out_of_the_tree, "is a link that leads out of the submission"),
        (broken_link, "is a link to nothing"),
        (zero_results, "the tree has no result"),
    ],
)
def test_a_broken_submission_is_refused(tree: Path, breaks: Callable[[Path], None], words: str) -> None:
    breaks(tree)
    said = said_of(tree)
    assert any(words in message for message in said), said


@pytest.mark.parametrize("other", ["v5.1", "v6.0"])
def test_a_submission_of_another_round_is_refused(tree: Path, other: str) -> None:
    said = said_of(tree, other)
    assert f"the performance run has the seeds of v6.1, not of {other}" in said
    assert f"the accuracy run has the seeds of v6.1, not of {other}" in said


def test_runs_of_two_systems_are_not_built(make_run: RunMaker, build_tree: BuildTree) -> None:
    first = make_run("datacenter", "a")
    make_run.facts = {**make_run.facts, "gpus": [{"name": "NVIDIA H200", "memory_mib": 143771}]}
    with pytest.raises(UsageError, match="the runs are of different systems: accelerator_model_name is"):
        build_tree(first, make_run("datacenter", "b"))
