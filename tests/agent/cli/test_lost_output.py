"""Every command with a standard output that nobody reads: its exit code stays, and no traceback is shown."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

REPORTS = Path(__file__).parents[1] / "report" / "finished_run"
# Forks, so that each command starts with what is imported already, and ends like an interpreter, but without
# its tidying up: the end of a process writes what is left in its buffers, which may change the exit code.
DRIVER = """
import importlib, json, os, sys, traceback
from agent.cli import main as program

for name in ("agent.run.session", "agent.cli.compare", "agent.store.command_documents", "typer.rich_utils"):
    importlib.import_module(name)

def commands(group, path):
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from commands(command, [*path, name])
        else:
            yield [*path, name]

def spoil(output):
    if output == "closed":
        os.close(1)
        sys.stdout = sys.__stdout__ = None
    elif output == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    else:
        read, write = os.pipe()
        os.close(read)
        os.dup2(write, 1)

def outcome(words, output):
    child = os.fork()
    if child == 0:
        os.dup2(os.open("errors", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        spoil(output)
        sys.argv = ["vcagent", *words]
        code = 0
        try:
            program.main()
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
            code = 1
        try:
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
        except OSError:
            code = 120  # as an interpreter that cannot write the rest ends
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open("errors", encoding="utf-8", errors="replace") as file:
        return [words, output, code, file.read()]

calls = json.load(sys.stdin)
paths = list(commands(program._command_line(["--help"]), []))
calls += [[[*path, "--json", "--no-such-option"], "full"] for path in paths]
with open("found.json", "w") as file:
    json.dump({"paths": paths, "outcomes": [outcome(*call) for call in calls]}, file)
os._exit(0)
"""
CALLS: list[tuple[int, str]] = [
    (0, "--version"),
    (0, "--help"),
    (0, "run --help"),
    (2, "--no-such-option"),
    (6, "--profile EXECUTE-COMMAND --parameters Command=false --quiet"),
    (0, "plan --profile EXECUTE-COMMAND --parameters Command=false"),
    (3, "plan --profile NO-SUCH-PROFILE --json"),
    (0, "runs"),
    (0, "report"),
    (0, "show EXECUTE-COMMAND"),
    (0, "profiles --json"),
    (2, "parse llama-bench none.json --json"),
    (0, "compare results/one results/two"),
    (0, "convert PERF-CPU-MLPERF"),
    (0, "telemetry status"),
    (0, "fleet hosts -i hosts"),
]
"""Calls that print something, each with its exit code."""


def test_a_lost_output_changes_no_exit_code(tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(REPORTS, tmp_path / "results" / name)
    (tmp_path / "hosts").write_text("a\nb\n")
    outputs = ("closed", "full", "unread")
    calls = [
        (words.split(), output)
        for number, (_, words) in enumerate(CALLS)
        for output in (outputs if words in {"--version", "runs"} else (outputs[number % 3],))
    ]
    subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps(calls),
        text=True,
        check=True,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "VCAGENT_PACKAGE_DIR": str(tmp_path / "packages"),
        },
    )
    found = json.loads((tmp_path / "found.json").read_text())
    expected = {words: code for code, words in CALLS}
    expected |= {" ".join([*path, "--json", "--no-such-option"]): 2 for path in found["paths"]}
    assert len(found["paths"]) > 20
    wrong = [
        (words, output, code, errors)
        for words, output, code, errors in (
            (" ".join(words), *others) for words, *others in found["outcomes"]
        )
        if code != expected[words] or "Traceback" in errors or "Exception ignored" in errors
    ]
    assert wrong == []
