"""Provide ``vcagent submission``: build an MLPerf submission's tree from runs, and check a tree."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.options import AsJson, PackageDir, ResultsDir

app = typer.Typer(no_args_is_help=True, help="Build and check MLPerf Inference submissions.")
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
NEWEST_ROUND = "v6.1"
Round = Annotated[str, typer.Option("--round", help="Round of the submission.")]


class Official(str, Enum):
    """Use of the official checker."""

    AUTO = "auto"
    REQUIRED = "required"
    FETCH = "fetch"
    OFF = "off"


class Division(str, Enum):
    """Division of a submission."""

    CLOSED = "closed"
    OPEN = "open"


@app.command()
def check(
    tree: Annotated[Path, typer.Argument(help="The folder that contains closed/ or open/.")],
    mlperf_round: Round = NEWEST_ROUND,
    submitter: Annotated[
        str, typer.Option("--submitter", help="Check only this submitter.", show_default=False)
    ] = "",
    official: Annotated[
        Official,
        typer.Option(
            "--official",
            help="The official checker: run it if available, require it, fetch it first, or skip it.",
        ),
    ] = Official.AUTO,
    package_dir: PackageDir = None,
    as_json: AsJson = False,
) -> None:
    """Judge a submission by vcagent's own rules and by the official checker, side by side.

    Ends with 0 if both accept it (only vcagent's if the official checker is not available), else with 7.
    """
    from actions.submission.checking import check_tree
    from actions.submission.official import run_checker
    from actions.submission.rounds import find_round
    from actions.submission.tree import submitters
    from agent.core.errors import ExitCode, UsageError, host_errors

    if not tree.is_dir():
        raise UsageError("the folder does not exist", where=str(tree), remedy="give the submission's root")
    chosen = find_round(mlperf_round)
    checkout = _checkout(official, package_dir)
    with host_errors(str(tree)):
        checked = check_tree(tree.resolve(), chosen, submitter=submitter)
    names = [submitter] if submitter else list(dict.fromkeys(each.name for each in submitters(tree)))
    verdict = run_checker(checkout, tree, chosen.name, submitters=names) if checkout else None
    if as_json:
        from actions.submission.table import check_to_json
        from agent.cli.output import print_document
        from agent.store.command_documents import SubmissionCheckDocument

        print_document(SubmissionCheckDocument, check_to_json(checked, verdict, chosen.name))
    else:
        from actions.submission.table import print_check
        from agent.core.terminal import safe_console

        console = safe_console(highlight=False, soft_wrap=True)
        print_check(checked, verdict, console)
        if verdict is None and official is not Official.OFF:
            console.print(_not_there())
    is_good = checked.is_accepted and (verdict is None or verdict.has_passed)
    raise typer.Exit(ExitCode.OK if is_good else ExitCode.RESULT_INVALID)


@app.command()
def build(
    runs: Annotated[list[str], typer.Argument(help="Runs: ids, beginnings of ids, or folders.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The tree's folder; must be new.")],
    submitter: Annotated[str, typer.Option("--submitter", help="The submitter's name.")],
    system_name: Annotated[str, typer.Option("--system-name", help="The system's name.")],
    division: Annotated[Division, typer.Option("--division")] = Division.CLOSED,
    system_type: Annotated[
        str, typer.Option("--system-type", help="datacenter, edge, or datacenter,edge.")
    ] = "datacenter",
    mlperf_round: Round = NEWEST_ROUND,
    description: Annotated[
        Path | None,
        typer.Option(
            "--description",
            help="YAML or JSON file: fields of the system description, and measurements with its own fields.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="field=value, or measurements.field=value.", show_default=False),
    ] = None,
    benchmark: Annotated[
        list[str] | None,
        typer.Option(
            "--benchmark",
            help="MODEL=BENCHMARK: the benchmark for a run's model, or that it stands for (open).",
            show_default=False,
        ),
    ] = None,
    compliance: Annotated[
        Path | None,
        typer.Option(
            "--compliance",
            help="Folder with BENCHMARK/SCENARIO/TESTxx of compliance runs.",
            show_default=False,
        ),
    ] = None,
    power: Annotated[
        Path | None,
        typer.Option(
            "--power",
            help="Folder with BENCHMARK/SCENARIO of power measurements: what MLCommons' power client wrote.",
            show_default=False,
        ),
    ] = None,
    results_dir: ResultsDir = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Build a submission's tree from runs: only valid results, with a list of missing ones.

    Ends with 0 if nothing is missing, else with 7.
    """
    from actions.submission.building import Order
    from actions.submission.building import build as built
    from actions.submission.papers import SYSTEM_TYPES
    from actions.submission.rounds import LAYOUTS_SINCE, find_round
    from actions.submission.runs import cases_of
    from actions.submission.system_description import read_description
    from agent.core.errors import ExitCode, UsageError
    from agent.store.results import ResultsFolder

    chosen = find_round(mlperf_round)
    if chosen.name not in LAYOUTS_SINCE:
        raise UsageError(
            f"vcagent cannot build a tree for {chosen.name}", remedy=f"--round {' or '.join(LAYOUTS_SINCE)}"
        )
    for option, name in (("--submitter", submitter), ("--system-name", system_name)):
        if not _FOLDER_NAME.fullmatch(name):
            raise UsageError(
                f"{option}: {name!r} cannot name a folder", remedy="use letters, digits, . _ + and -"
            )
    if system_type not in SYSTEM_TYPES:
        raise UsageError(f"--system-type: {system_type!r}", remedy=f"one of {'; '.join(SYSTEM_TYPES)}")
    for option, path in (("--compliance", compliance), ("--power", power)):
        if path and not path.is_dir():
            raise UsageError(f"{option}: the folder does not exist", where=str(path))
    said, measurements = read_description(description, _pairs(settings, "--set", "field=value"))
    folder = ResultsFolder(results_dir)
    order = Order(
        output.absolute(), division.value, chosen, submitter, system_name, system_type, said, measurements,
        _pairs(benchmark, "--benchmark", "MODEL=BENCHMARK"), compliance, power,
    )  # fmt: skip
    made = built(order, cases_of([folder.find(run) for run in dict.fromkeys(runs)]))
    if as_json:
        from actions.submission.table import built_to_json
        from agent.cli.output import print_document
        from agent.store.command_documents import SubmissionBuildDocument

        print_document(SubmissionBuildDocument, built_to_json(made, order.output))
    else:
        from actions.submission.table import print_built
        from agent.core.terminal import safe_console

        print_built(made, order.output, safe_console(highlight=False, soft_wrap=True))
    raise typer.Exit(ExitCode.RESULT_INVALID if made.missing else ExitCode.OK)


def _pairs(texts: list[str] | None, option: str, form: str) -> dict[str, str]:
    """Return the names and values of an option.

    Raises:
        UsageError: if a text does not have the form name=value.
    """
    from agent.core.errors import UsageError

    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError(f"{option}: {text!r} does not have the form {form}", remedy=f"{option} '{form}'")
        found[name.strip()] = value.strip()
    return found


def _checkout(official: Official, package_dir: Path | None) -> Path | None:
    """Return the official checker's checkout, fetched if requested; None if the checker should not run.

    Raises:
        HostError: if the checker is required but not available.
    """
    import os

    from actions.submission.official import PROFILE, find_checkout
    from agent.core.errors import HostError
    from agent.facts.agent_paths import package_dir as default_package_dir

    if official is Official.OFF:
        return None
    folder = package_dir or default_package_dir(os.environ, root=os.geteuid() == 0)
    found = find_checkout(folder)
    if found is None and official is Official.FETCH:
        from actions.submission.fetching import fetch

        fetch(PROFILE, package_dir)
        found = find_checkout(folder)
    if found is None and official in {Official.REQUIRED, Official.FETCH}:
        raise HostError("the official checker is not available", remedy=_how_to_get_it())
    return found


def _how_to_get_it() -> str:
    from actions.submission.official import CHECKOUT_VARIABLE

    return f"set {CHECKOUT_VARIABLE} to a checkout of mlcommons/inference, or add --official fetch"


def _not_there() -> str:
    return f"official checker: not available; {_how_to_get_it()}"
