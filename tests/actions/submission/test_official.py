"""The official checker: found, run, and its output read; the real one if a checkout is available."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from actions.submission.checking import check_tree
from actions.submission.commands import app
from actions.submission.fetching import fetch
from actions.submission.official import (
    CHECKOUT_VARIABLE,
    PACKAGE,
    PROFILE,
    find_checkout,
    read_words,
    run_checker,
)
from actions.submission.rounds import find_round
from actions.submission.table import check_to_json, official_word
from agent.core.errors import DependencyFailedError, HostError, UsageError
from agent.profile import load
from tests.actions.submission.conftest import LOGS, MEASUREMENTS, SAID, TEST06

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.submission.building import Built
    from tests.actions.submission.conftest import RunMaker

    BuildTree = Callable[..., tuple[Path, Built]]

STAND_IN = """
import argparse, logging, os, sys
logging.basicConfig(level=logging.INFO)
log = logging.getLogger("main")
parser = argparse.ArgumentParser()
for name in ("--input", "--version", "--csv", "--submitter"):
    parser.add_argument(name)
asked = parser.parse_args()
open(asked.csv, "w").close()
failed = False
for folder, _, names in sorted(os.walk(asked.input)):
    if asked.submitter and asked.submitter not in folder or "performance/run_1" not in folder:
        continue
    path = os.path.join(folder, "mlperf_log_detail.txt")
    if "broken" in folder:
        raise AttributeError("'NoneType' object has no attribute 'lower'")
    if "Server" in folder:
        failed = True
        log.error("%s is not to its liking", path)
        log.error("NoResults %s", path)
    else:
        log.info("Results %s 12.5", path)
log.log(logging.ERROR if failed else logging.INFO, "SUMMARY: %s", asked.version)
sys.exit(failed)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout whose checker rejects Server and fails at a system called broken."""
    folder = tmp_path / "inference"
    package = folder / "tools/submission/submission_checker"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "main.py").write_text(STAND_IN)
    return folder


@pytest.fixture
def tree(make_run: RunMaker, build_tree: BuildTree) -> Path:
    root, _ = build_tree(make_run("datacenter"), division="open")
    return root


def test_verdicts_stand_side_by_side(tree: Path, checkout: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in tree.rglob("*")}
    official = run_checker(checkout, tree, "v6.1", submitters=["Demo"])
    checked = check_tree(tree, find_round("v6.1"))
    words = {each.place.scenario: official_word(each, official) for each in checked.results}
    assert words == {"Offline": "passed", "Server": "rejected"}
    assert (official.has_passed, official.summary) == (False, "v6.1")
    told = check_to_json(checked, official, "v6.1")["results"][1]
    assert told["accepted"]
    (said,) = told["official_errors"]
    assert said.startswith("open/Demo/results/1xH100/llama3.1-8b/Server/performance/run_1/")
    assert said.endswith("is not to its liking")
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("*")} == files


def test_one_submitter_that_breaks_it_hides_no_other(tree: Path, checkout: Path) -> None:
    shutil.copytree(tree / "open/Demo", tree / "open/Another")
    (tree / "open/Demo/results/1xH100").rename(tree / "open/Demo/results/broken")
    official = run_checker(checkout, tree, "v6.1", submitters=["Another", "Demo"])
    assert official.has_crashed
    assert official.summary.startswith("AttributeError: 'NoneType'")
    words = {
        each.place.name: official_word(each, official)
        for each in check_tree(tree, find_round("v6.1")).results
    }
    assert words == {
        "open/Another/1xH100/llama3.1-8b/Offline": "passed",
        "open/Another/1xH100/llama3.1-8b/Server": "rejected",
        "open/Demo/broken/llama3.1-8b/Offline": "crashed",
        "open/Demo/broken/llama3.1-8b/Server": "crashed",
    }


def test_words_of_the_script_before_v6() -> None:
    said = """[2024-07-24 12:00:00,1 submission_checker.py:2441 ERROR] open/A/results/s/m/offline: no code
