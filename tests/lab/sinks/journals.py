"""Journals with many records, for tests of sinks."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from agent.core.records import MetricRecord, Relativity
from agent.sinks import SinkContext
from agent.store.journal import Journal
from agent.store.results import JOURNAL

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["filled"]

HOST = {"version": "1.0", "platform": "linux-x64", "system": "lab"}


def filled(folder: Path, count: int, *, metrics: int = 50, age: timedelta = timedelta(minutes=1)) -> Journal:
    """Return a run's journal whose records have the values 0, 1, 2, …"""
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / JOURNAL)
    context = journal.add_context(
        {
            "run_id": "r1", "experiment_id": "E1", "client_id": "h1", "profile": "P", "system": "lab",
            "metadata": {"team": "a"}, "tool_results": "the tool's own words",
            "metadata_host": {"computerName": "h1", "gpuName": "H200", "cpuArchitecture": "x86_64"},
            "metadata_runtime": {"appVersion": "1.0"}, "metadata_scenario": {"command": "run it"},
            "metadata_dependencies": {"cudaVersion": "12.8"},
        }
    )  # fmt: skip
    moment = (datetime.now(timezone.utc) - age).replace(microsecond=0)
    journal.add_records(
        MetricRecord(
            0, moment + timedelta(milliseconds=number // metrics), "E1", "r1", "h1", "P", "LoadGen", "6.0",
            "m/Server", moment, moment, f"m{number % metrics}", float(number), "seconds", Relativity.LOWER,
            metadata={"gpu_index": 0, "team": "a", "context_id": context},
        )
        for number in range(count)
    )  # fmt: skip
    return journal


def context_of(journal: Journal, mask: object = str) -> SinkContext:
    return SinkContext(journal.path.parent, "r1", HOST, journal.context, mask)  # type: ignore[arg-type]
