"""The host, the runtime and the scenario in records."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

from agent.facts.base import Facts
from agent.store.documents import ContextDocument
from agent.store.metric_lines import read_records
from tests.agent.conftest import records_of
from tests.agent.facts.recorded_host import RecordedHost

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.run.session import FinishedRun

OLD_KEYS = {
    "record_id", "timestamp", "experiment_id", "run_id", "client_id", "profile", "tool_name", "tool_version",
    "scenario", "scenario_start", "scenario_end", "metric", "value", "unit", "relativity", "verbosity",
    "description", "tags", "metadata",
}  # fmt: skip
"""Keys of a line before records had contexts; readers of that time reject any other key."""


def test_every_record_names_its_context(run_profile: Callable[..., FinishedRun]) -> None:
    finished = run_profile(
        {
            "Monitors": [{"Type": "HostMonitor", "Parameters": {"Interval": "00:00:00.1"}}],
            "Actions": [{"Type": "Measuring", "Parameters": {"ApiKey": "sekret-value-1", "Seconds": 0.3}}],
        },
        system="pipeline",
        metadata={"team": "a"},
    )
    lines = (finished.run_dir / "contexts.jsonl").read_text().splitlines()
    contexts = {each.context_id: each for each in map(ContextDocument.model_validate_json, lines)}
    records = records_of(finished)
    assert {record["metadata"]["context_id"] for record in records} == set(contexts)
    assert {*records[0]} == OLD_KEYS
    assert len(list(read_records(finished.run_dir / "metrics.jsonl"))) == len(records)

    (answer,) = [record for record in records if record["metric"] == "answer"]
    context = contexts[answer["metadata"]["context_id"]]
    assert context.severity_level == 2
    assert context.system == "pipeline"
    assert context.metadata == {"team": "a"}
    assert context.metadata_host["memoryBytes"] > 0
    assert context.metadata_host["osFamily"] == "Unix"
    assert context.metadata_runtime["profiles"] == ["TEST"]
    assert context.metadata_scenario["type"] == "Measuring"
    assert context.metadata_scenario["toolName"] == "Measuring"
    assert context.metadata_scenario["profileIteration"] == 1
    assert "sekret-value-1" not in "".join(lines)
    watching = [record for record in records if record["tool_name"] == "HostMonitor"]
    assert watching
    assert contexts[watching[0]["metadata"]["context_id"]].metadata_scenario == {}

    with (finished.run_dir / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all("memoryBytes=" in row["Metadata_Host"] for row in rows)
    assert {row["SeverityLevel"] for row in rows} == {"2"}


def test_the_tool_s_own_words(run_profile: Callable[..., FinishedRun]) -> None:
    rule = {"Name": "score", "Regex": r"score (?P<value>\d+)", "Unit": "count"}
    finished = run_profile(
        {
            "Actions": [
                {"Type": "ExecuteCommand", "Parameters": {"Command": "echo score 4", "Metrics": [rule]}}
            ]
        }
    )
    context = json.loads((finished.run_dir / "contexts.jsonl").read_text().splitlines()[0])
    assert "score 4" in context["tool_results"]
    assert context["metadata_scenario"]["command"] == "echo score 4"


def test_a_host_that_says_nothing_loses_no_record() -> None:
    from agent.facts.host_metadata import gpu_runtime, metadata_dependencies, metadata_host

    facts = Facts(RecordedHost())
    host = metadata_host(facts)
    assert host["osFamily"] == "Unix"
    assert not {"gpuCount", "cpuSockets", "cloudProvider"} & set(host)
    assert None not in host.values()
    assert gpu_runtime(facts) == []
    assert "gpuVendor" not in metadata_dependencies(facts)