[2024-07-24 12:00:00,123 submission_checker.py:2788 INFO] Results closed/A/results/s/m/Offline 5777.08
[2024-07-24 12:00:00,124 submission_checker.py:2793 ERROR] NoResults open/A/measurements/s/m/offline
[2024-07-24 12:00:00,125 submission_checker.py:2919 ERROR] SUMMARY: submission has errors
"""
    verdict = read_words(said, checkout=Path("/c"), root=Path("/t"), has_passed=False)
    assert verdict.of("closed/A/results/s/m/Offline") == pytest.approx(5777.08)
    assert verdict.of("open/A/results/s/m/offline") is None
    assert verdict.of("open/A/results/s/m/server") is False
    assert verdict.errors == ("open/A/results/s/m/offline: no code",)
    assert verdict.summary == "submission has errors"
    assert not verdict.has_crashed


def test_where_it_is_looked_for(tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHECKOUT_VARIABLE, raising=False)
    assert find_checkout(tmp_path) is None
    checkout.rename(tmp_path / PACKAGE)
    assert find_checkout(tmp_path) == tmp_path / PACKAGE
    monkeypatch.setenv(CHECKOUT_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="has no submission checker"):
        find_checkout(tmp_path)


@pytest.mark.parametrize(("official", "exit_code"), [("auto", 7), ("off", 0)])
def test_the_command_ends_with_both_verdicts(
    tree: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch, official: str, exit_code: int
) -> None:
    monkeypatch.setenv(CHECKOUT_VARIABLE, str(checkout))
    ended = CliRunner().invoke(app, ["check", str(tree), "--official", official])
    assert ended.exit_code == exit_code
    assert "vcagent: accepted, 2 of 2 results have no error" in ended.output
    assert ("official checker" in ended.output) is (official == "auto")


def test_a_required_checker_that_is_not_here(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CHECKOUT_VARIABLE, raising=False)
    ended = CliRunner().invoke(
        app, ["check", str(tree), "--official", "required", "--package-dir", str(tmp_path / "none")]
    )
    assert isinstance(ended.exception, HostError)
    assert CHECKOUT_VARIABLE in str(ended.exception)


def test_the_command_in_json(tree: Path) -> None:
    ended = CliRunner().invoke(app, ["check", str(tree), "--official", "off", "--json"])
    told = json.loads(ended.output)
    assert (told["accepted"], told["official"], told["round"]) == (True, None, "v6.1")
    assert [each["official"] for each in told["results"]] == ["not run", "not run"]


def build_command(run: Path, output: Path, *others: str) -> list[str]:
    """Return the arguments of a build of the open division."""
    said = [f"{name}={value}" for name, value in SAID.items()]
    said += [f"measurements.{name}={value}" for name, value in MEASUREMENTS.items()]
    settings = [word for text in said for word in ("--set", text)]
    names = ["--submitter", "Demo", "--system-name", "1xH100", "--division", "open"]
    return ["build", str(run), "-o", str(output), *names, *settings, *others]


def test_the_build_command(make_run: RunMaker, tmp_path: Path) -> None:
    output = tmp_path / "tree"
    ended = CliRunner().invoke(app, build_command(make_run("datacenter"), output))
    assert ended.exit_code == 0, ended.output
    assert "filed    open/Demo/1xH100/llama3.1-8b/Offline" in ended.output
    ended = CliRunner().invoke(app, build_command(tmp_path / "runs/run", output))
    assert isinstance(ended.exception, UsageError)


def test_the_build_command_says_what_is_missing(make_run: RunMaker, tmp_path: Path) -> None:
    run = make_run("datacenter", skip=("Server-accuracy",))
    ended = CliRunner().invoke(app, build_command(run, tmp_path / "tree", "--json"))
    assert ended.exit_code == 7
    assert [each["what"] for each in json.loads(ended.output)["missing"]] == ["llama3.1-8b Server accuracy"]


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (["--submitter", "../x"], "cannot name a folder"),
        (["--system-type", "cloud"], "--system-type"),
        (["--round", "v4.1"], "cannot build a tree for"),
        (["--set", "cooling"], "does not have the form field=value"),
        (["--benchmark", "a="], "does not have the form MODEL=BENCHMARK"),
        (["--compliance", "/nowhere"], "the folder does not exist"),
    ],
)
def test_wrong_options_of_build(make_run: RunMaker, tmp_path: Path, others: list[str], message: str) -> None:
    ended = CliRunner().invoke(app, build_command(make_run("datacenter"), tmp_path / "tree", *others))
    assert isinstance(ended.exception, UsageError)
    assert message in str(ended.exception)


@pytest.mark.parametrize("division", ["closed", "open"])
@pytest.mark.parametrize(
    ("kind", "round_name"),
    [
        (kind, name)
        for name, kinds in {
            "v5.0": ("llama2-70b",),
            "v5.1": ("datacenter", "edge", "llama2-70b"),
            "v6.0": ("datacenter", "edge", "llama2-70b"),
            "v6.1": ("datacenter", "edge", "llama2-70b"),
        }.items()
        for kind in kinds
    ],
)
def test_both_accept_what_is_built(  # noqa: PLR0917
    inference: Path, make_run: RunMaker, build_tree: BuildTree, kind: str, division: str, round_name: str
) -> None:
    run = make_run(kind, round_name=round_name, test06="" if kind == "edge" else TEST06)
    system_type = "edge" if kind == "edge" else "datacenter"
    root, built = build_tree(
        run, mlperf_round=find_round(round_name), system_type=system_type, division=division
    )
    assert (len(built.filed), built.missing) == (2, ())
    official = run_checker(inference, root, round_name, submitters=["Demo"])
    assert official.has_passed, official.errors
    checked = check_tree(root, find_round(round_name))
    assert checked.is_accepted
    for result in checked.results:
        assert official_word(result, official) == "passed"


def test_the_official_checker_passes_a_log_with_errors(
    inference: Path, make_run: RunMaker, build_tree: BuildTree, compliance: Path
) -> None:
    root, _ = build_tree(make_run("datacenter"), compliance=compliance)
    place = root / "closed/Demo/results/1xH100/llama3.1-8b/Server/performance/run_1"
    for path in (LOGS.with_name("logs_with_errors") / "Server-performance").glob("mlperf_log_*"):
        shutil.copyfile(path, place / path.name)
    assert run_checker(inference, root, "v6.1", submitters=["Demo"]).has_passed
    assert not check_tree(root, find_round("v6.1")).is_accepted


def test_the_program_finds_the_commands_by_their_entry_point() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "agent", "submission", "check", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--official" in ended.stdout


def test_it_is_fetched_by_the_profile(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CHECKOUT_VARIABLE, raising=False)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(checkout)]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "checker"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    (shipped,) = load([PROFILE]).dependencies
    parameters = {**shipped.parameters, "repoUri": f"file://{checkout}", "commit": commit.strip()}
    profile = tmp_path / "PROFILE.yaml"
    profile.write_text(
        json.dumps({"description": "x", "dependencies": [{"type": shipped.type, "parameters": parameters}]})
    )
    fetch(str(profile), tmp_path / "packages")
    assert find_checkout(tmp_path / "packages") == tmp_path / "packages" / PACKAGE


def test_a_fetch_that_fails_says_what_to_do(tmp_path: Path) -> None:
    profile = tmp_path / "PROFILE.yaml"
    parameters = {"repoUri": f"file://{tmp_path}/nothing", "packageName": PACKAGE}
    profile.write_text(
        json.dumps({"description": "x", "dependencies": [{"type": "GitRepoClone", "parameters": parameters}]})
    )
    with pytest.raises(DependencyFailedError, match="could not be fetched"):
        fetch(str(profile), tmp_path / "packages")
