"""A run killed at any moment resumes: nothing is done twice or left out, no record is lost or doubled."""

import csv
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.core.errors import ExitCode, HostError, ProfileError, UsageError
from agent.core.progress import RunProgress
from agent.host.ports import any_free, is_free
from agent.run.request import RunRequest
from agent.run.session import FinishedRun, resume, start
from agent.store.journal import Journal
from agent.store.results import JOURNAL, RUN_FILE, ResultsFolder
from tests.agent.conftest import records_of
from tests.agent.kill_driver import run_until
from tests.agent.run.test_engine import element
from tests.forked import exit_code_of
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("without_facts")

ROOT = Path(__file__).parents[3]
SHARES = 6
"""Number of tests that share the boundaries: one kills at the 1st, 7th, …, the next at the 2nd, 8th, …"""


def request_for(tmp_path: Path, profile: dict[str, Any], **options: Any) -> RunRequest:
    path = tmp_path / "TEST.json"
    path.write_text(json.dumps({"Description": "A test.", **profile}))
    return RunRequest(
        (str(path),), results_dir=tmp_path / "results", package_dir=tmp_path / "packages", **options
    )


def appending(path: Path, kind: str) -> dict[str, Any]:
    return element("ExecuteCommand", kind, Command=f"echo {kind} >> {path}")


def counted_profile(tmp_path: Path) -> dict[str, Any]:
    """Return a profile in which each command writes a line to a file, and each measurement one record."""
    effects = tmp_path / "effects"
    return {
        "Dependencies": [
            appending(effects, "dependency"),
            element("FilePresence", path=str(tmp_path / "made")),
        ],
        "Actions": [
            appending(effects, "first"),
            element("Measuring", "M", metric="x", steps=2),
            appending(effects, "second"),
        ],
    }


def killed_at(n: int, request: RunRequest, tmp_path: Path) -> int:
    """Return the exit code of a separate process that runs the request."""
    file = tmp_path / "request.json"
    file.write_text(json.dumps(request.to_json()))
    return exit_code_of(run_until, n, str(file))


