"""``--clean`` between its question and the removal: what changes meanwhile, and what is in use, stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.component.component import CASE_OWNER
from agent.core.errors import HostError
from agent.run.cleaning import own_package_dir, package_dir_in_use, survey
from agent.store.journal import Journal, StepRow, StepStatus
from agent.store.results import JOURNAL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.run.session import FinishedRun


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Make a run in whose course the package ``code`` appeared, known to its journal."""
    packages = tmp_path / "packages"
    own_package_dir(packages)
    with package_dir_in_use(packages):
        (packages / "code").mkdir()
    run = tmp_path / "results" / "20260401T120000Z-bench-ab12"
    run.mkdir(parents=True)
    changed(run, packages / "code")
    return run


def changed(run: Path, folder: Path) -> None:
    """Note a change in the run's journal; nothing knows how to undo it, so it counts as in place."""
    key = f"dependencies[0]/{folder.name}"
    row = StepRow(key, "dependencies[0]", "Gone", "dependency", folder.name, "r", "c", "l")
    with Journal(run / JOURNAL) as journal:
        journal.start_step(row, undo={"folder": str(folder)})
        journal.end_step(key, StepStatus.DONE)


def test_a_run_and_its_packages_go_together(tmp_path: Path, run: Path) -> None:
    assert survey("all", tmp_path / "results", tmp_path / "packages").carry_out() == {}
    assert not run.exists()
    assert not (tmp_path / "packages" / "code").exists()


def test_a_run_is_kept_while_its_packages_are_in_use(tmp_path: Path, run: Path) -> None:
    packages = tmp_path / "packages"
    found = survey("all", tmp_path / "results", packages)
    assert found.runs == {run}
    with package_dir_in_use(packages), pytest.raises(HostError, match="in use by another vcagent"):
        found.carry_out()
    assert (run / JOURNAL).is_file()
    assert (packages / "code").is_dir()


def test_a_run_that_changed_the_host_since_it_was_shown_is_kept(tmp_path: Path, run: Path) -> None:
    found = survey("all", tmp_path / "results", tmp_path / "packages")
    changed(run, tmp_path / "elsewhere")
    (why,) = found.carry_out().values()
    assert "its changes are still in place (Gone: elsewhere)" in why
    assert (run / JOURNAL).is_file()


def test_a_folder_of_links_is_not_a_case(tmp_path: Path, run: Path) -> None:
    (run / "bench" / "case").mkdir(parents=True)
    (run / "bench" / "case" / CASE_OWNER).write_text("x")
    (run / "mine").mkdir()
    (run / "mine" / "link").symlink_to(tmp_path)
    found = survey("all", tmp_path / "results", tmp_path / "packages")
    assert [path for path, _ in found.left] == [run / "mine"]
    found.carry_out()
    assert (run / "mine" / "link").is_symlink()
    assert not (run / "bench").exists()


def test_nothing_of_a_run_stays(run_profile: Callable[..., FinishedRun]) -> None:
    measuring = {"Type": "Measuring", "Parameters": {"Scenario": "A"}}
    describing = {"Type": "SystemDescription", "Parameters": {"Company": "Somebody"}}
    finished = run_profile({"Actions": [measuring, describing]})
    assert (finished.run_dir / "system_description.yaml").is_file()
    results = finished.run_dir.parent
    (results / "fleet").mkdir()
    found = survey("logs", results, None)
    assert [path for path, _ in found.left] == [results / "fleet"]
    found.carry_out()
    assert not finished.run_dir.exists()


def test_links_to_packages_go_with_them(tmp_path: Path, run: Path) -> None:
    packages = tmp_path / "packages"
    (packages / "model").symlink_to(packages / "code" / "v1")
    (packages / "relative").symlink_to("code")
    (packages / "mine").symlink_to(tmp_path)
    (packages / "out").symlink_to("code/../../elsewhere")
    found = survey("packages", tmp_path / "results", packages)
    assert [path.name for path, _ in found.left] == ["mine", "out"]
    found.carry_out()
    assert sorted(path.name for path in packages.iterdir() if path.is_symlink()) == ["mine", "out"]
