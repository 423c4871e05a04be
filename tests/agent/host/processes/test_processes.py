from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import tracemalloc
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from agent.core.errors import ActionFailedError, InterruptedRunError
from agent.core.secrets import Secrets
from agent.host.processes import LocalProcesses, tree
from agent.host.processes.invoked import TreeRunner
from tests.waiting import LIMIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

TOKEN = "hunter2-very-secret"


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pid_in(path: Path) -> int:
    wait_for(lambda: path.exists() and path.read_text().strip())
    return int(path.read_text())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "step.log"


@pytest.fixture
def processes() -> Iterator[LocalProcesses]:
    runner = LocalProcesses("run-1", secrets=Secrets([TOKEN]))
    yield runner
    runner.stop_all()


def test_output_exit_code_and_log(processes: LocalProcesses, log: Path) -> None:
    lines: list[str] = []
    result = processes.run("echo out; echo err >&2; exit 3", log=log, check=False, on_line=lines.append)
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert (result.timed_out, result.adopted, result.log) == (False, False, log)
    assert sorted(lines) == ["err", "out"]
    text = log.read_text().splitlines()
    assert text[0] == "$ echo out; echo err >&2; exit 3"
    assert text[-1].startswith("exit code 3 after 0.")


def test_a_list_is_not_read_by_a_shell(processes: LocalProcesses, log: Path) -> None:
    assert processes.run(["echo", "$HOME && false"], log=log).stdout == "$HOME && false\n"


def test_logs_are_appended_to(processes: LocalProcesses, log: Path) -> None:
    processes.run(["echo", "one"], log=log)
    processes.run(["echo", "two"], log=log)
    assert [line for line in log.read_text().splitlines() if line in ("one", "two")] == ["one", "two"]


def test_failure_carries_the_last_lines_and_the_log(processes: LocalProcesses, log: Path) -> None:
    with pytest.raises(ActionFailedError) as error:
        processes.run("seq 100; echo why >&2; exit 7", log=log)
    assert "exit code 7" in str(error.value)
    assert "why" in error.value.details
    assert len(error.value.details) == 20
    assert str(log) in str(error.value)


def test_reports_of_progress_are_not_part_of_an_error(processes: LocalProcesses, log: Path) -> None:
    event = '{"event": "progress", "done": 1, "total": 2}'
    with pytest.raises(ActionFailedError) as error:
        processes.run(f"echo broken; for n in $(seq 30); do echo '{event}'; done; exit 3", log=log)
    assert error.value.details == ("broken",)
    assert event in log.read_text()


def test_a_program_that_does_not_exist(processes: LocalProcesses, log: Path) -> None:
    with pytest.raises(ActionFailedError, match="no-such-program cannot be run: No such file"):
        processes.run(["no-such-program"], log=log)
    assert "exit code 127" in log.read_text()


def test_a_working_directory_that_does_not_exist(
    processes: LocalProcesses, log: Path, tmp_path: Path
) -> None:
    with pytest.raises(ActionFailedError, match="working directory"):
        processes.run(["true"], log=log, cwd=tmp_path / "none")


def test_environment_is_merged_in_the_c_locale_without_input(processes: LocalProcesses, log: Path) -> None:
    result = processes.run(
        "echo $LC_ALL $X $VCAGENT_RUN ${HOME:+home}; cat; tty", log=log, env={"X": "1"}, check=False
    )
    assert result.stdout == "C 1 run-1 home\nnot a tty\n"


def test_killed_by_a_signal_is_negative(processes: LocalProcesses, log: Path) -> None:
    result = processes.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], log=log, check=False)
    assert result.exit_code == -signal.SIGKILL


def test_secrets_never_reach_the_log_the_result_or_the_error(processes: LocalProcesses, log: Path) -> None:
    half = len(TOKEN) // 2
    command = f"printf {TOKEN[:half]}; sleep 0.05; echo {TOKEN[half:]}; echo {TOKEN} >&2; exit 1"
    with pytest.raises(ActionFailedError) as error:
        processes.run(command, log=log)
    assert TOKEN not in log.read_text()
    assert log.read_text().splitlines().count("***") == 2
    assert TOKEN not in str(error.value)


def test_binary_output(processes: LocalProcesses, log: Path) -> None:
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 64)"
    result = processes.run([sys.executable, "-c", script], log=log)
    assert "\ufffd" in result.stdout
    assert log.read_text(encoding="utf-8").endswith(" s\n")


