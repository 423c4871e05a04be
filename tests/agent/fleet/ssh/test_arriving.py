"""The first exchange with unusual hosts: each problem has its own message."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from agent.fleet.errors import HostUnfitError
from agent.fleet.scheduling import run_task
from agent.fleet.ssh.arriving import clock_off_s, clock_warning, probed
from agent.fleet.ssh.session import _BEGIN, Command

if TYPE_CHECKING:
    from agent.fleet.ssh.session import Session

FOUND = {
    "python": "/py", "version": "3.11", "machine": "x86_64", "libc": "glibc", "sudo": "", "base": "/b",
    "problem": "",
}  # fmt: skip
NOISE = b"Welcome!\n\xff0 users\nlast line without an end"


class Channel:
    """A channel whose server writes and ends."""

    def __init__(self, output: bytes, stderr: bytes = b"", code: int = 0) -> None:
        self.output, self.stderr, self.code = output, stderr, code
        self.written = b""
        self.closed = False
        self.eof_received = True
        self.status_event = self

    def recv(self, count: int) -> bytes:
        piece, self.output = self.output[: min(count, 7)], self.output[min(count, 7) :]
        return piece

    def recv_stderr(self, count: int) -> bytes:
        piece, self.stderr = self.stderr[:count], self.stderr[count:]
        return piece

    def recv_ready(self) -> bool:
        return True

    def send(self, data: bytes) -> int:
        self.written += data
        return len(data)

    def shutdown_write(self) -> None: ...

    def gettimeout(self) -> float:
        return 1.0

    def wait(self, _: float | None) -> bool:
        return True

    def recv_exit_status(self) -> int:
        return self.code

    def close(self) -> None: ...


class Host:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def start(self, _: str, __: float) -> Command:
        return Command(cast("Any", self.channel), cast("Any", "root@a"))


def begun(output: bytes = b"", before: bytes = b"") -> bytes:
    return before + f"{_BEGIN}\n".encode() + output


def told(**changes: object) -> bytes:
    return json.dumps({**FOUND, "clock_s": time.time(), **changes}).encode() + b"\n"


def probe(channel: Channel, **options: Any) -> dict[str, Any]:
    given = {"python": "", "sudo": False, "sudo_password": None, **options}
    return run_task(probed(cast("Session", Host(channel)), **given))


def test_what_startup_files_write_is_passed_over() -> None:
    channel = Channel(begun(told(), before=NOISE))
    assert probe(channel, host_dir="/scratch/v")["python"] == "/py"
    assert json.loads(channel.written.splitlines()[-1])["base"] == "/scratch/v"


CASES = {
    "nologin": (
        Channel(b"This account is currently not available.\n", code=1),
        "runs no commands: This account",
    ),
    "nologin without a word": (Channel(b"", code=1), "runs no commands: it ended at once"),
    "old": (
        Channel(begun(before=NOISE), b"vcagent-pythons:, 3.6.8 (python3)\n", 127),
        "needs Python 3.10 or newer; the host has only 3.6.8[\\s\\S]*dnf install python3.12",
    ),
    "none": (Channel(begun(), b"vcagent-pythons:\n", 127), "no python3 in the PATH"),
    "broken": (
        Channel(begun(), b"Fatal Python error: init_fs_encoding\n", 1),
        "does not work on the host: Fatal",
    ),
    "noexec": (Channel(begun(told(problem="/home is mounted noexec"))), "noexec[\\s\\S]*--host-dir"),
    "requiretty": (
        Channel(begun(told(sudo="sudo: sorry, you must have a tty to run sudo"))),
        "wants a terminal[\\s\\S]*!requiretty",
    ),
    "no sudo": (
        Channel(begun(told(sudo="sudo is not installed"))),
        "cannot run as root: sudo is not installed",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_trouble_is_named_with_what_to_do(case: str) -> None:
    channel, message = CASES[case]
    with pytest.raises(HostUnfitError, match=message) as caught:
        probe(channel)
    assert caught.value.remedy
    assert "defect" not in str(caught.value)


@pytest.mark.parametrize(
    ("clock_s", "off_s"), [(100.0, 0.0), (105.0, 0.0), (99.0, -1.0), (110.0, 5.0), (4000.0, 3895.0)]
)
def test_a_clock_is_off_by_what_the_answer_cannot_explain(clock_s: float, off_s: float) -> None:
    assert clock_off_s(clock_s, asked_s=100.0, told_s=105.0) == off_s


def test_a_clock_that_is_off_by_more_than_can_be_borne_is_told() -> None:
    assert clock_warning(59.0) == ""
    assert clock_warning(-3600.0).startswith("its clock is 3600 s behind")
    assert clock_warning(61.0).startswith("its clock is 61 s ahead")
    assert probe(Channel(begun(told(clock_s=time.time() + 500))))["clock_off_s"] > 400


def test_bytes_are_read_from_the_commands_own_beginning() -> None:
    command = Command(cast("Any", Channel(begun(b"\x00data", before=NOISE))), cast("Any", "root@a"))
    assert command.read(2) + command.read(100) + command.read(100) == b"\x00data"
