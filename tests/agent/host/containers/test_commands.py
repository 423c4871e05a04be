"""Commands in a container: their output, their end, and the end of all processes that they started."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import ActionFailedError, ContainerError, InterruptedRunError
from agent.host.containers.client import LongAnswer
from agent.host.containers.ending import ProcessTree
from agent.host.containers.execution import Execution
from tests.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agent.host.containers.container import Container
    from agent.host.containers.engine import ContainerEngine
    from tests.lab.restartable_docker import RestartableDocker

pytestmark = pytest.mark.lab

STUBBORN = """\
setsid sh -c 'trap "" TERM; sleep 1001; sleep 1002' &
(sleep 1003 &)
trap "" TERM
echo ready
sleep 1004
sleep 1005
"""
"""Starts processes in their own session, orphans, and processes that ignore SIGTERM."""


def running(docker: RestartableDocker, container: Container) -> list[str]:
    """Return the processes that run in a container besides its first one."""
    rows = docker.docker("top", container.name, "-eo", "pid,args").splitlines()[1:]
    commands = [row.split(None, 1)[1] for row in rows]
    return sorted(command for command in commands if "infinity" not in command and "defunct" not in command)


def test_output_exit_code_and_log(start: Callable[..., Container], tmp_path: Path) -> None:
    lines: list[str] = []
    container, log = start(), tmp_path / "logs" / "log"
    result = container.run(
        ["sh", "-c", "echo out; echo err >&2; exit 3"], log=log, check=False, on_line=lines.append
    )
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert sorted(lines) == ["err", "out"]
    text = log.read_text()
    assert text.startswith(f"$ sh -c 'echo out; echo err >&2; exit 3'  # in {container.name}\n")
    assert "exit code 3 after" in text
    with pytest.raises(ActionFailedError, match="exit code 3") as error:
        container.run("echo why >&2; exit 3", log=log)
    assert error.value.details == ("why",)


def test_where_by_whom_and_with_what(start: Callable[..., Container], tmp_path: Path) -> None:
    container = start(environment={"A": "1", "B": "2"})
    result = container.run(
        "id -u; pwd; echo $A $B; echo $TOKEN",
        log=tmp_path / "log",
        user="1234:1234",
        cwd="/bin",
        env={"B": "3"},
        secret_env={"TOKEN": "planted-token-93"},
    )
    assert result.stdout == "1234\n/bin\n1 3\n***\n"
    assert "planted-token-93" not in (tmp_path / "log").read_text()


def test_nothing_of_the_output_is_lost(start: Callable[..., Container], tmp_path: Path) -> None:
    container = start()
    for number in range(5):  # short ones, whose output comes with the answer's first bytes
        assert container.run(["echo", str(number)], log=tmp_path / "short").stdout == f"{number}\n"
    script = "i=0; while [ $i -lt 40000 ]; do echo 0123456789 $i; i=$((i+1)); done"
    container.run(script, log=tmp_path / "long")
    got = (tmp_path / "long").read_text().splitlines()[1:-1]
    assert got == [f"0123456789 {number}" for number in range(40000)]


@pytest.mark.parametrize(
    ("command", "values", "problem"),
    [
        (["no-such-program"], {}, "no_such_program"),
        (["true"], {"cwd": "/no/such/folder"}, "no_workdir"),
        (["true"], {"user": "nobody9"}, "no_such_user"),
    ],
)
def test_what_cannot_be_started(
    start: Callable[..., Container], tmp_path: Path, command: list[str], values: dict[str, str], problem: str
) -> None:
    with pytest.raises(ContainerError) as error:
        start().run(command, log=tmp_path / "log", check=False, **values)
    assert error.value.problem == problem
    assert "OCI runtime" in error.value.message or "unable to find user" in error.value.message


def test_a_command_whose_time_is_over_is_ended_with_all_it_started(
    container_engine: RestartableDocker, start: Callable[..., Container], tmp_path: Path
) -> None:
    container = start()
    container.grace_s = 0.2
    result = container.run(STUBBORN, log=tmp_path / "log", timeout_s=1, check=False)
    assert result.timed_out
    assert result.stdout == "ready\n"
    assert running(container_engine, container) == []
    with pytest.raises(ActionFailedError, match="did not end within"):
        container.run(["sleep", "1006"], log=tmp_path / "log", timeout_s=0.2)
    assert running(container_engine, container) == []


def test_what_is_written_last_after_a_long_silence_is_kept(
    start: Callable[..., Container], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container, looked = start(), threading.Event()
    inspect = Execution._inspect

    def late(execution: Execution) -> Mapping[str, Any]:
        if followed and execution is followed[0] and not looked.is_set():
            looked.set()
            container.run(": >/go", log=tmp_path / "other")
            wait_for(lambda: not inspect(execution)["Running"], every_s=0.05)
        return inspect(execution)

    followed: list[Execution] = []
    begin = Execution.follow

    def follow(execution: Execution, timeout_s: float | None = None) -> None:
        followed.append(execution)
        begin(execution, timeout_s)

    monkeypatch.setattr(Execution, "_inspect", late)
    monkeypatch.setattr(Execution, "follow", follow)
    command = "until [ -e /go ]; do sleep 0.05; done; echo last"
    assert container.run(command, log=tmp_path / "log").stdout == "last\n"


def test_a_command_that_had_not_begun_when_it_was_to_end_is_ended_later(
    container_engine: RestartableDocker,
    start: Callable[..., Container],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    container, end, asked = start(), ProcessTree.end, []

    def nothing_there_at_first(tree: ProcessTree, grace_s: float) -> bool:
        asked.append(tree)
        return len(asked) > 1 and end(tree, grace_s)

    monkeypatch.setattr(ProcessTree, "end", nothing_there_at_first)
    result = container.run(["sleep", "1007"], log=tmp_path / "log", timeout_s=0.2, check=False)
    assert result.timed_out
    assert running(container_engine, container) == []


def test_an_answer_that_is_unwanted_before_it_begins_is_not_read() -> None:
    asked, unwanted, closed = threading.Event(), threading.Event(), threading.Event()
    raw = SimpleNamespace(shutdown=lambda: None)
    client: Any = SimpleNamespace(last_response=SimpleNamespace(raw=raw, close=closed.set))
    read: list[str] = []

    def call() -> Iterator[str]:
        asked.set()
        unwanted.wait(10)
        return (read.append("read") or "piece" for _ in range(1))  # type: ignore[func-returns-value]

    answer = LongAnswer(client, call)
    asked.wait(10)
    answer.cancel()
    unwanted.set()
    assert closed.wait(10)
    assert read == []


def test_a_run_that_is_told_to_stop(
    container_engine: RestartableDocker, start: Callable[..., Container], tmp_path: Path
) -> None:
    container = start()
    container.grace_s = 0.2

    def stop(line: str) -> None:
        if line == "ready":
            container.stop.set()

    with pytest.raises(InterruptedRunError, match="was stopped"):
        container.run(STUBBORN, log=tmp_path / "log", on_line=stop)
    assert running(container_engine, container) == []
    with pytest.raises(InterruptedRunError, match="was stopped before"):
        container.run(["true"], log=tmp_path / "log")


def test_a_signal_to_all_processes_may_reach_the_command_first(
    start: Callable[..., Container], tmp_path: Path
) -> None:
    container = start()
    log = tmp_path / "log"

    def signal_agent_too(line: str) -> None:
        if line == "last":
            threading.Timer(0.5, container.stop.set).start()

    with pytest.raises(InterruptedRunError, match="was stopped"):
        container.run("echo last; kill -TERM $$; sleep 60", log=log, on_line=signal_agent_too)
    assert "exit code 143" in log.read_text()
    assert ", stopped" in log.read_text()


def test_an_uninterruptible_command_comes_to_its_end(start: Callable[..., Container], tmp_path: Path) -> None:
    container = start()
    with pytest.raises(InterruptedRunError, match="ended first, with exit code 4"):
        container.run(
            "echo ready; sleep 0.5; exit 4",
            log=tmp_path / "log",
            on_line=lambda _: container.stop.set(),
            uninterruptible=True,
        )


@pytest.mark.parametrize("user", ["", "1234:1234"])
def test_from_inside_where_the_agent_is_not_root(
    engine: ContainerEngine,
    container_engine: RestartableDocker,
    start: Callable[..., Container],
    tmp_path: Path,
    user: str,
) -> None:
    """Run an agent that sees none of the container's processes on its own host."""
    container = start()
    background = container.start(STUBBORN, log=tmp_path / "log", user=user)
    wait_for(
        lambda: "ready" in background.tail() and len(running(container_engine, container)) >= 4, every_s=0.05
    )
    mark = background._execution._tree.mark
    ProcessTree(engine.client, container.identifier, mark, user)._end_from_inside(0.2)
    assert running(container_engine, container) == []
    wait_for(lambda: background.poll() == 137, every_s=0.05)


