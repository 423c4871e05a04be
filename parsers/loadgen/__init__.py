"""Reads MLPerf LoadGen's logs, versions 1.0 to 6.x: numbers, and a verdict stricter than LoadGen's own."""

from __future__ import annotations

from agent.core.records import Parser
from parsers.loadgen.detail import DETAIL_NAME, DetailLog, read_detail
from parsers.loadgen.folder import parse, parse_folder, recognise
from parsers.loadgen.settings import compare_settings
from parsers.loadgen.summary import SummaryLog, read_summary
from parsers.loadgen.verdict import ACCURACY_NOT_JUDGED

__all__ = [
    "ACCURACY_NOT_JUDGED",
    "DETAIL_NAME",
    "PARSER",
    "DetailLog",
    "SummaryLog",
    "compare_settings",
    "parse_folder",
    "read_detail",
    "read_summary",
]

PARSER = Parser(
    name="loadgen",
    description="MLPerf LoadGen: mlperf_log_detail.txt and mlperf_log_summary.txt",
    recognise=recognise,
    parse=parse,
)
