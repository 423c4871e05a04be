"""Output of a run for people and programs: the page, the summaries, the table in the terminal."""

from agent.report.case_summary import write_case_summary
from agent.report.html import REPORT_FILE, write_report
from agent.report.plan_text import render_plan
from agent.report.rollup import write_rollup
from agent.report.terminal import render_result

__all__ = [
    "REPORT_FILE",
    "render_plan",
    "render_result",
    "write_case_summary",
    "write_report",
    "write_rollup",
]
