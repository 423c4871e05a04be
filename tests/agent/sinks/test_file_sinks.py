"""No record is lost or doubled, wherever a write is cut short."""

import csv
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.core.records import MetricRecord
from agent.sinks import CsvSink, JsonlSink, Sink, feed
from agent.sinks.csv_file import COLUMNS
from agent.store.journal import Journal
from tests.agent.store.test_journal import record

# The header line of a metrics.csv that VirtualClient wrote.
VIRTUALCLIENT_HEADER = (
    "Timestamp,ExperimentId,ExecutionSystem,ProfileName,ClientId,ToolName,ToolVersion,ScenarioName,"
    "ScenarioStartTime,ScenarioEndTime,MetricName,MetricValue,MetricUnit,MetricCategorization,MetricDescription,"
    "MetricRelativity,MetricVerbosity,AppHost,AppName,AppVersion,OperatingSystemPlatform,PlatformArchitecture,"
    "SeverityLevel,OperationId,OperationParentId,Metadata,Metadata_Host,ToolResults,Tags"
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.sqlite")
    yield journal
    journal.close()


def jsonl_values(path: Path) -> list[float]:
    return [json.loads(line)["value"] for line in path.read_text().splitlines()]


def test_records_arrive_once_over_several_feeds(journal: Journal, tmp_path: Path) -> None:
    sinks = [JsonlSink(tmp_path / "m.jsonl"), CsvSink(tmp_path / "m.csv", {})]
    journal.add_records([record(1), record(2)])
    assert feed(journal, sinks) == []
    assert feed(journal, sinks) == []
    journal.add_records([record(3)])
    assert feed(journal, sinks) == []
    assert jsonl_values(tmp_path / "m.jsonl") == [1, 2, 3]
    with (tmp_path / "m.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["MetricValue"] for row in rows] == ["1", "2", "3"]


def test_what_was_written_but_not_noted_is_written_once(journal: Journal, tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "m.jsonl")
    journal.add_records([record(1)])
    feed(journal, [sink])
    with (tmp_path / "m.jsonl").open("a") as file:
        file.write('{"value": 2.0, "half a reco')
    journal.add_records([record(2)])
    feed(journal, [JsonlSink(tmp_path / "m.jsonl")])
    assert jsonl_values(tmp_path / "m.jsonl") == [1, 2]


class BrokenSink(Sink):
    name = "broken"

    def __init__(self) -> None:
        self.broken = True
        self.values: list[float] = []

    def write(self, records: list[MetricRecord], position: int) -> int:
        if self.broken:
            raise OSError("connection refused")
        self.values += [each.value for each in records]
        return position + len(records)


def test_a_sink_that_fails_is_named_and_gets_its_records_later(journal: Journal, tmp_path: Path) -> None:
    broken, sound = BrokenSink(), JsonlSink(tmp_path / "m.jsonl")
    journal.add_records([record(1), record(2)])
    assert feed(journal, [broken, sound]) == ["records could not be written to broken: connection refused"]
    assert jsonl_values(tmp_path / "m.jsonl") == [1, 2]
    broken.broken = False
    assert feed(journal, [broken, sound]) == []
    assert broken.values == [1, 2]


def test_csv_has_virtualclients_columns_and_quotes_every_field(journal: Journal, tmp_path: Path) -> None:
    assert ",".join(COLUMNS) == VIRTUALCLIENT_HEADER
    journal.add_records([record(0.125)])
    feed(journal, [CsvSink(tmp_path / "m.csv", {"version": "1.2", "platform": "linux-x64"})])
    header, line = (tmp_path / "m.csv").read_text().splitlines()
    assert header == ",".join(f'"{name}"' for name in COLUMNS)
    assert line.count('","') == len(COLUMNS) - 1
    row = dict(zip(COLUMNS, next(csv.reader([line])), strict=True))
    assert row["MetricValue"] == "0.125"
    assert row["Timestamp"] == "2026-04-01T12:00:00.123456Z"
    assert row["MetricRelativity"] == "LowerIsBetter"
    assert row["PlatformArchitecture"] == "linux-x64"
    assert row["Metadata"] == 'gpu=0;note=say "hi", twice'
    assert row["Tags"] == "a,b"


def test_formulas_are_disarmed_in_csv_and_numbers_stay_numbers(journal: Journal, tmp_path: Path) -> None:
    planted = dataclasses.replace(
        record(-0.125), tool_name="=HYPERLINK(1)", scenario="@x", metadata={"a": "b"}, tags=("-1+1",)
    )
    journal.add_records([planted])
    feed(journal, [CsvSink(tmp_path / "m.csv", {"version": "-1", "platform": "linux-x64"})])
    with (tmp_path / "m.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["ToolName"] == "'=HYPERLINK(1)"
    assert row["ScenarioName"] == "'@x"
    assert row["Tags"] == "'-1+1"
    assert row["MetricValue"] == "-0.125"
    assert row["AppVersion"] == "-1"


def test_a_run_without_records_leaves_a_header_and_an_empty_jsonl(journal: Journal, tmp_path: Path) -> None:
    feed(journal, [JsonlSink(tmp_path / "m.jsonl"), CsvSink(tmp_path / "m.csv", {})])
    assert (tmp_path / "m.jsonl").read_text() == ""
    assert len((tmp_path / "m.csv").read_text().splitlines()) == 1


def test_a_file_that_lost_its_end_is_written_anew(journal: Journal, tmp_path: Path) -> None:
    """Simulate a crash of the host, which loses data not yet on the disk."""
    journal.add_records([record(1), record(2)])
    feed(journal, [JsonlSink(tmp_path / "m.jsonl"), CsvSink(tmp_path / "m.csv", {})])
    (tmp_path / "m.jsonl").write_text("")
    (tmp_path / "m.csv").unlink()
    feed(journal, [JsonlSink(tmp_path / "m.jsonl"), CsvSink(tmp_path / "m.csv", {})])
    assert jsonl_values(tmp_path / "m.jsonl") == [1, 2]
    assert len((tmp_path / "m.csv").read_text().splitlines()) == 3


def test_half_a_character_of_a_tool_stops_no_file(journal: Journal, tmp_path: Path) -> None:
    odd = record(7.0)
    odd.scenario = "half a pair \ud800"
    journal.add_records([odd, record(8.0)])
    sinks = [JsonlSink(tmp_path / "m.jsonl"), CsvSink(tmp_path / "m.csv", {})]
    assert feed(journal, sinks) == []
    assert jsonl_values(tmp_path / "m.jsonl")[-2:] == [7.0, 8.0]
    assert '"half a pair ?"' in (tmp_path / "m.csv").read_text(encoding="utf-8")
