"""A line that holds a secret does not appear in process lists, and keeps its meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.core.secrets import Secrets
from agent.host.processes import LocalProcesses
from agent.host.processes.secret_line import arguments_of
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

OWN_ARGUMENTS = "tr '\\0' '\\n' </proc/$$/cmdline"


@pytest.fixture
def processes() -> LocalProcesses:
    return LocalProcesses("run", secrets=Secrets(["hunter2-x9"]))


def test_the_shell_s_arguments_do_not_hold_it(processes: LocalProcesses, tmp_path: Path) -> None:
    line = f"TOKEN=hunter2-x9; test ${{#TOKEN}} = 10 && {OWN_ARGUMENTS}"
    said = processes.run(line, log=tmp_path / "log").stdout
    assert "eval" in said
    assert "***" not in said  # the masked secret
    assert "TOKEN" not in said
    assert "hunter2" not in (tmp_path / "log").read_text()


def test_likewise_with_a_marker_and_in_the_background(processes: LocalProcesses, tmp_path: Path) -> None:
    line = f": hunter2-x9; {OWN_ARGUMENTS}"
    said = processes.run(line, log=tmp_path / "log", marker=tmp_path / "marker").stdout
    assert "***" not in said
    assert processes.run(line, log=tmp_path / "log", marker=tmp_path / "marker").adopted
    other = processes.run(f"{line}; : hunter2-x9", log=tmp_path / "log", marker=tmp_path / "marker")
    assert not other.adopted
    running = processes.start(line, log=tmp_path / "log2")
    wait_for(lambda: running.poll() is not None)
    assert running.poll() == 0
    assert "***\n" not in (tmp_path / "log2").read_text().partition("\n")[2]


def test_an_ordinary_line_is_an_argument(processes: LocalProcesses, tmp_path: Path) -> None:
    assert "cmdline" in processes.run(OWN_ARGUMENTS, log=tmp_path / "log").stdout
    assert arguments_of("echo x", "/bin/sh", Secrets()) == (["/bin/sh", "-c", "echo x"], {})


@pytest.mark.parametrize(
    ("line", "output", "code"),
    [
        ("echo 'a  b' \"c\"; : hunter2-x9", "a  b c\n", 0),
        ("cat <<'E'\n$x `y` hunter2\nE\n: hunter2-x9", "$x `y` hunter2\n", 0),
        ("exit 7 # hunter2-x9", "", 7),
        (": hunter2-x9; false", "", 1),
        ('echo "${VCAGENT_COMMAND-gone}"; env | grep -c ^VCAGENT_COMMAND= ; : hunter2-x9', "gone\n0\n", 0),
        ("A=1 && (echo $A; exit 3) || echo $? # hunter2-x9", "1\n3\n", 0),
        ("echo $0 $# # hunter2-x9", None, 0),
    ],
)  # fmt: skip
def test_it_means_what_it_meant(
    line: str, output: str | None, code: int, processes: LocalProcesses, tmp_path: Path
) -> None:
    result = processes.run(line, log=tmp_path / "log", check=False)
    plain = LocalProcesses("run").run(line.replace("hunter2-x9", "x"), log=tmp_path / "log", check=False)
    assert (result.stdout, result.exit_code) == (plain.stdout if output is None else output, code)
    assert plain.exit_code == code
