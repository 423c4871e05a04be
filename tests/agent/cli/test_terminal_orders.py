"""No command passes on control sequences from profiles, hosts, folders, files or arguments."""

from __future__ import annotations

import ast
import json
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from agent.cli.main import main
from agent.cli.output import say

ROOT = Path(__file__).parents[3]
ORDER = "\x1b[2J"
ALLOWED = {
    "agent/cli/output.py": "the one place",
    "agent/cli/main.py": "the version",
    "agent/cli/convert.py": "the profile itself, where no terminal reads it",
    "agent/core/progress.py": "lines of progress, disarmed",
    "agent/fleet/display.py": "lines of progress, disarmed",
}
PRINTERS = {"print", "typer.echo", "typer.secho", "Console", "sys.stdout.write", "sys.stderr.write"}
PROGRAMS = ("in_environment", "agent/fleet/remote")
"""Folders whose output is read by another program of the project, or is a log."""


def test_texts_are_printed_in_one_place() -> None:
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in (ROOT / "agent").rglob("*.py")
    }
    found = [
        f"{name}:{node.lineno}: {ast.unparse(node.func)}"
        for name, text in texts.items()
        if name not in ALLOWED and not any(part in name for part in PROGRAMS)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTERS
    ]
    assert found == []


def test_a_text_is_disarmed(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"out{ORDER}")
    say(f"err{ORDER}", end="", error=True)
    assert capsys.readouterr() == ("out\\x1b[2J\n", "err\\x1b[2J")


def inventory(folder: Path) -> Path:
    file = folder / f"hosts{ORDER}.yaml"
    named = {f"h{ORDER}1": {"address": f"a{ORDER}", "user": f"u{ORDER}"}}
    file.write_text(json.dumps({"hosts": named}))
    return file


def profile(folder: Path, text: str = "") -> Path:
    file = folder / f"P{ORDER}.json"
    action = {"Type": "ExecuteCommand", "Parameters": {"Scenario": f"s{ORDER}", "Command": f"true {ORDER}"}}
    file.write_text(text or json.dumps({"Description": f"d{ORDER}", "Actions": [action]}))
    return file


COMMANDS = {
    "fleet hosts": lambda folder: ["fleet", "hosts", "--inventory", str(inventory(folder))],
    "an inventory that is missing": lambda folder: [
        "fleet",
        "hosts",
        "--inventory",
        f"{folder}/{ORDER}.yaml",
    ],
    "a fleet run that is missing": lambda folder: [
        "fleet",
        "status",
        f"x{ORDER}",
        "--results-dir",
        str(folder),
    ],
    "plan": lambda folder: ["plan", "--profile", str(profile(folder))],
    "show": lambda folder: ["show", str(profile(folder))],
    "a broken profile": lambda folder: ["plan", "--profile", str(profile(folder, f"{{{ORDER}"))],
    "convert": lambda folder: ["convert", str(profile(folder)), f"{folder}/o{ORDER}.yaml"],
    "parse": lambda folder: ["parse", f"{folder}/log{ORDER}"],
    "diagnose": lambda folder: ["diagnose", f"{folder}/run{ORDER}"],
    "compare": lambda folder: ["compare", f"{folder}/a{ORDER}", f"{folder}/b{ORDER}"],
    "query": lambda folder: ["query", f"SELECT {ORDER}", f"{folder}/run{ORDER}"],
    "report": lambda folder: ["report", f"{folder}/run{ORDER}"],
    "runs": lambda folder: ["runs", "--results-dir", f"{folder}/run{ORDER}"],
    "clean": lambda folder: ["--clean=all", "--yes", "--results-dir", f"{folder}/run{ORDER}"],
    "an option": lambda _: ["parse", f"--x{ORDER}"],
    "a command": lambda _: [f"pa{ORDER}rse"],
    "a command of fleet": lambda _: ["fleet", f"st{ORDER}"],
    "a value": lambda _: ["diagnose", ".", "--baseline", f"{ORDER}"],
    "a number": lambda _: ["baseline", ".", "-o", "x", "--least-hosts", f"{ORDER}"],
    "a response file": lambda folder: [f"@{folder}/{ORDER}"],
    "bundle": lambda folder: ["bundle", "--platform", f"3.11{ORDER}", "--output", str(folder)],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_passes_an_order_on(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("VCAGENT_PACKAGE_DIR", str(tmp_path / "packages"))
    monkeypatch.setattr(sys, "argv", ["vcagent", *COMMANDS[command](tmp_path)])
    with suppress(SystemExit):
        main()
    told = "".join(capsys.readouterr())
    assert "\x1b" not in told
    assert told
