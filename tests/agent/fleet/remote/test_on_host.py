"""The bundle's work on a host, here this one: start detached, watch, stop, resume, send results home."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.fleet.bundle import _LAUNCHER
from agent.fleet.commands import doorstep_command, doorstep_input, first_command
from agent.fleet.remote.machine_lock import MACHINE_LOCK
from agent.fleet.remote.standing import RunState, Standing, standing_of
from agent.store.results import ResultsFolder

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[4]
DEADLINE_S = 90
SECRET = "planted-secret-4711"
RUN = "20260101T000000Z-p-0000"
OTHER_RUN = "20260101T000000Z-p-1111"
PROFILE = """\
description: Waits for a gate.
parameters: {Gate: none, ApiToken: none}
actions:
- type: ExecuteCommand
  parameters:
    scenario: act
    command: >-
      sh -c 'echo once >>$.Parameters.Gate.effects; echo $VCAGENT_TEST_WORD $.Parameters.ApiToken;
      until [ -e $.Parameters.Gate ]; do sleep 0.05; done'
"""


class OnHost:
    """The host's side of a fleet run."""

    def __init__(self, folder: Path) -> None:
        self.run_dir = folder / "runs" / f"{RUN}.a"
        self.gate = folder / "gate"
        self.effects = folder / "gate.effects"
        (folder / "lib").symlink_to(ROOT)
        self.launcher = folder / "vcagent"
        self.launcher.write_text(_LAUNCHER)
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder), MACHINE_LOCK: str(folder)}

    def call(self, verb: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-I", self.launcher, "fleet-host", verb, self.run_dir]
        return subprocess.run(command, input=data, capture_output=True, check=False, env=self.environment)

    def start(self, *, resume: bool = False, profile: str = PROFILE) -> Standing:
        request = {
            "request": {
                "profiles": ["P.yaml"],
                "parameters": {"Gate": str(self.gate), "ApiToken": SECRET},
                "metadata": {}, "scenarios": "", "only_dependencies": False,
                "iterations": None, "timeout": "", "fail_fast": False,
                "results_dir": "results", "package_dir": str(self.run_dir / "packages"),
                "experiment_id": "e", "client_id": "a", "allow_reboot": False, "arm": False,
            },
            "sources": [{"name": "P", "label": "P.yaml", "text": profile, "format": "yaml"}],
            "environment": {"VCAGENT_TEST_WORD": "word"},
            "resume": resume,
        }  # fmt: skip
        answer = self.call("start", json.dumps(request).encode())
        assert answer.returncode == 0, answer.stderr.decode()
        return Standing.from_json(answer.stdout)

    def standing(self) -> Standing:
        return standing_of(self.run_dir)

    def await_(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, (self.standing(), self.output())
            time.sleep(0.05)

    def output(self) -> str:
        path = self.run_dir / "output.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def on_host(tmp_path: Path) -> OnHost:
    return OnHost(tmp_path)


def test_a_run_is_started_once_watched_and_sent_home(on_host: OnHost) -> None:
    assert on_host.standing().state is RunState.ABSENT
    assert on_host.start().state is RunState.RUNNING
    on_host.await_(on_host.effects.exists)
    assert on_host.start().state is RunState.RUNNING  # a second request adopts the run
    lists = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert SECRET not in "\n".join(
        line for line in lists.splitlines() if not line.startswith(("sh -c", "/bin"))
    )
    watch = subprocess.Popen(
        [sys.executable, "-I", on_host.launcher, "fleet-host", "watch", on_host.run_dir],
        stdout=subprocess.PIPE, env=on_host.environment,
    )  # fmt: skip
    assert watch.stdout
    assert Standing.from_json(watch.stdout.readline()).state is RunState.RUNNING
    on_host.gate.touch()
    last = [Standing.from_json(line) for line in watch.stdout][-1]
    watch.stdout.close()
    assert watch.wait() == 0
    assert (last.state, last.exit_code) == (RunState.ENDED, 0), on_host.output()
    assert last.step == "act: execute"
    assert on_host.start().state is RunState.ENDED
    assert on_host.effects.read_text() == "once\n"
    assert not [
        path for path in on_host.run_dir.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]

    wanted = json.dumps([["run.json", 2], ["output.log", 0]]).encode() + b"\n"
    sent = on_host.call("send", wanted).stdout
    line, _, data = sent.partition(b"\n")
    sizes = {name: size for name, size, _ in json.loads(line)["files"]}
    assert {"run.json", "metrics.jsonl", "logs/1-actions-0-execute.log", "output.log"} <= set(sizes)
    assert len(data) == sizes["run.json"] - 2 + sizes["output.log"]
    described: dict[str, Any] = json.loads(b"{\n" + data[: sizes["run.json"] - 2])
    assert described["client_id"] == "a"


def test_a_stopped_run_is_resumed(on_host: OnHost) -> None:
    on_host.start()
    on_host.await_(on_host.effects.exists)
    assert on_host.call("stop").returncode == 0
    on_host.await_(lambda: on_host.standing().state is RunState.ENDED)
    assert on_host.standing().exit_code == 9
    on_host.gate.touch()
    on_host.start(resume=True)
    on_host.await_(lambda: on_host.standing().state is RunState.ENDED)
    assert on_host.standing().exit_code == 0, on_host.output()


def test_a_killed_run_is_dead_and_resumed(on_host: OnHost) -> None:
    on_host.start()
    on_host.await_(on_host.effects.exists)
    os.kill(json.loads((on_host.run_dir / "lock").read_text())["pid"], signal.SIGKILL)
    on_host.await_(lambda: on_host.standing().state is RunState.DEAD)
    on_host.gate.touch()
    on_host.start(resume=True)
    on_host.await_(lambda: on_host.standing().state is RunState.ENDED)
    assert on_host.standing().exit_code == 0, on_host.output()


def await_end(on_host: OnHost) -> Standing:
    on_host.await_(lambda: on_host.standing().state is RunState.ENDED)
    return on_host.standing()


def test_one_run_at_a_time_on_a_machine(on_host: OnHost) -> None:
    """Refuse a second run with the name of the first, also if the second had begun before."""
    on_host.start()
    on_host.await_(on_host.effects.exists)
    first, second = on_host.run_dir, on_host.run_dir.with_name(f"{OTHER_RUN}.b")
    on_host.run_dir = second
    on_host.start()
    turned_away = await_end(on_host)
    assert turned_away.exit_code == 4
    assert f"this machine is running fleet run {RUN}, as host a" in turned_away.error
    assert f"vcagent fleet resume {RUN}; or wait" in turned_away.error
    on_host.run_dir = first
    on_host.call("stop")
    assert await_end(on_host).exit_code == 9
    on_host.effects.unlink()
    on_host.run_dir = second
    on_host.start(resume=True)
    on_host.await_(on_host.effects.exists)
    on_host.run_dir = first
    on_host.start(resume=True)
    assert f"fleet run {OTHER_RUN}" in await_end(on_host).error
    on_host.gate.touch()
    on_host.run_dir = second
    assert await_end(on_host).exit_code == 0, on_host.output()


def test_a_run_that_systemd_has_resumed_has_the_machine_for_itself(on_host: OnHost) -> None:
    """Check that a run without a supervisor holds only its results folder."""
    results = ResultsFolder(on_host.run_dir.with_name(f"{OTHER_RUN}.b") / "results")
    results.prepare()
    with results.locked(OTHER_RUN):
        on_host.start()
        assert f"fleet run {OTHER_RUN}" in await_end(on_host).error
    on_host.gate.touch()
    on_host.start(resume=True)
    assert await_end(on_host).exit_code == 0, on_host.output()


def test_a_profile_that_cannot_be_used_is_told(on_host: OnHost) -> None:
    on_host.start(profile=PROFILE.replace("ExecuteCommand", "NoSuchThing"))
    on_host.await_(lambda: on_host.standing().state is RunState.ENDED)
    standing = on_host.standing()
    assert standing.exit_code == 3
    assert "NoSuchThing" in standing.error


def in_shell(command: str, data: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["/bin/sh", "-c", command], input=data, capture_output=True, check=False)


def probe(command: str, **order: object) -> subprocess.CompletedProcess[bytes]:
    return in_shell(command, doorstep_input({"do": "probe", **order}))


def test_the_doorstep_finds_python_and_looks_around() -> None:
    found = json.loads(probe(first_command("")).stdout)
    assert Path(found["python"]).is_file()
    assert found["machine"] == os.uname().machine
    assert found["sudo"] == ""
    assert found["base"].endswith("/vcagent/fleet")


def test_where_there_is_no_python_the_doorstep_says_so() -> None:
    assert probe(first_command("/nonexistent/python3")).returncode == 127


def test_the_doorstep_takes_a_bundle_in_once_and_hands_over(tmp_path: Path) -> None:
    import hashlib
    import io
    import tarfile

    script = b"import sys; print(sys.argv[1:], sys.stdin.read())"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo("vcagent")
        entry.size = len(script)
        archive.addfile(entry, io.BytesIO(script))
    data = buffer.getvalue()
    order = {
        "do": "arrive", "base": str(tmp_path), "bundle": "b1", "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(), "then": "start", "run": "/r",
    }  # fmt: skip

    def arrive(sent: bytes, **changes: object) -> subprocess.CompletedProcess[bytes]:
        return in_shell(doorstep_command(sys.executable), doorstep_input({**order, **changes}) + sent)

    cut = arrive(data[:-1], bundle="b0")
    assert cut.returncode == 1
    assert b"the bundle was not received completely" in cut.stderr
    assert list((tmp_path / "bundles").iterdir()) == []
    first = arrive(data + b"request")
    assert first.stdout.splitlines() == [b'{"missing": true}', b"['fleet-host', 'start', '/r'] request"]
    assert arrive(b"again").stdout.splitlines()[0] == b'{"missing": false}'
    assert [path.name for path in (tmp_path / "bundles").iterdir()] == ["b1"]