def test_in_the_background(
    container_engine: RestartableDocker, start: Callable[..., Container], tmp_path: Path
) -> None:
    container = start()
    server = container.start("echo serving; sleep 1007", log=tmp_path / "log")
    wait_for(lambda: server.tail() == ("serving",), every_s=0.05)
    assert server.poll() is None
    wait_for(lambda: server.pid, every_s=0.05)  # the engine may know it only after the first output
    assert server.stop(grace_s=1) == 143
    assert server.poll() == 143
    container.start(["sleep", "1008"], log=tmp_path / "log")
    wait_for(lambda: running(container_engine, container) == ["sleep 1008"], every_s=0.05)
    container.close()
    assert running(container_engine, container) == []
    short = container.start(["no-such-program"], log=tmp_path / "log")
    with pytest.raises(ContainerError, match="no-such-program"):
        wait_for(lambda: short.poll() is not None, every_s=0.05)


def test_output_that_a_child_holds_open(start: Callable[..., Container], tmp_path: Path) -> None:
    result = start().run("sleep 30 & echo done", log=tmp_path / "log", timeout_s=20)
    assert (result.exit_code, result.stdout) == (0, "done\n")


def test_a_container_that_vanishes(
    container_engine: RestartableDocker, start: Callable[..., Container], tmp_path: Path
) -> None:
    container = start()
    with pytest.raises(ContainerError) as error:
        container.run(
            "echo ready; sleep 1009",
            log=tmp_path / "log",
            on_line=lambda _: container_engine.docker("rm", "--force", container.name) and None,
        )
    assert error.value.problem == "no_such_container"
    with pytest.raises(ContainerError) as error:
        container.run(["true"], log=tmp_path / "log")
    assert error.value.problem == "no_such_container"


