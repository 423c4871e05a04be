"""Services: started at their place, available to the rest of their group, stopped with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import ExitCode
from agent.core.progress import RunProgress
from agent.run.session import FinishedRun, resume
from tests.agent.serving_components import register

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("without_facts")

Run = Callable[..., FinishedRun]


@pytest.fixture(autouse=True)
def _serving_types(_test_types: None) -> None:
    register()


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return tmp_path / "note"


def serve(note: Path, name: str, **parameters: Any) -> dict[str, Any]:
    return {"type": "Sleeping", "parameters": {"scenario": name, "note": str(note), **parameters}}


def ask(note: Path, service: str, **parameters: Any) -> dict[str, Any]:
    return {"type": "Asking", "parameters": {"note": str(note), "service": service, **parameters}}


def group(*components: dict[str, Any], kind: str = "Sequential", **parameters: Any) -> dict[str, Any]:
    return {"type": f"{kind}Execution", "components": list(components), "parameters": parameters}


def lines(note: Path) -> list[str]:
    return note.read_text().splitlines() if note.exists() else []


def test_a_service_is_there_for_what_follows_in_its_group_and_ends_with_it(
    run_profile: Run, note: Path
) -> None:
    finished = run_profile(
        {"actions": [group(serve(note, "a"), ask(note, "a"), ask(note, "a")), ask(note, "a")]}
    )
    assert lines(note) == ["start a", "ask a True", "ask a True", "stop a"]
    # The last element is outside the group.
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED
    assert "no service named a runs beside this step; running: none" in str(finished.outcome.failures[0][1])


def test_a_service_that_stands_in_no_group_lasts_for_the_round(run_profile: Run, note: Path) -> None:
    finished = run_profile({"actions": [serve(note, "a"), group(ask(note, "a"))]}, iterations=2)
    assert lines(note) == ["start a", "ask a True", "stop a"] * 2
    assert finished.outcome.exit_code is ExitCode.OK


def test_each_loop_has_a_service_of_its_own(run_profile: Run, note: Path) -> None:
    run_profile({"actions": [group(serve(note, "a"), ask(note, "a"), LoopCount=2)]})
    assert lines(note) == ["start a", "ask a True", "stop a"] * 2


def test_services_end_in_the_opposite_order(run_profile: Run, note: Path) -> None:
    run_profile({"actions": [group(serve(note, "a"), serve(note, "b"), ask(note, "b"))]})
    assert lines(note) == ["start a", "start b", "ask b True", "stop b", "stop a"]


def test_two_services_of_one_name_are_refused(run_profile: Run, note: Path) -> None:
    finished = run_profile({"actions": [group(serve(note, "a"), serve(note, "a"))]})
    assert lines(note) == ["start a", "start a", "stop a", "stop a"]
    assert "a service named a runs already" in str(finished.outcome.failures[0][1])


def test_where_a_service_does_not_start_the_rest_of_its_group_is_left_out(
    run_profile: Run, note: Path
) -> None:
    finished = run_profile(
        {
            "actions": [
                group(serve(note, "a", fails=True), ask(note, "a")),
                group(serve(note, "b"), ask(note, "b")),
            ]
        }
    )
    assert lines(note) == ["start b", "ask b True", "stop b"]
    assert [error.message for _, error in finished.outcome.failures] == ["the port is taken"]


def test_a_service_that_dies_is_a_failure_of_its_own(run_profile: Run, note: Path) -> None:
    finished = run_profile({"actions": [group(serve(note, "a"), ask(note, "a", kills=True))]})
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED
    (failure,) = (error for _, error in finished.outcome.failures)
    assert failure.message == "a was killed before its group was done"
    assert failure.details == ("its last word",)
    statuses = {step["name"]: step["status"] for step in finished.description["steps"]}
    assert statuses == {"serve": "failed", "ask": "done"}


def test_a_service_ends_when_its_group_fails(run_profile: Run, note: Path, tmp_path: Path) -> None:
    failing = ask(note, "a", fails_once=str(tmp_path / "failed"))
    run_profile({"actions": [group(serve(note, "a"), failing, ask(note, "a"))]}, fail_fast=True)
    assert lines(note) == ["start a", "ask a True", "stop a"]


def test_a_resume_starts_a_service_again_where_something_is_left_to_be_asked(
    run_profile: Run, note: Path, tmp_path: Path
) -> None:
    failing = ask(note, "b", fails_once=str(tmp_path / "failed"))
    finished = run_profile(
        {
            "actions": [
                group(serve(note, "a"), ask(note, "a")),
                group(serve(note, "b"), ask(note, "b"), failing),
            ]
        }
    )
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED
    note.unlink()
    again = resume(tmp_path / "results", None, RunProgress())
    assert lines(note) == ["start b", "ask b True", "stop b"]
    assert again.outcome.exit_code is ExitCode.OK


def test_services_of_parallel_members_last_until_all_have_ended(run_profile: Run, note: Path) -> None:
    run_profile({"actions": [group(serve(note, "a"), kind="Parallel")]})
    assert lines(note) == ["start a", "stop a"]
