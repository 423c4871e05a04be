"""The program: commands by name; run is the one that is meant where none is named."""

from __future__ import annotations

import io
import os
import sys

import typer

from agent.cli.bundle import bundle
from agent.cli.clean import clean
from agent.cli.convert import convert
from agent.cli.diagnose import baseline, diagnose
from agent.cli.doctor import doctor
from agent.cli.facts import facts
from agent.cli.fleet import app as fleet
from agent.cli.parse import parse
from agent.cli.plan import plan
from agent.cli.profiles import profiles
from agent.cli.report import report
from agent.cli.resume import resume
from agent.cli.run import run
from agent.cli.runs import runs
from agent.cli.show import show

__all__ = ["app", "main"]

_TYPER_INTERRUPTED = 130
"""What typer ends with on Ctrl-C outside of a run."""

app = typer.Typer(
    name="vcagent",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Brings a host to the state a profile asks for, runs the benchmark, "
    "and says whether the result counts.\n\n"
    "[bold]vcagent --profile PERF-CPU-MLPERF.yaml[/] runs a profile; all options: vcagent run --help.",
)
for command in (
    run,
    plan,
    resume,
    runs,
    report,
    show,
    profiles,
    facts,
    doctor,
    clean,
    parse,
    diagnose,
    baseline,
    convert,
    bundle,
):
    app.command()(command)
app.add_typer(fleet, name="fleet")


def _arguments(arguments: list[str]) -> list[str]:
    """The arguments with what may be left out: ``run``, and the value of ``--clean``."""
    arguments = ["--clean=all" if argument == "--clean" else argument for argument in _expanded(arguments)]
    if arguments and arguments[0].startswith("-") and arguments[0] not in ("-h", "--help", "--version"):
        return ["run", *arguments]
    return arguments


_TAKES_AT = ("--limit", "-l")
"""Options whose own values may begin with ``@``."""


def _expanded(arguments: list[str]) -> list[str]:
    """The arguments with those of response files in the place of ``@file``, as VirtualClient takes them.

    Blanks separate the words of a line, quotes hold them together; a line that begins with # is a comment.

    Raises:
        UsageError: if there is no such file, or a quote is not closed.
    """
    import shlex
    from pathlib import Path

    from agent.core.errors import UsageError

    expanded: list[str] = []
    for place, argument in enumerate(arguments):
        if not argument.startswith("@") or (place and arguments[place - 1] in _TAKES_AT):
            expanded.append(argument)
            continue
        path = Path(argument[1:]).expanduser()
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
            for line in lines:
                if not line.lstrip().startswith("#"):
                    expanded += shlex.split(line)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"the response file {path} cannot be read: {error}",
                remedy="write options and values in it, as on a command line",
            ) from error
    return expanded


def main() -> None:
    """Entry point of the console script; never shows a traceback for what a user can do wrong."""
    from agent.core.errors import ExitCode, VcagentError

    if sys.argv[1:] == ["--version"]:
        from agent import __version__

        print(f"vcagent {__version__}")
        return
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # Bytes that are no text in this locale would end as a traceback wherever they are written later.
    sys.argv[1:] = [os.fsencode(argument).decode("utf-8", "replace") for argument in sys.argv[1:]]
    try:
        app(args=_arguments(sys.argv[1:]))
    except VcagentError as error:
        from agent.cli.output import print_error

        print_error(error)
        sys.exit(error.exit_code)
    except SystemExit as end:
        if end.code == _TYPER_INTERRUPTED:
            sys.exit(ExitCode.INTERRUPTED)
        raise