def test_a_container_whose_first_process_ends(start: Callable[..., Container], tmp_path: Path) -> None:
    container = start(command=("sh", "-c", "while [ ! -e /end ]; do sleep 0.1; done; exit 5"))
    with pytest.raises(ContainerError, match="ended with 5") as error:
        container.run("echo ready; echo >/end; sleep 1010", log=tmp_path / "log")
    assert error.value.details == ("ready",)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the SDK's sockets that did not connect
def test_an_engine_that_is_lost(
    container_engine: RestartableDocker, start: Callable[..., Container], tmp_path: Path
) -> None:
    container = start(command=("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"))

    def restart(line: str) -> None:
        if line == "ready":
            subprocess.run([container_engine.restart], check=True)

    with pytest.raises(ContainerError) as error:
        container.run("echo ready; sleep 1011", log=tmp_path / "log", on_line=restart)
    assert error.value.problem in {"engine_down", "no_engine", "no_such_container"}
    container_engine.wait()
    del error
    gc.collect()


@pytest.mark.parametrize("user", ["0", "1234:1234"])
def test_what_a_killed_agent_left_is_ended(
    container_engine: RestartableDocker, start: Callable[..., Container], tmp_path: Path, user: str
) -> None:
    container = start()
    own = container.start(["sleep", "1012"], log=tmp_path / "log")
    container_engine.docker(
        "exec", "--detach", f"--user={user}", f"--env=VCAGENT_PROCESS={'0' * 32}.1:", container.name,
        "sh", "-c", "sleep 1013 & sleep 1014",
    )  # fmt: skip
    wait_for(lambda: {"sleep 1013", "sleep 1014"} <= set(running(container_engine, container)), every_s=0.05)
    assert start().reused
    assert running(container_engine, container) == ["sleep 1012"]
    own.stop()


def test_an_agent_that_is_killed(
    engine: ContainerEngine,
    container_engine: RestartableDocker,
    start: Callable[..., Container],
    tmp_path: Path,
) -> None:
    container = start()
    program = (
        "import sys, threading\n"
        "sys.path[:] = sys.argv[3].split(':')\n"
        "from pathlib import Path\n"
        "from tests.agent.host.containers.conftest import wish\n"
        "from agent.host.containers.client import connected\n"
        "from agent.host.containers.engine import ContainerEngine\n"
        "from agent.core.secrets import Secrets\n"
        "engine = ContainerEngine(\n"
        "    connected(sys.argv[1]), run_id=sys.argv[2], secrets=Secrets(), stop=threading.Event()\n"
        ")\n"
        "engine.ensure_running(wish()).run('sleep 1016 & sleep 1017', log=Path(sys.argv[4]))\n"
    )
    paths = ":".join(filter(None, (str(Path(__file__).parents[4]), *sys.path)))
    command = [sys.executable, "-c", program, container_engine.address, engine.run_id, paths]
    with subprocess.Popen([*command, str(tmp_path / "log")]) as agent:
        wait_for(lambda: running(container_engine, container) == ["sleep 1016", "sleep 1017"], every_s=0.05)
        agent.kill()
    assert running(container_engine, container) == ["sleep 1016", "sleep 1017"]
    again = start()
    assert again.identifier == container.identifier
    assert running(container_engine, container) == []


def test_secrets_are_in_no_process_list(
    container_engine: RestartableDocker, start: Callable[..., Container], tmp_path: Path
) -> None:
    container = start()
    server = container.start(
        ["sleep", "1015"], log=tmp_path / "log", secret_env={"TOKEN": "planted-token-94"}
    )
    wait_for(lambda: running(container_engine, container) == ["sleep 1015"], every_s=0.05)
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "planted-token-94" not in listed
    (identifier,) = container_engine.docker(
        "inspect", '--format={{join .ExecIDs " "}}', container.name
    ).split()
    shown = container._client.exec_inspect(identifier)
    assert "planted-token-94" not in str(shown)
    server.stop()


def test_a_log_that_cannot_be_written(start: Callable[..., Container], tmp_path: Path) -> None:
    container = start()
    threads = threading.active_count()
    with pytest.raises(OSError, match="Is a directory"):
        container.run(["true"], log=tmp_path)
    assert threading.active_count() == threads
    assert os.access(tmp_path, os.W_OK)
