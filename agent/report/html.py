"""report.html and one page for each case: what happened, what it means and what to change."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from agent.core.errors import ExitCode
from agent.core.safe_files import replace_text
from agent.report import page_filters
from agent.report.figures import Figure, host_figures
from agent.report.page_sections import HOST_FACTS, CaseSection, case_sections, identity, setting_groups
from agent.report.plots import Band
from agent.report.run_folder import RunResult, read_run
from agent.report.status import run_outcome, run_status
from agent.report.step_output import last_lines
from agent.store.journal import now
from agent.store.results import REPORT_FILE

if TYPE_CHECKING:
    from pathlib import Path

RUN_FILES = ("run.json", "metrics.jsonl", "metrics.csv", "rollup/run_rollup.json", "logs/vcagent.jsonl")
LOG_LINES = 60
"""Lines of its log that an action without a case shows."""
AROUND_CASE = 0.05
"""Time shown before and after a case, as a share of the case's duration."""


def write_report(run_dir: Path) -> Path:
    """Write ``report.html`` and a ``benchmark_report_<case>.html`` in each case's folder.

    A run that failed, was interrupted or is still running is reported up to its present state. Every page is
    self-contained: it loads nothing, from this host or any other, and runs no script.

    Args:
        run_dir: the run's folder.

    Returns:
        The path of ``report.html``.

    Raises:
        UsageError: if the folder does not contain a readable run.json.
    """
    run = read_run(run_dir)
    templates = page_environment()
    sections = case_sections(run)
    context: dict[str, Any] = {
        "run": run,
        "status": run_status(run.verdict, run.values),
        "made": now(),
        "percentile_names": page_filters.PERCENTILE_NAMES,
        "setting_groups": setting_groups(run),
        "host_facts": HOST_FACTS,
        "agent_version": page_filters.agent_version(run.values),
    }
    by_folder: dict[Path, list[CaseSection]] = {}
    for section in sections:
        if section.case.case_dir:
            by_folder.setdefault(section.case.case_dir, []).append(section)
    for folder, of_folder in by_folder.items():
        page = _case_page(folder)
        links = partial(page_filters.href, base=folder)
        text = templates.get_template("case.html.j2").render(
            context,
            sections=of_folder,
            href=links,
            report_href=links(run_dir / REPORT_FILE),
            host=_host_of_case(run, of_folder),
            host_note="While this case ran.",
        )
        replace_text(page, text)
    text = templates.get_template("report.html.j2").render(
        context,
        sections=sections,
        href=partial(page_filters.href, base=run_dir),
        case_page=_case_page,
        name=run.profile.get("name") or run.run_id,
        description=run.profile.get("description") or "",
        outcome=run_outcome(run.values),
        identity=identity(run, sections),
        nothing_measured=_nothing_measured(run),
        actions=[(step, last_lines(step.log, LOG_LINES)) for step in run.plain_actions],
        others=run.others,
        host=host_figures(run.host, bands=_bands(run)),
        host_note="Shaded: while a case ran." if any(case.start for case in run.cases) else "",
        longest_step_s=max((step.duration_s or 0 for step in run.steps), default=0),
        files=[run_dir / name for name in RUN_FILES if (run_dir / name).is_file()],
    )
    replace_text(run_dir / REPORT_FILE, text)
    return run_dir / REPORT_FILE


@cache
def page_environment(*packages: str) -> Environment:
    """Return the environment that renders pages; it compiles each template once in a process.

    Args:
        packages: packages with their own templates, in addition to the common ones.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (*packages, "agent.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(page_filters.FILTERS)
    return environment


def _nothing_measured(run: RunResult) -> str:
    """Return why a run has neither a case nor an action that ran."""
    if run.values.get("exit_code") != ExitCode.OK:
        return "The run ended before an action gave a result."
    if any(step.status == "done" for step in run.steps):
        return "The profile prepares this host and measures nothing: the steps below say what was done."
    return "The profile measures nothing, and the host was already as it asks."


def _case_page(folder: Path) -> Path:
    return folder / f"benchmark_report_{folder.name}.html"


def _bands(run: RunResult) -> list[Band]:
    return [
        Band(run.host.seconds(case.start), run.host.seconds(case.end), case.scenario)
        for case in run.cases
        if case.start and case.end
    ]


def _host_of_case(run: RunResult, sections: list[CaseSection]) -> list[Figure]:
    bands = [band for band in _bands(run) if band.name in {section.case.scenario for section in sections}]
    if not bands:
        return []
    start_s, end_s = min(band.start for band in bands), max(band.end for band in bands)
    around_s = (end_s - start_s) * AROUND_CASE
    return host_figures(run.host, start_s=start_s - around_s, end_s=end_s + around_s, bands=bands)
