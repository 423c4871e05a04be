"""The program: commands by name; run is the one that is meant where none is named."""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
import typer.main
from typer.core import TyperGroup

from agent.cli.bundle import bundle
from agent.cli.clean import clean
from agent.cli.compare import compare
from agent.cli.convert import convert
from agent.cli.diagnose import baseline, diagnose
from agent.cli.doctor import doctor
from agent.cli.facts import facts
from agent.cli.fleet import app as fleet
from agent.cli.output import is_json_asked
from agent.cli.parse import parse
from agent.cli.plan import plan
from agent.cli.profiles import profiles
from agent.cli.query import query
from agent.cli.report import report
from agent.cli.resume import resume
from agent.cli.run import run
from agent.cli.runs import runs
from agent.cli.show import show
from agent.cli.telemetry import app as telemetry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.core.errors import VcagentError


class _Commands(TyperGroup):
    """The commands; what they say about a wrong option or argument gives no orders to a terminal."""

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        if named.get("resilient_parsing") and len(arguments) > 1:  # a shell completes the command line
            name, words, *others = arguments
            arguments = (name, _arguments(words), *others)
        with _disarmed():
            return super().make_context(*arguments, **named)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete commands and options; without a command also the options of ``run``."""
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-") and (run_command := self.get_command(ctx, "run")):
            found += run_command.shell_complete(ctx, incomplete)
        return found

    def invoke(self, *arguments: Any, **named: Any) -> Any:
        with _disarmed():
            return super().invoke(*arguments, **named)


_NO_ARGUMENTS = "NoArgsIsHelpError"
"""Typer's error that shows a group's help."""
_EXAMPLES = {
    "vcagent compare": "vcagent compare RUN_A RUN_B (vcagent runs lists the runs)",
    "vcagent diagnose": "vcagent diagnose results/fleet/latest",
    "vcagent baseline": "vcagent baseline results/fleet/latest --output baseline.json",
    "vcagent parse": "vcagent parse FOLDER, with the output of a tool",
    "vcagent convert": "vcagent convert PROFILE.json PROFILE.yaml",
    "vcagent bundle": "vcagent bundle --profile PERF-CPU-MLPERF --platform debian-12-x64",
    "vcagent submission build": "vcagent submission build RUN --submitter ORG --system-name NAME "
    "--output FOLDER",
    "vcagent submission check": "vcagent submission check FOLDER, with closed/ or open/ in it",
}
"""A call of each command that has required arguments."""


_SINKS = "records go to sinks: --sink NAME:settings"
_CONTENT = "files go to a sink: --sink content:URL"
_PACKAGES = "packages come from their publishers, or without a network from vcagent bundle"
_FLEET = "one profile on many hosts: vcagent fleet run -i INVENTORY"
_OF_VIRTUALCLIENT = {
    "exitwait": "it has no equivalent: vcagent ends when the run and its sinks are done",
    "wait": "it has no equivalent: vcagent ends when the run and its sinks are done",
    "logger": _SINKS,
    "eventhub": "records go to a sink: --sink eventhubs:…",
    "contentstore": _CONTENT,
    "content": _CONTENT,
    "contentpath": _CONTENT,
    "contentpathtemplate": _CONTENT,
    "packagestore": _PACKAGES,
    "packages": _PACKAGES,
    "layoutpath": _FLEET,
    "layout": _FLEET,
    "proxyapi": "it has no equivalent; proxies are those of the environment (https_proxy)",
    "debug": "--verbose shows more, --log-level debug logs more",
}
"""VirtualClient's options that vcagent does not have, with what to use; names without signs."""


@contextmanager
def _disarmed() -> Iterator[None]:
    """Give typer's own errors the form of all others, with control characters spelled out.

    Raises:
        UsageError: for an error of typer's, such as an unknown option.
    """
    try:
        yield
    except Exception as error:
        is_typers = hasattr(error, "format_message") and isinstance(getattr(error, "message", None), str)
        if not is_typers or (type(error).__name__ == _NO_ARGUMENTS and not is_json_asked(sys.argv[1:])):
            raise
        from agent.core.errors import UsageError
        from agent.core.terminal import printable

        error.message = printable(error.message)  # type: ignore[attr-defined]
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "vcagent"
        option = str(getattr(error, "option_name", ""))
        if known := _OF_VIRTUALCLIENT.get(option.replace("-", "").lower()):
            raise UsageError(f"No such option: {option}", remedy=known) from error
        example = f"such as: {_EXAMPLES[command]}; " if command in _EXAMPLES else ""
        listed = "commands" if hasattr(getattr(context, "command", None), "commands") else "options"
        raise UsageError(
            error.format_message(),  # type: ignore[attr-defined]
            remedy=f"{example}{command} -h lists the {listed}",
        ) from error


_TYPER_INTERRUPTED = 130
"""What typer ends with on Ctrl-C outside of a run."""

_COMMANDS = (
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
    compare,
    query,
    diagnose,
    baseline,
    convert,
    bundle,
)
_GROUPS = {"fleet": fleet, "telemetry": telemetry}


def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from agent import __version__

        print(f"vcagent {__version__}")
        raise typer.Exit


def _program(named: str = "") -> typer.Typer:
    """Return the program, with one command alone if it is named: typer takes time to build each."""
    program = typer.Typer(
        cls=_Commands,
        name="vcagent",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        help="Brings a host to the state that a profile describes, runs the benchmark, "
        "and judges whether the result counts.\n\n"
        "[bold]vcagent --profile PERF-CPU-MLPERF.yaml[/] runs a profile; all options: vcagent run --help.",
    )
    program.callback()(_root)
    for command in _COMMANDS:
        if named in {"", command.__name__}:
            program.command()(command)
    for name, group in _GROUPS.items():
        if named in {"", name}:
            program.add_typer(group, name=name)
    return program


