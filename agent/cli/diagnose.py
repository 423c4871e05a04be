"""``vcagent diagnose`` and ``vcagent baseline``: which hosts are sick, and what healthy ones measure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli.options import AsJson, ResultsDir
from agent.cli.output import print_document, say

if TYPE_CHECKING:
    from agent.diagnosis.diagnosis import Diagnosis
    from agent.diagnosis.rules import Rule

Recorded = Annotated[
    list[Path],
    typer.Argument(help="Ids or folders of runs or fleet runs, files of records, or SuperBench's results."),
]
Rules = Annotated[
    Path | None,
    typer.Option(
        "--rules", help="File of rules, vcagent's or SuperBench's.", show_default="worse than chance explains"
    ),
]
GroupBy = Annotated[
    str | None,
    typer.Option(
        "--group-by",
        help="Compare hosts that have this fact in common, such as kernel or distribution.version.",
        show_default="models and number of GPUs",
    ),
]


def diagnose(
    runs: Recorded,
    rules: Rules = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            help="File of normal values, from vcagent baseline.",
            show_default="made from these hosts",
        ),
    ] = None,
    group_by: GroupBy = None,
    results_dir: ResultsDir = Path("results"),
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    as_json: AsJson = False,
) -> None:
    """Name the hosts that are sick, with the numbers that show it.

    The exit code is 0 if every metric of every host was judged and is good, 10 if not.
    """
    from agent.core.errors import ExitCode
    from agent.diagnosis.baseline import read_baselines
    from agent.diagnosis.groups import group_hosts, read_facts
    from agent.diagnosis.judging import diagnose as judged
    from agent.diagnosis.reading import read_observations, read_text

    judges = _rules(rules)
    runs = [_folder_of(run, results_dir) for run in runs]
    observed = read_observations(runs)
    diagnosis = judged(
        observed,
        judges,
        read_baselines(read_text(baseline), str(baseline)) if baseline else None,
        group_hosts(tuple(observed.hosts), read_facts(runs), group_by),
    )
    if as_json:
        from agent.store.command_documents import DiagnoseDocument

        print_document(DiagnoseDocument, diagnosis.to_json())
    elif as_markdown:
        from agent.diagnosis.table import to_markdown

        say(to_markdown(diagnosis), end="")
    else:
        _show(diagnosis)
    raise typer.Exit(ExitCode.OK if diagnosis.is_good else ExitCode.FLEET_PARTIAL)


def _folder_of(run: Path, results_dir: Path) -> Path:
    """Return what a path or the id of a run or fleet run, or the beginning of one, stands for."""
    from agent.fleet.record import fleet_folder
    from agent.store.results import ResultsFolder

    if run.exists() or len(run.parts) > 1:
        return run
    for folder in (fleet_folder(results_dir), ResultsFolder(results_dir)):
        if any(path.name.startswith(run.name) for path in folder.runs()):
            return folder.find(run.name)
    return run


def baseline(
    runs: Recorded,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    rules: Annotated[
        Path | None,
        typer.Option(
            "--rules", help="Leave out hosts that violate the rules of this file.", show_default=False
        ),
    ] = None,
    group_by: GroupBy = None,
    least_hosts: Annotated[
        int, typer.Option("--least-hosts", min=1, help="Number of hosts that a metric needs for a baseline.")
    ] = 4,
    results_dir: ResultsDir = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Write the baseline of healthy hosts: median and MAD of each metric, without outliers."""
    from agent.core.counts import count_of
    from agent.core.errors import UsageError, host_errors
    from agent.diagnosis.baseline import baseline_to_json, make_baselines
    from agent.diagnosis.groups import group_hosts, read_facts
    from agent.diagnosis.reading import read_observations
    from agent.store.results import write_json

    runs = [_folder_of(run, results_dir) for run in runs]
    observed = read_observations(runs)
    groups = group_hosts(tuple(observed.hosts), read_facts(runs), group_by)
    if len(kinds := sorted(set(groups.values()))) > 1:
        raise UsageError(
            f"the hosts are of {len(kinds)} kinds: {'; '.join(kinds)}",
            remedy="name the runs of hosts of one kind",
        )
    found = make_baselines(observed, _rules(rules) if rules else (), least_hosts)
    if not found:
        raise UsageError(
            f"no metric has {least_hosts} hosts that are alike",
            remedy="name the runs of more hosts, or fewer with --least-hosts",
        )
    content = baseline_to_json(found)
    with host_errors(str(output)):
        write_json(output, content)
    if as_json:
        from agent.store.command_documents import BaselineDocument

        print_document(BaselineDocument, content)
        return
    left = len(observed.metrics) - len(found)
    say(f"{output}: {count_of(len(found), 'metric')}" + (f"; {left} without a baseline" if left else ""))


def _rules(path: Path | None) -> tuple[Rule, ...]:
    from agent.diagnosis.reading import read_text
    from agent.diagnosis.rules import default_rules, read_rules

    return read_rules(read_text(path), str(path)) if path else default_rules()


def _show(diagnosis: Diagnosis) -> None:
    from rich.text import Text

    from agent.core.terminal import safe_console
    from agent.diagnosis.table import print_defects

    screen = safe_console()
    print_defects(diagnosis, screen)
    screen.print(Text(diagnosis.summary()))
