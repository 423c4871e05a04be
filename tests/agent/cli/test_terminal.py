"""The commands on a terminal and in a pipe: help, completion, the manual page, plain text, whole lines."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.text import Text

from agent.core.layout import print_columns, print_entry, print_lines
from agent.core.terminal import safe_console

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]


def program(*arguments: str, **environment: str) -> str:
    base = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT, env={**base, **environment}, capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip


def test_the_manual_page_is_current() -> None:
    page = program("agent.cli.man_page")
    assert page == (ROOT / "docs/vcagent.1").read_text(encoding="utf-8"), "make man writes it"
    for part in (".SS vcagent fleet run", ".SS vcagent submission check", r"\fB\-\-commands\fR"):
        assert part in page


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("vcagent plan EXECUTE", "EXECUTE-COMMAND"),
        ("vcagent --profile EXECUTE", "EXECUTE-COMMAND"),
        ("vcagent plan PERF-LLAMACPP --scenarios generate,perp", "generate,perplexity"),
        ("vcagent --experiment", "--experiment-id"),
        ("vcagent report 2026", "20260401T120000Z-p-3fa9"),
        ("vcagent facts dist", "distribution"),
    ],
)
def test_a_shell_completes(
    words: str, found: str, vcagent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results/20260401T120000Z-p-3fa9").mkdir(parents=True)
    (tmp_path / "results/20260401T120000Z-p-3fa9/journal.sqlite").touch()
    monkeypatch.setenv("_VCAGENT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert vcagent()[1].split() == [found]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_offered_for_a_shell(
    shell: str, vcagent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise typer takes the shell that it finds among the ancestors of this process.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert "_VCAGENT_COMPLETE=complete_" in vcagent("--show-completion", shell)[1]


def test_short_help_and_the_version_in_it(vcagent: Callable[..., Any]) -> None:
    code, out, _ = vcagent("-h")
    assert code == 0
    assert "--version" in out
    assert vcagent("plan", "-h")[1] == vcagent("plan", "--help")[1]


def test_no_color_means_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> str:
        screen = io.StringIO()
        safe_console(file=screen, force_terminal=True).print(Text("loud", style="bold red"))
        return screen.getvalue()

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in shown()
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown() == "loud\n"


def test_help_under_no_color_is_plain_text() -> None:
    assert "\x1b[" in program("agent", "--help", FORCE_COLOR="1", TERM="xterm")
    assert "\x1b[" not in program("agent", "--help", FORCE_COLOR="1", TERM="xterm", NO_COLOR="1")


def test_a_pipe_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.table import Table

    monkeypatch.delenv("COLUMNS", raising=False)
    path = "/a-folder" * 40
    screen = io.StringIO()
    console = safe_console(file=screen)
    table = Table("what", box=None)
    table.add_row(path)
    console.print(table)
    print_entry(console, Text("problem  "), f"{path}: {path}", indent=9)
    print_columns(console, ("fact", "value"), [("path", path)])
    assert [line.strip() for line in screen.getvalue().splitlines()] == [
        "what", path, f"problem  {path}: {path}", "fact  value", "────  ─────", f"path  {path}",
    ]  # fmt: skip


def test_a_terminal_gets_whole_paths_and_indented_lines() -> None:
    screen = io.StringIO()
    console = safe_console(file=screen, force_terminal=True, width=40, color_system=None)
    path = "/folder" * 8
    print_entry(console, Text("problem  "), f"the folder {path} is not here", indent=9)
    assert screen.getvalue().splitlines() == [
        "problem  the folder",
        f"         {path}",
        "         is not here",
    ]
    screen.truncate(0)
    screen.seek(0)
    text = f"it is not in {path}\n  → choose another folder or make this one"
    print_lines(console, text, lead=Text("error: "))
    assert screen.getvalue().splitlines() == [
        "error: it is not in",
        f"  {path}",
        "  → choose another folder or make this",
        "    one",
    ]
    screen.truncate(0)
    screen.seek(0)
    print_columns(console, ("run", "profile"), [("20260401T120000Z-p-3fa9", "P" * 60)])
    lines = screen.getvalue().splitlines()
    assert lines[1] == f"{'─' * 23}  {'─' * 15}"
    assert "20260401T120000Z-p-3fa9" in lines[2]
    assert all(len(line) <= 40 for line in lines)


def test_a_wrong_value_names_the_profile_s_own_parameter(vcagent: Callable[..., Any]) -> None:
    code, _, err = vcagent("plan", "PERF-ENDPOINT")
    assert code == 3
    assert "endpoint: give the URL of the server" in err
    assert '→ give another value: --parameters "Endpoint=…"' in err
    assert "Value error" not in err