@cache
def _own_command(named: str) -> Any:
    """Return the program with one of its own commands alone, ready to be called."""
    return typer.main.get_command(_program(named))


app = _program()
_OWN_OPTIONS = ("-h", "--help", "--version", "--install-completion", "--show-completion")
"""Options that are not those of ``run``."""

COMMANDS = "vcagent.commands"
"""The entry points of groups of commands that are built on the agent."""


def _command_line(arguments: list[str]) -> Any:
    """Return the program with the named command, or with all commands for help and for an unknown name."""
    named = arguments[0] if arguments else "--help"
    if named in _GROUPS or named in {command.__name__ for command in _COMMANDS}:
        return _own_command(named)
    program = _program()
    _add_others(program, named)
    return typer.main.get_command(program)


def _add_others(program: typer.Typer, named: str) -> None:
    """Add the groups of commands of other parts and distributions: the one that is named, or all for help."""
    from importlib.metadata import entry_points

    from agent.cli.output import say
    from agent.core.plug_ins import PlugInError, load_plug_in

    for point in entry_points(group=COMMANDS):
        if named in {*_OWN_OPTIONS, point.name}:
            try:
                program.add_typer(load_plug_in(point, "the command"), name=point.name)
            except PlugInError as error:
                if point.name == named:
                    raise
                say(f"warning: {error.message}", error=True)


_PROFILE_ENDINGS = (".yaml", ".yml", ".json")
"""A first argument that ends so is a profile, not a command."""


def _arguments(arguments: list[str]) -> list[str]:
    """Return the arguments with defaults filled in: ``run``, and the value of ``--clean``."""
    arguments = _expanded(arguments)
    if "--clean" in arguments:
        arguments = _with_targets(arguments)
    if not arguments or arguments[0] in _OWN_OPTIONS:
        return arguments
    if arguments[0].startswith("-") or arguments[0].lower().endswith(_PROFILE_ENDINGS):
        return ["run", *arguments]
    return arguments


def _with_targets(arguments: list[str]) -> list[str]:
    """Return the arguments; ``--clean`` has the targets that follow it as a word of their own, or all."""
    from agent.run.cleaning import TARGETS

    found: list[str] = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if argument == "--clean":
            found.append("--clean=all")
        elif before == "--clean" and set(argument.lower().split(",")) <= set(TARGETS):
            found[-1] = f"--clean={argument}"
        else:
            found.append(argument)
    return found


class _Forgiving(io.RawIOBase):
    """A stream to which everything can be written: what nobody reads, or a full disk takes, is dropped.

    What a run says is not what it is: a closed or full standard output changes no exit code.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        with suppress(OSError):
            while left:
                left = left[os.write(self._descriptor, left) :]
        return size


def _use_streams() -> None:
    """Have standard streams that are open and never fail."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed: the next file that is opened must not take its place
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        stream, own = getattr(sys, name), getattr(sys, f"__{name}__")
        if stream is not own:  # somebody listens in: a test
            continue
        descriptor = {"stdout": 1, "stderr": 2}[name]
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
        encoding = getattr(stream, "encoding", None) or "utf-8"
        buffer = io.BufferedWriter(_Forgiving(descriptor))
        line_buffering = name == "stderr" or os.isatty(descriptor)
        setattr(
            sys, name, io.TextIOWrapper(buffer, encoding, errors="replace", line_buffering=line_buffering)
        )


_TAKES_AT = ("--limit", "-l")
"""Options whose own values may begin with ``@``."""


def _expanded(arguments: list[str]) -> list[str]:
    """Return the arguments with those of response files in place of ``@file``, as in VirtualClient.

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

    if sys.argv[1:2] == ["fleet-host"]:  # this host's end of a fleet run, as the bundle's program has it
        from agent.fleet.remote.entry import main as serve_controller

        sys.exit(serve_controller(sys.argv[2:]))
    _use_streams()
    if sys.argv[1:] == ["--version"]:
        from agent import __version__

        print(f"vcagent {__version__}")
        return
    # Bytes that are not text in this locale would end as a traceback wherever they are written later.
    sys.argv[1:] = [os.fsencode(argument).decode("utf-8", "replace") for argument in sys.argv[1:]]
    as_json = is_json_asked(sys.argv[1:])
    if os.environ.get("NO_COLOR"):  # rich would still write bold text
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = None
    try:
        arguments = _arguments(sys.argv[1:])
        _command_line(arguments)(args=arguments, prog_name="vcagent")
    except VcagentError as error:
        _end_with(error, as_json=as_json)
    except SystemExit as end:
        if end.code == _TYPER_INTERRUPTED and as_json:
            from agent.core.errors import InterruptedRunError

            _end_with(InterruptedRunError("interrupted", remedy="call the command again"), as_json=True)
        if end.code == _TYPER_INTERRUPTED:
            sys.exit(ExitCode.INTERRUPTED)
        raise
    except Exception as error:
        from agent.core.errors import HostError, UsageError, unexpected

        known = unexpected(error, "vcagent")
        if not (as_json or isinstance(known, (HostError, UsageError))):  # a defect: its traceback tells where
            raise
        _end_with(known, as_json=as_json)


def _end_with(error: VcagentError, *, as_json: bool) -> NoReturn:
    """Print an error, for people and if asked for programs, and end with its exit code."""
    from agent.cli.output import print_error, print_error_document

    if as_json:
        print_error_document(error)
    print_error(error)
    sys.exit(error.exit_code)