@contextmanager
def agent_process(request: RunRequest, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the request in a separate process until it ends, gets a signal, or the test fails."""
    file = tmp_path / "request.json"
    file.write_text(json.dumps(request.to_json()))
    with subprocess.Popen(
        [sys.executable, str(ROOT / "tests/agent/kill_driver.py"), "0", str(file)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as agent:
        try:
            yield agent
        finally:
            agent.kill()


def check_whole(finished: FinishedRun, tmp_path: Path) -> None:
    assert finished.outcome.exit_code is ExitCode.OK
    assert (tmp_path / "effects").read_text().split() == ["dependency", "first", "second"]
    records = records_of(finished)
    assert [record["record_id"] for record in records] == list(range(1, len(records) + 1))
    assert [record["metric"] for record in records] == ["x"] * 2
    with (finished.run_dir / "metrics.csv").open(newline="") as file:
        assert [row["MetricName"] for row in csv.DictReader(file)] == ["x"] * 2
    statuses = {step["key"]: step["status"] for step in finished.description["steps"]}
    assert set(statuses.values()) == {"done"}
    assert len(statuses) == 2 + 4
    assert finished.report


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1, SHARES + 1))
def test_a_run_killed_at_every_boundary_is_resumed(tmp_path: Path, first: int) -> None:
    kills = 0
    for n in itertools.count(first, SHARES):
        folder = tmp_path / str(n)
        folder.mkdir()
        request = request_for(folder, counted_profile(folder))
        code = killed_at(n, request, folder)
        if code == ExitCode.OK:
            break
        assert code == -signal.SIGKILL
        kills += 1
        runs = ResultsFolder(request.results_dir).runs()
        if n <= 1:  # killed before the first write: the run had not begun
            with pytest.raises(UsageError, match="before it had begun"):
                resume(request.results_dir, None, RunProgress())
            continue
        assert len(runs) == 1
        with Journal(runs[0] / JOURNAL) as journal:
            all_done = journal.recall("exit_code") == ExitCode.OK
        if all_done:
            continue
        check_whole(resume(request.results_dir, None, RunProgress()), folder)
    assert kills > 30 // SHARES


def test_what_was_killed_in_the_middle_of_a_command_is_run_again_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    effects, gate = tmp_path / "effects", tmp_path / "gate"
    command = f"echo started >> {effects}; while [ ! -e {gate} ]; do sleep 0.1; done; echo ended >> {effects}"
    request = request_for(tmp_path, {"Actions": [element("ExecuteCommand", "wait", Command=command)]})
    with agent_process(request, tmp_path) as agent:
        wait_for(effects.exists)
        children = psutil.Process(agent.pid).children(recursive=True)
        agent.kill()
    assert children
    assert any(child.is_running() for child in children)

    def open_gate() -> None:
        wait_for(lambda: not any(map(_runs, children)))
        gate.write_text("")

    opener = threading.Thread(target=open_gate)
    opener.start()
    finished = resume(request.results_dir, None, RunProgress())
    opener.join()
    assert finished.outcome.exit_code is ExitCode.OK
    assert effects.read_text().split() == ["started", "started", "ended"]


def test_the_server_of_a_killed_run_is_ended_and_started_again(tmp_path: Path) -> None:
    mark, gate = tmp_path / "mark", tmp_path / "gate"
    server = f"exec {sys.executable} -m http.server --bind 127.0.0.1 $PORT"
    waiting = f"touch {mark}; while [ ! -e {gate} ]; do sleep 0.1; done; test {{ServicePort:web}} = %s"
    port = any_free("127.0.0.1")
    profile = {
        "Actions": [
            element("CommandService", "web", Command=server, Port=port),
            element("ExecuteCommand", "client", Command=waiting % port),
        ]
    }
    request = request_for(tmp_path, profile)
    with agent_process(request, tmp_path) as agent:
        wait_for(mark.exists)
        children = psutil.Process(agent.pid).children(recursive=True)
        agent.kill()
    assert not is_free("127.0.0.1", port), "the server outlived its agent"
    gate.write_text("")
    finished = resume(request.results_dir, None, RunProgress())
    assert finished.outcome.exit_code is ExitCode.OK, finished.outcome
    assert not any(map(_runs, children))
    assert is_free("127.0.0.1", port)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything_and_the_run_can_be_resumed(tmp_path: Path, number: int) -> None:
    gate, mark = tmp_path / "gate", tmp_path / "mark"
    command = f"touch {mark}; (while [ ! -e {gate} ]; do sleep 0.1; done) & wait"
    profile = {
        "Actions": [element("Measuring", "M", metric="x"), element("ExecuteCommand", "wait", Command=command)]
    }
    request = request_for(tmp_path, profile)
    with agent_process(request, tmp_path) as agent:
        wait_for(mark.exists)
        children = psutil.Process(agent.pid).children(recursive=True)
        agent.send_signal(number)
        assert agent.wait(timeout=60) == ExitCode.INTERRUPTED
    assert children
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    run_dir = ResultsFolder(request.results_dir).find(None)
    description = json.loads((run_dir / RUN_FILE).read_text())
    assert description["exit_code"] == ExitCode.INTERRUPTED
    assert f"vcagent resume {run_dir.name}" in description["exit_reason"]
    assert [step["status"] for step in description["steps"]] == ["done", "interrupted"]
    assert (run_dir / "report.html").is_file()

    gate.write_text("")
    finished = resume(request.results_dir, run_dir.name, RunProgress())
    assert finished.outcome.exit_code is ExitCode.OK
    assert [record["metric"] for record in records_of(finished)] == ["x"]


def test_a_failed_action_is_tried_again(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    profile = {
        "Actions": [
            element("ExecuteCommand", "c", Command=f"test -e {gate}"),
            element("Measuring", metric="x"),
        ]
    }
    first = start(request_for(tmp_path, profile), RunProgress())
    assert first.outcome.exit_code is ExitCode.ACTION_FAILED
    gate.write_text("")
    second = resume(tmp_path / "results", None, RunProgress())
    assert second.outcome.exit_code is ExitCode.OK
    assert [step["attempts"] for step in second.description["steps"]] == [2, 1]
    assert len(records_of(second)) == 1


@pytest.mark.parametrize("kept", ["exit_code", ""])
def test_a_complete_run_resumes_to_the_same_code(kept: str, tmp_path: Path) -> None:
    first = start(request_for(tmp_path, {"Actions": [element("Measuring")]}), RunProgress())
    if not kept:  # killed between the note of its result and the note of its end
        with Journal(first.run_dir / JOURNAL) as journal:
            journal.remember(exit_code=None)
    again = resume(tmp_path / "results", None, RunProgress())
    assert again.outcome.exit_code is first.outcome.exit_code
    assert again.report == first.report
    assert again.description["verdict"] == first.description["verdict"]
    assert records_of(again) == records_of(first)


def test_a_folder_that_vanishes_in_the_middle_is_no_valid_run(tmp_path: Path) -> None:
    command = f"rm -rf {tmp_path}/results/2*"
    profile = {"Actions": [element("Measuring"), element("ExecuteCommand", "c", Command=command)]}
    finished = start(request_for(tmp_path, profile), RunProgress())
    assert finished.outcome.exit_code is ExitCode.HOST_CANNOT_RUN
    assert finished.description["verdict"]["validity"] == "FAILED"
    assert finished.description["exit_code"] == ExitCode.HOST_CANNOT_RUN
    assert finished.report is None


def test_the_profile_is_kept_with_the_run(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    profile = {"Actions": [element("ExecuteCommand", "c", Command=f"test -e {gate}")]}
    request = request_for(tmp_path, profile)
    start(request, RunProgress())
    Path(request.profiles[0]).unlink()
    gate.write_text("")
    assert resume(tmp_path / "results", None, RunProgress()).outcome.exit_code is ExitCode.OK


def test_a_profile_with_a_secret_is_read_again_and_must_be_the_same(tmp_path: Path) -> None:
    profile = {"Parameters": {"ApiToken": "hunter2-correct-horse"}, "Actions": [element("Raising")]}
    request = request_for(tmp_path, profile)
    start(request, RunProgress())
    for path in (tmp_path / "results").rglob("*"):
        assert not path.is_file() or b"hunter2-correct-horse" not in path.read_bytes(), path
    again = resume(tmp_path / "results", None, RunProgress())
    assert again.outcome.exit_code is ExitCode.ACTION_FAILED
    request_for(tmp_path, {**profile, "Metadata": {"changed": True}})
    with pytest.raises(ProfileError, match="has changed since the run began"):
        resume(tmp_path / "results", None, RunProgress())


def test_a_failure_is_not_forgotten_because_the_time_is_up(tmp_path: Path) -> None:
    profile = {
        "Actions": [element("Measuring", "M"), element("ExecuteCommand", "c", Command="sleep 1.1; false")]
    }
    first = start(request_for(tmp_path, profile, timeout="00:00:01,deterministic"), RunProgress())
    assert first.outcome.exit_code is ExitCode.ACTION_FAILED
    again = resume(tmp_path / "results", None, RunProgress())
    assert again.outcome.exit_code is ExitCode.ACTION_FAILED


def test_a_secret_must_be_given_again(tmp_path: Path) -> None:
    lengths = tmp_path / "lengths"
    command = f"printf %s '$.Parameters.ApiToken' | wc -c >> {lengths}; test -e {tmp_path / 'gate'}"
    profile = {"Parameters": {"ApiToken": ""}, "Actions": [element("ExecuteCommand", "c", Command=command)]}
    start(request_for(tmp_path, profile, parameters={"ApiToken": "hunter2-correct-horse"}), RunProgress())
    (tmp_path / "gate").write_text("")
    with pytest.raises(UsageError, match="ApiToken, which is secret and was not kept"):
        resume(tmp_path / "results", None, RunProgress())
    finished = resume(tmp_path / "results", None, RunProgress(), {"apitoken": "hunter2-correct-horse"})
    assert finished.outcome.exit_code is ExitCode.OK
    assert lengths.read_text().split() == ["21", "21"]


def test_a_loop_that_has_ended_is_not_repeated(tmp_path: Path) -> None:
    gate, effects = tmp_path / "gate", tmp_path / "effects"
    group = {
        "Type": "ParallelLoopExecution",
        "Parameters": {"Duration": "00:00:01"},
        "Components": [element("ExecuteCommand", "e", Command=f"echo x >> {effects}; sleep 0.2")],
    }
    profile = {"Actions": [group, element("ExecuteCommand", "c", Command=f"test -e {gate}")]}
    start(request_for(tmp_path, profile), RunProgress())
    before = effects.read_text()
    gate.write_text("")
    assert resume(tmp_path / "results", None, RunProgress()).outcome.exit_code is ExitCode.OK
    assert effects.read_text() == before


def test_a_daemon_of_a_finished_step_lives_on(tmp_path: Path) -> None:
    number, gate = tmp_path / "pid", tmp_path / "gate"
    daemon = (
        f"setsid sh -c 'echo $$ > {number}; exec sleep 300' >/dev/null 2>&1 & "
        f"while [ ! -s {number} ]; do :; done"
    )
    profile = {
        "Dependencies": [element("ExecuteCommand", "start", Command=daemon)],
        "Actions": [element("ExecuteCommand", "use", Command=f"test -e {gate}")],
    }
    start(request_for(tmp_path, profile), RunProgress())
    process = psutil.Process(int(number.read_text()))
    try:
        gate.write_text("")
        assert resume(tmp_path / "results", None, RunProgress()).outcome.exit_code is ExitCode.OK
        assert process.is_running()
    finally:
        process.kill()


def test_a_resume_through_latest_is_the_same_run(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    start(request_for(tmp_path, {"Actions": [element("Raising")]}), RunProgress())
    finished = resume(folder, str(folder / "latest"), RunProgress())
    assert finished.run_dir == folder.resolve() / (folder / "latest").resolve().name


def test_a_run_that_is_going_on_is_not_taken_over(tmp_path: Path) -> None:
    start(request_for(tmp_path, {"Actions": [element("Raising")]}), RunProgress())
    folder = ResultsFolder(tmp_path / "results")
    before = (folder.find(None) / JOURNAL).read_bytes()
    with folder.locked("somebody"), pytest.raises(HostError, match="another vcagent"):
        resume(folder.path, None, RunProgress())
    with folder.locked("somebody"), pytest.raises(HostError, match="another vcagent"):
        start(request_for(tmp_path, {"Actions": [element("Measuring")]}), RunProgress())
    assert len(folder.runs()) == 1
    assert (folder.find(None) / JOURNAL).read_bytes() == before
