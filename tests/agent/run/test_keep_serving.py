"""--keep-serving: the last server keeps running after the run, and can be found and stopped."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import psutil
import pytest

from actions.commands.readiness import answers
from agent.component.component import RelaunchInContainer, Service
from agent.core.errors import ActionFailedError, ExitCode
from agent.core.progress import RunProgress
from agent.run import keeping
from agent.run.keeping import keep_serving
from agent.run.request import RunRequest
from agent.run.session import FinishedRun, start
from agent.store.serving import SERVING_FILE, Serving, still_serving
from tests.agent.cli.test_cli import vcagent
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("without_facts")

Run = Callable[..., FinishedRun]
SERVER = f"{sys.executable} -m http.server --bind 127.0.0.1 $PORT"


def served(*servers: tuple[str, str]) -> dict[str, Any]:
    """Return a profile with a group for each server: its name and its command."""
    return {
        "actions": [
            {
                "type": "SequentialExecution",
                "components": [
                    {
                        "type": "CommandService",
                        "parameters": {"scenario": name, "command": command, "model": name},
                    },
                    {"type": "ExecuteCommand", "parameters": {"command": "true"}},
                ],
            }
            for name, command in servers
        ]
    }


def stop(serving: Serving) -> None:
    subprocess.run(["sh", "-c", serving.how_to_stop], check=True)


def test_the_last_server_stays_at_its_address_and_is_listed(
    run_profile: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = run_profile(served(("first", SERVER), ("second", SERVER)), keep_serving=True)
    assert finished.outcome.exit_code is ExitCode.OK
    serving = still_serving(finished.run_dir)
    assert serving is not None
    try:
        assert serving.name == "second"
        assert answers(serving.url)
        folder = str(finished.run_dir.parent)
        code, out, _ = vcagent(capsys, monkeypatch, "runs", "--json", "--results-dir", folder)
        assert code == 0
        (row,) = json.loads(out)["runs"]
        assert row["serving"] == {
            "name": "second", "url": serving.url, "model": "second", "stop": f"kill -- -{serving.pid}"
        }  # fmt: skip
        _, out, _ = vcagent(capsys, monkeypatch, "runs", "--results-dir", folder)
        told = " ".join(out.split())
        assert f"serves second at {serving.url}; stop it: kill -- -{serving.pid}" in told
    finally:
        stop(serving)
    wait_for(lambda: not still_serving(finished.run_dir))


def test_a_server_of_another_protocol_stays_when_its_port_is_open(run_profile: Run) -> None:
    code = "import os, socket, time; s = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))"
    profile = served(("database", f'exec {sys.executable} -c "{code}; time.sleep(600)"'))
    profile["actions"][0]["components"][0]["parameters"]["scheme"] = "tcp"
    finished = run_profile(profile, keep_serving=True)
    assert finished.outcome.exit_code is ExitCode.OK
    serving = still_serving(finished.run_dir)
    assert serving is not None
    assert serving.url.startswith("tcp://127.0.0.1:")
    stop(serving)


def test_a_container_of_an_engine_elsewhere_does_not_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    container = MagicMock(**{"first_process.return_value": 2**22 + 1})  # above the largest process number
    container.name = "vcagent-test"
    engine = MagicMock()
    engine.return_value.__enter__.return_value.ensure_running.return_value = container
    monkeypatch.setattr("agent.component.container_engine.engine_of_run", engine)
    with socket.create_server(("127.0.0.1", 0)) as server:
        values = {"url": f"tcp://127.0.0.1:{server.getsockname()[1]}"}
        service = Service("db", values, MagicMock(), MagicMock(), RelaunchInContainer(MagicMock()))
        with pytest.raises(ActionFailedError, match="container vcagent-test is not on this host"):
            keep_serving(service, tmp_path, threading.Event(), MagicMock())
    container.remove.assert_called_once_with()
    assert not (tmp_path / SERVING_FILE).exists()


def test_without_the_option_nothing_stays(run_profile: Run) -> None:
    finished = run_profile(served(("web", SERVER)))
    assert not (finished.run_dir / SERVING_FILE).exists()


def test_a_server_that_does_not_come_again_is_a_failure(run_profile: Run, tmp_path: Path) -> None:
    once = f"test ! -e {tmp_path}/once && touch {tmp_path}/once && exec {SERVER}"
    finished = run_profile(served(("web", once)), keep_serving=True)
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED
    (_, error) = finished.outcome.failures[0]
    assert "the server that was to stay ended with exit code 1" in str(error)
    assert "serving.log" in (error.remedy or "")
    assert still_serving(finished.run_dir) is None


def test_a_run_without_a_server_says_so(tmp_path: Path) -> None:
    path = tmp_path / "TEST.json"
    action = {"type": "ExecuteCommand", "parameters": {"command": "true"}}
    path.write_text(json.dumps({"Description": "A test.", "actions": [action]}))
    request = RunRequest(
        (str(path),), results_dir=tmp_path / "results", package_dir=tmp_path, keep_serving=True
    )
    finished = start(request, RunProgress())
    assert any("no server of this run can stay" in warning for warning in finished.outcome.warnings)


def states_of_session(leader: int) -> set[str]:
    states = set()
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):  # another test's, which has just ended
            if os.getsid(process.pid) == leader:
                states.add(process.status())
    return states


def test_clean_ends_the_server_with_all_of_its_session(
    run_profile: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The second process holds no port and ignores the polite signal.
    helper = f"(trap '' TERM; echo $$ >{tmp_path}/started; exec sleep 601) & exec {SERVER}"
    finished = run_profile(served(("web", helper)), keep_serving=True)
    serving = still_serving(finished.run_dir)
    assert serving is not None
    monkeypatch.setattr(keeping, "_GRACE_S", 0.5)
    clean = ("clean", "--dependencies", "--results-dir", str(finished.run_dir.parent))
    code, out, err = vcagent(capsys, monkeypatch, *clean)
    assert code == ExitCode.USAGE
    assert "nobody is here to ask" in err
    assert f"end web at {serving.url}, the server of {finished.run_dir.name}" in " ".join(out.split())
    assert still_serving(finished.run_dir)
    code, out, _ = vcagent(capsys, monkeypatch, *clean, "--yes", "--json")
    (row,) = json.loads(out)["changes"]
    assert (code, row["name"], row["done"]) == (0, f"server: web at {serving.url}", True)
    assert states_of_session(serving.pid) <= {psutil.STATUS_ZOMBIE}
    assert not (finished.run_dir / SERVING_FILE).exists()
    assert finished.run_dir.is_dir()
    code, out, _ = vcagent(capsys, monkeypatch, *clean)
    assert (code, out.strip()) == (0, "Nothing to undo.")


def test_removing_a_run_ends_its_server_first(
    run_profile: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = run_profile(served(("web", SERVER)), keep_serving=True)
    serving = still_serving(finished.run_dir)
    assert serving is not None
    folder = str(finished.run_dir.parent)
    code, out, _ = vcagent(capsys, monkeypatch, "--clean=logs", "--yes", "--results-dir", folder)
    assert code == 0
    assert f"kill -- -{serving.pid}" in out
    assert not answers(serving.url)
    assert not finished.run_dir.exists()


def test_clean_leaves_a_process_that_has_the_number_later(
    run_profile: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = run_profile(served(("web", SERVER)))
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        Serving("web", "http://127.0.0.1:1", "m", other.pid, 1.0, "log").write(finished.run_dir)
        folder = str(finished.run_dir.parent)
        code, _, _ = vcagent(capsys, monkeypatch, "clean", "-d", "--yes", "--results-dir", folder)
        assert code == 0
        assert other.poll() is None
        vcagent(capsys, monkeypatch, "--clean=logs", "--yes", "--results-dir", folder)
        assert other.poll() is None
        assert not finished.run_dir.exists()
    finally:
        other.kill()
        other.wait()


def test_a_process_that_has_the_number_later_is_not_the_server(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        Serving("web", "http://127.0.0.1:1", "m", other.pid, 1.0, "log").write(tmp_path)
        assert still_serving(tmp_path) is None
    finally:
        other.kill()
        other.wait()