def test_a_redrawn_progress_bar_becomes_lines(processes: LocalProcesses, log: Path) -> None:
    lines: list[str] = []
    processes.run(r"printf '10 %%\r20 %%\rdone\r\nend'", log=log, on_line=lines.append)
    assert lines == ["10 %", "20 %", "done", "end"]


def test_a_flood_is_held_in_constant_memory(processes: LocalProcesses, log: Path) -> None:
    before = psutil.Process().memory_info().rss
    result = processes.run("head -c 100000000 /dev/zero | tr '\\0' x | fold -w 1000", log=log, timeout_s=240)
    assert psutil.Process().memory_info().rss - before < 20_000_000
    assert len(result.stdout) == 65_536
    assert log.stat().st_size > 100_000_000
    log.unlink()


def test_a_flood_without_line_ends(processes: LocalProcesses, log: Path) -> None:
    result = processes.run("head -c 3000000 /dev/zero | tr '\\0' x", log=log)
    assert len(result.stdout) == 65_536
    assert log.read_text().count("x") >= 3_000_000


TREE = (
    "sh -c 'echo $$ > child; trap \"\" TERM; while :; do sleep 60; done' & "
    "setsid sh -c 'echo $$ > detached; exec sleep 300' & "
    "sleep 300"
)


def test_a_timeout_ends_the_whole_tree(processes: LocalProcesses, log: Path, tmp_path: Path) -> None:
    processes.grace_s = 0.2
    with pytest.raises(ActionFailedError, match="did not end within"):
        processes.run(TREE, log=log, cwd=tmp_path, timeout_s=3)
    for name in ("child", "detached"):
        assert not alive(pid_in(tmp_path / name)), name
    assert "its time was over" in log.read_text()


def test_told_to_stop_ends_the_tree_at_once(log: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    processes = LocalProcesses("run-2", stop=stop, grace_s=0.3)

    def stopper() -> None:
        pid_in(tmp_path / "child")
        pid_in(tmp_path / "detached")
        stop.set()

    thread = threading.Thread(target=stopper)
    thread.start()
    with pytest.raises(InterruptedRunError):
        processes.run(TREE, log=log, cwd=tmp_path)
    thread.join()
    assert not alive(pid_in(tmp_path / "child"))
    assert not alive(pid_in(tmp_path / "detached"))
    with pytest.raises(InterruptedRunError):
        processes.run(["touch", str(tmp_path / "later")], log=log)
    assert not (tmp_path / "later").exists()


GATED = "touch started; until [ -e go ]; do sleep 0.02; done; echo installed"


def test_an_uninterruptible_command_comes_to_its_end_before_the_run_stops(log: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    processes = LocalProcesses("run-4", stop=stop, grace_s=0.1)
    seen: list[str] = []

    def stopper() -> None:
        wait_for((tmp_path / "started").exists)
        stop.set()
        ending = threading.Thread(target=processes.stop_all)
        ending.start()
        # Longer than the time to notice the stop and to kill a command.
        ending.join(timeout=1)
        seen.append("waits" if ending.is_alive() else "ended")
        (tmp_path / "go").touch()
        ending.join()

    thread = threading.Thread(target=stopper)
    thread.start()
    marker = tmp_path / "marker"
    with pytest.raises(InterruptedRunError, match="ended first, with exit code 0") as error:
        processes.run(GATED, log=log, cwd=tmp_path, uninterruptible=True, marker=marker, timeout_s=60)
    thread.join()
    assert seen == ["waits"]
    assert error.value.details == ("installed",)
    again = LocalProcesses("run-4").run(
        GATED, log=log, cwd=tmp_path, uninterruptible=True, marker=marker, timeout_s=60
    )
    assert again.adopted


@pytest.mark.parametrize("uninterruptible", [False, True])
def test_what_is_just_being_started_when_all_is_ended_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, log: Path, *, uninterruptible: bool
) -> None:
    processes = LocalProcesses("run-5", grace_s=0.1)
    ending = threading.Thread(target=processes.stop_all)
    start_process = TreeRunner.start

    def start(runner: TreeRunner, command: str, shell: str, env: dict[str, object]) -> None:
        start_process(runner, command, shell, env)
        ending.start()
        ending.join(timeout=0.3)  # it goes as far as possible before anything reads the output

    monkeypatch.setattr(TreeRunner, "start", start)
    command = "echo first; sleep 0.5; echo last; " + ("true" if uninterruptible else "sleep 60")
    if uninterruptible:
        result = processes.run(command, log=log, uninterruptible=True)
        assert result.stdout == "first\nlast\n"
    else:
        with pytest.raises(InterruptedRunError):
            processes.run(command, log=log)
    ending.join(LIMIT_S)
    assert not ending.is_alive()


def test_what_is_started_after_all_was_ended_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, log: Path, tmp_path: Path
) -> None:
    processes = LocalProcesses("run-6")
    launch = TreeRunner.launch

    def late(runner: TreeRunner, argv: Sequence[str]) -> None:
        processes.stop_all()
        launch(runner, argv)

    monkeypatch.setattr(TreeRunner, "launch", late)
    with pytest.raises(InterruptedRunError, match="before touch was started"):
        processes.run(["touch", str(tmp_path / "later")], log=log)
    assert "not started" in log.read_text()
    assert not (tmp_path / "later").exists()


