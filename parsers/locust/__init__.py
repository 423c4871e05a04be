"""Reads Locust's statistics as CSV, and LocustLoad's tests, whose users time streamed replies themselves."""

from __future__ import annotations

from agent.core.records import Parser
from parsers.locust import load, tables

__all__ = ["LOAD_PARSER", "PARSER"]

PARSER = Parser(
    name="locust",
    description="locust: PREFIX_stats.csv, with PREFIX_failures.csv and PREFIX_stats_history.csv beside it",
    recognise=tables.recognise,
    parse=tables.parse,
)
LOAD_PARSER = Parser(
    name="locust_load",
    description="a load test of LocustLoad: load.json and requests-*.jsonl",
    recognise=load.recognise,
    parse=load.parse,
)