def test_what_is_written_last_after_a_long_silence_is_kept(
    processes: LocalProcesses, monkeypatch: pytest.MonkeyPatch, log: Path, tmp_path: Path
) -> None:
    both_readers, poll = threading.Barrier(2), select.poll

    class LatePoll:
        """Returns from its first silence when the command has written its last output and ended."""

        def __init__(self) -> None:
            self._poll, self._first = poll(), True

        def register(self, *arguments: Any) -> None:
            self._poll.register(*arguments)

        def poll(self, limit_ms: float) -> list[tuple[int, int]]:
            if not self._first:
                return self._poll.poll(limit_ms)
            self._first = False
            both_readers.wait(LIMIT_S)
            (tmp_path / "go").touch()
            wait_for(lambda: not alive(pid_in(tmp_path / "pid")))
            return []

    monkeypatch.setattr(
        "agent.host.processes.invoked.select", SimpleNamespace(**{**vars(select), "poll": LatePoll})
    )
    command = "echo $$ > pid; until [ -e go ]; do sleep 0.02; done; echo last"
    assert processes.run(command, log=log, cwd=tmp_path).stdout == "last\n"


def test_a_shell_does_not_go_on_to_its_next_line_when_it_is_ended(
    processes: LocalProcesses, monkeypatch: pytest.MonkeyPatch, log: Path, tmp_path: Path
) -> None:
    told: list[int] = []
    signal_one = tree._signal

    def note(process: psutil.Process, *, kill: bool) -> None:
        told.append(process.pid)
        signal_one(process, kill=kill)

    monkeypatch.setattr(tree, "_signal", note)
    # As with a marker, if one of the agent's own shells precedes the command's.
    outer = "sh -c 'echo $$ > inner; sleep 60 & sleep 60 & echo ready; sleep 60; touch next'; touch next"
    shell = processes.start(outer, log=log, cwd=tmp_path)
    wait_for(lambda: shell.tail() == ("ready",))
    shell.stop()
    assert told[:2] == [shell.pid, pid_in(tmp_path / "inner")]
    assert not (tmp_path / "next").exists()


def test_the_time_of_an_uninterruptible_command_ends_all_the_same(
    processes: LocalProcesses, log: Path
) -> None:
    with pytest.raises(ActionFailedError, match="did not end within"):
        processes.run(["sleep", "60"], log=log, uninterruptible=True, timeout_s=0.2)


@pytest.mark.parametrize("uninterruptible", [False, True])
@pytest.mark.parametrize("command", ["kill -TERM $$; sleep 60", "exit 143"])
def test_the_signal_that_ends_a_whole_job_may_reach_the_command_first(
    log: Path, tmp_path: Path, command: str, *, uninterruptible: bool
) -> None:
    processes = LocalProcesses("run-3")
    marker = tmp_path / "marker"

    def signal_agent_too() -> None:
        wait_for((tmp_path / "ended").exists)
        processes.stop.set()

    thread = threading.Thread(target=signal_agent_too)
    thread.start()
    with pytest.raises(InterruptedRunError, match="was stopped"):
        processes.run(
            f"touch ended; {command}",
            log=log,
            cwd=tmp_path,
            marker=marker,
            uninterruptible=uninterruptible,
            timeout_s=60,
        )
    thread.join()
    assert not marker.exists()
    assert "stopped" in log.read_text()


def test_a_signal_to_the_command_alone_is_its_failure(log: Path, tmp_path: Path) -> None:
    processes = LocalProcesses("run-3")
    with pytest.raises(ActionFailedError, match="was ended by signal 15"):
        processes.run("kill -TERM $$; sleep 60", log=log)


def test_a_stopped_command_leaves_no_marker(log: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    processes = LocalProcesses("run-3", stop=stop)
    marker = tmp_path / "marker"
    # The command ends itself, with its own exit code, when it is asked to stop.
    command = "trap 'exit 5' TERM; touch ready; while :; do sleep 0.01; done"
    thread = threading.Thread(target=lambda: (wait_for((tmp_path / "ready").exists), stop.set()))
    thread.start()
    with pytest.raises(InterruptedRunError):
        processes.run(command, log=log, cwd=tmp_path, marker=marker)
    thread.join()
    assert not marker.exists()


def test_a_service_left_in_the_background_lives_and_does_not_hold_the_run(
    processes: LocalProcesses, log: Path, tmp_path: Path
) -> None:
    processes.run("sleep 300 & echo $! > service", log=log, cwd=tmp_path, timeout_s=20)
    service = pid_in(tmp_path / "service")
    assert alive(service)
    os.kill(service, signal.SIGKILL)


def test_what_a_callback_raises_ends_the_command(processes: LocalProcesses, log: Path) -> None:
    def refuse(line: str) -> None:
        raise ValueError(line)

    with pytest.raises(ValueError, match="one"):
        processes.run("echo one; sleep 300", log=log, on_line=refuse)


def test_background_process(processes: LocalProcesses, log: Path, tmp_path: Path) -> None:
    server = processes.start("echo up; exec sleep 300", log=log, cwd=tmp_path)
    wait_for(lambda: server.tail() == ("up",))
    assert server.poll() is None
    assert alive(server.pid)
    assert server.stop(grace_s=2) == -signal.SIGTERM
    assert server.poll() == -signal.SIGTERM
    assert not alive(server.pid)
    assert "stopped" in log.read_text()


def test_background_process_that_ends_by_itself(processes: LocalProcesses, log: Path) -> None:
    server = processes.start("echo no memory; exit 4", log=log)
    wait_for(lambda: server.poll() is not None)
    assert (server.poll(), server.stop()) == (4, 4)
    assert server.tail() == ("no memory",)
    assert log.read_text().splitlines()[-1].startswith("exit code 4")


def test_stop_all_ends_what_runs(processes: LocalProcesses, log: Path) -> None:
    servers = [processes.start(["sleep", "300"], log=log) for _ in range(3)]
    processes.stop_all()
    assert [server.poll() for server in servers] == [-signal.SIGTERM] * 3


def test_a_finished_command_is_not_run_again(processes: LocalProcesses, log: Path, tmp_path: Path) -> None:
    marker = tmp_path / "state" / "step.ended"
    command = "echo ran >> count; echo output"
    first = processes.run(command, log=log, cwd=tmp_path, marker=marker)
    again = processes.run(command, log=log, cwd=tmp_path, marker=marker, env={"PATH": "/bin"})
    assert (first.adopted, again.adopted) == (False, True)
    assert (tmp_path / "count").read_text() == "ran\n"
    assert "output\n" in again.stdout
    processes.run("echo other >> count", log=log, cwd=tmp_path, marker=marker)
    assert (tmp_path / "count").read_text() == "ran\nother\n", "a marker is for one command alone"


def test_an_adopted_failure_is_a_failure(processes: LocalProcesses, log: Path, tmp_path: Path) -> None:
    marker = tmp_path / "m"
    for _ in range(2):
        with pytest.raises(ActionFailedError, match="exit code 5") as error:
            processes.run("echo broken; exit 5", log=log, marker=marker)
        assert "broken" in error.value.details


def test_the_end_of_a_long_log_is_read_from_its_end(
    processes: LocalProcesses, log: Path, tmp_path: Path
) -> None:
    command = "seq -f '%.0f of many' 400000"
    first = processes.run(command, log=log, marker=tmp_path / "m")
    tracemalloc.start()
    again = processes.run(command, log=log, marker=tmp_path / "m")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert again.adopted
    assert first.stdout[-1000:] in again.stdout
    assert log.stat().st_size > 5_000_000
    assert peak < 2_000_000


@pytest.mark.parametrize("torn", ["", "0", "0 abc", "x y z"])
def test_a_torn_marker_does_not_count(
    processes: LocalProcesses, log: Path, tmp_path: Path, torn: str
) -> None:
    (tmp_path / "m").write_text(torn)
    assert not processes.run(["true"], log=log, marker=tmp_path / "m").adopted


KILLED = f"run-killed-{os.getpid()}"  # differs from that of other workers
AGENT = """
import sys
import threading
from pathlib import Path
from agent.host.processes import LocalProcesses
folder = Path(sys.argv[1])
processes = LocalProcesses(sys.argv[3]).for_step(sys.argv[4])
log, patient = folder / "log", len(sys.argv) > 5
processes.run(sys.argv[2], log=log, cwd=folder, marker=folder / "marker", uninterruptible=patient)
(folder / "finished").touch()
threading.Event().wait()
"""


def killed_agent(tmp_path: Path, command: str, ready: str, *arguments: str) -> None:
    arguments = arguments or ("step",)
    agent = subprocess.Popen([sys.executable, "-c", AGENT, str(tmp_path), command, KILLED, *arguments])
    wait_for((tmp_path / ready).exists)
    agent.kill()
    agent.wait()


def test_after_kill_9_a_command_that_finished_is_adopted(tmp_path: Path) -> None:
    command = "touch started; until [ -e go ]; do sleep 0.02; done; echo x >> count"
    killed_agent(tmp_path, command, "started")
    (tmp_path / "go").touch()
    wait_for((tmp_path / "marker").exists)
    result = LocalProcesses(KILLED).run(
        command, log=tmp_path / "log", cwd=tmp_path, marker=tmp_path / "marker"
    )
    assert result.adopted
    assert (tmp_path / "count").read_text() == "x\n"


def test_after_kill_9_what_still_runs_is_ended_and_nothing_else(log: Path, tmp_path: Path) -> None:
    killed_agent(tmp_path, TREE, "detached")
    mine = [pid_in(tmp_path / name) for name in ("child", "detached")]
    stranger = subprocess.Popen(["sleep", "300"], env={**os.environ, "VCAGENT_RUN": "another-run"})
    processes = LocalProcesses(KILLED, grace_s=0.2)
    own = processes.start(["sleep", "300"], log=log)
    try:
        assert processes.kill_leftovers() >= len(mine)
        assert not any(map(alive, mine))
        assert stranger.poll() is None
        assert own.poll() is None
        assert not (tmp_path / "marker").exists()
    finally:
        stranger.kill()
        stranger.wait()
        processes.stop_all()


def test_after_kill_9_what_a_finished_step_left_running_lives(tmp_path: Path) -> None:
    folders = [tmp_path / key for key in ("finished", "unfinished", "none")]
    for folder in folders:
        folder.mkdir()
        # A service is started, and the command ends: the journal decides whether its step succeeded.
        key = "" if folder.name == "none" else f"actions[0]/{folder.name}"
        killed_agent(folder, "setsid -f sh -c 'echo $$ > pid; exec sleep 300'", "finished", key)
    service, leftover, monitor = (pid_in(folder / "pid") for folder in folders)
    processes = LocalProcesses(KILLED, grace_s=0.2)
    try:
        assert processes.kill_leftovers(["actions[0]/unfinished"]) >= 2
        assert alive(service)
        assert not alive(leftover)
        assert not alive(monitor)
        assert processes.kill_leftovers() >= 1
        assert not alive(service)
    finally:
        processes.kill_leftovers()


def test_after_kill_9_what_is_forked_meanwhile_is_ended_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    killed_agent(tmp_path, TREE, "detached")
    child, detached = mine = [pid_in(tmp_path / name) for name in ("child", "detached")]

    def seen(variable: str, value: str) -> list[psutil.Process]:
        found = tree.processes_carrying(variable, value)
        return [one for one in found if one.pid != detached or not alive(child)]

    monkeypatch.setattr("agent.host.processes.local.processes_carrying", seen)
    assert LocalProcesses(KILLED, grace_s=0.2).kill_leftovers() >= len(mine)
    assert not any(map(alive, mine))


def test_after_kill_9_an_uninterruptible_command_is_waited_for(tmp_path: Path) -> None:
    killed_agent(tmp_path, GATED.replace("echo", "echo >"), "started", "step", "patient")
    waiting = threading.Thread(target=LocalProcesses(KILLED, grace_s=0.1).kill_leftovers)
    waiting.start()
    waiting.join(timeout=0.5)
    assert waiting.is_alive()
    (tmp_path / "go").touch()
    waiting.join()
    assert (tmp_path / "installed").exists()


def test_a_step_s_processes_share_all_but_the_key(processes: LocalProcesses, log: Path) -> None:
    step = processes.for_step("actions[0]/x")
    server = step.start("echo $VCAGENT_STEP; exec sleep 300", log=log)
    wait_for(lambda: server.tail() == ("actions[0]/x",))
    assert processes.run("echo =$VCAGENT_STEP=", log=log).stdout == "==\n"
    assert step.stop is processes.stop
    processes.stop_all()
    assert server.poll() == -signal.SIGTERM
