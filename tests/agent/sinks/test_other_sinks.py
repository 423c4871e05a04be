"""Copies of files, content stores, VirtualClient's events, and missing packages."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from typing import TYPE_CHECKING

import pytest

from agent.core.errors import UsageError
from agent.sinks import SinkContext, flush, open_sinks, settings
from agent.sinks.content import open_content
from agent.sinks.event_hubs import event_of
from agent.sinks.own_files import open_csv, open_jsonl
from agent.store.journal import Journal
from tests.agent.store.test_journal import record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = {"version": "1.0", "platform": "linux-x64"}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    (tmp_path / "run").mkdir()
    with Journal(tmp_path / "run" / "journal.sqlite") as journal:
        name = journal.add_context(
            {
                "system": "pipeline", "metadata": {"team": "a"}, "tool_results": "one\ntwo",
                "metadata_host": {"computerName": "h", "memoryBytes": 7, "parts": [{"type": "CPU"}]},
                "metadata_scenario": {"command": "run it"},
            }
        )  # fmt: skip
        one = record(1.5)
        one.metadata = {"gpu_index": 2, "team": "a", "context_id": name}
        journal.add_records([one])
        yield journal


def context_of(journal: Journal) -> SinkContext:
    def mask(text: str) -> str:
        return text.replace("sekret", "***")

    return SinkContext(journal.path.parent, "r", HOST, journal.context, mask)


def test_a_line_of_a_copy_has_its_whole_context(journal: Journal, tmp_path: Path) -> None:
    assert flush(journal, open_jsonl(str(tmp_path / "all"), context_of(journal)), wait_s=0) == ""
    (line,) = (tmp_path / "all" / "r.jsonl").read_text().splitlines()
    values = json.loads(line)
    assert values["value"] == 1.5
    assert values["context"]["metadata_host"]["parts"] == [{"type": "CPU"}]


def test_the_columns_of_the_context(journal: Journal, tmp_path: Path) -> None:
    assert flush(journal, open_csv(str(tmp_path / "all"), context_of(journal)), wait_s=0) == ""
    text = (tmp_path / "all" / "r.csv").read_text()
    assert len(text.splitlines()) == 2
    (row,) = csv.DictReader(text.splitlines())
    assert row["Metadata_Host"] == "computerName=h;memoryBytes=7"
    assert row["Metadata"] == "gpu_index=2;team=a"
    assert row["MetricCategorization"] == "GPU 2"
    assert row["ToolResults"] == "one\\ntwo"
    assert row["SeverityLevel"] == "2"


def test_an_event_is_virtualclient_s(journal: Journal) -> None:
    (one,) = journal.records_after(0)
    event = event_of(one, journal.context(str(one.metadata["context_id"])), HOST)
    assert list(event) == [
        "appName", "appHost", "itemType", "severityLevel", "message", "timestamp", "operation_Id",
        "operation_ParentId", "sdkVersion", "customDimensions",
    ]  # fmt: skip
    assert event["message"] == "LoadGen.ScenarioResult"
    assert event["severityLevel"] == 2
    assert event["timestamp"] == "2026-04-01T12:00:00.1234560Z"
    values = event["customDimensions"]
    assert values["executionProfile"] == "P (linux-x64)"
    assert values["metricVerbosity"] == "1"
    assert values["metricCategorization"] == "GPU 2"
    assert values["scenarioArguments"] == "run it"
    assert values["toolResults"] == "one\ntwo"
    assert values["metadata"] == {"team": "a"}
    assert values["metadata_metrics"] == {"gpu_index": 2}
    assert values["metadata_host"]["computerName"] == "h"
    assert None not in values.values()
    assert event == event_of(one, journal.context(str(one.metadata["context_id"])), HOST)


def test_files_in_a_content_store(journal: Journal, tmp_path: Path) -> None:
    run = journal.path.parent
    (run / "W" / "case").mkdir(parents=True)
    (run / "W" / "case" / "out.log").write_text("token sekret\nscore 1\n")
    (run / "W" / "case" / "model.bin").write_bytes(b"\0sekret")
    (run / "empty").touch()
    (run / "link").symlink_to("/etc/passwd")
    document = {
        "run_id": "R", "experiment_id": "E", "client_id": "H", "metadata": {"team": "a"},
        "profile": {"name": "P", "parameters": {"Threads": 4, "scenario": "not this"}},
        "cases": [{"scenario": "m/Server", "tool_name": "LoadGen", "case_dir": "W/case"}],
    }  # fmt: skip
    (run / "run.json").write_text(json.dumps(document))
    sink = open_content(str(tmp_path / "store"), context_of(journal))
    assert flush(journal, sink, wait_s=0) == ""
    names = {path.relative_to(tmp_path / "store").as_posix() for path in (tmp_path / "store").rglob("*.*")}
    place = "e/h/r/w/case/out.log"
    assert {name for name in names if not name.endswith(".manifest.json")} == {
        place, "e/h/r/w/case/model.bin", "e/h/r/run.json",
    }  # fmt: skip
    assert (tmp_path / "store" / place).read_text() == "token ***\nscore 1\n"
    assert (tmp_path / "store" / "e/h/r/w/case/model.bin").read_bytes() == b"\0sekret"
    manifest = json.loads((tmp_path / "store" / f"{place}.manifest.json").read_text())
    assert manifest["agentId"] == "H"
    assert manifest["toolName"] == "LoadGen"
    assert manifest["scenario"] == "m/Server"
    assert manifest["Threads"] == 4
    assert manifest["team"] == "a"
    assert manifest["blobPath"] == place
    assert manifest["sha256"] == hashlib.sha256(b"token ***\nscore 1\n").hexdigest()


def test_a_file_that_a_store_never_takes_does_not_hold_the_others_back(
    journal: Journal, tmp_path: Path
) -> None:
    run = journal.path.parent
    (run / "run.json").write_text(json.dumps({"run_id": "R", "experiment_id": "E", "client_id": "H"}))
    long = "a" * 250  # with the manifest's ending it is longer than a file system takes
    (run / long).write_text("content")
    sink = open_content(str(tmp_path / "store"), context_of(journal))
    assert flush(journal, sink, wait_s=0) == ""
    assert "File name too long" in journal.refused_pieces(sink.name)[long]
    assert (tmp_path / "store" / "e/h/r/run.json.manifest.json").is_file()
    (tmp_path / "file").touch()
    full = open_content(str(tmp_path / "file"), context_of(journal))
    assert flush(journal, full, wait_s=0) != "", "a store that is not there is tried again"
    assert journal.refused_pieces(full.name) == {}


def test_the_status_with_which_a_store_refuses(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class HttpResponseError(Exception):
        def __init__(self, status: int) -> None:
            super().__init__(f"status {status}")
            self.status_code = status

    answers = [403, 404, 429, 503, 413]

    def refuse(*_: object) -> None:
        try:
            raise HttpResponseError(answers.pop(0))
        except HttpResponseError as error:
            raise RuntimeError("Failed to upload block") from error

    run = journal.path.parent
    (run / "run.json").write_text(json.dumps({"run_id": "R", "experiment_id": "E", "client_id": "H"}))
    monkeypatch.setattr("agent.sinks.content.RemoteFolder.put_stream", refuse)
    sink = open_content(str(tmp_path / "store"), context_of(journal))
    for _ in answers[:-1]:
        assert "Failed to upload" in flush(journal, sink, wait_s=0)
        assert journal.refused_pieces(sink.name) == {}
    assert flush(journal, sink, wait_s=0) == ""
    assert list(journal.refused_pieces(sink.name)) == ["run.json"]


def test_parquet_is_partitioned_and_written_once(journal: Journal, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    from agent.sinks.parquet import open_parquet

    for _ in range(2):  # as if the first success had not been noted
        sink = open_parquet(str(tmp_path / "lake"), context_of(journal))
        journal.move_sink(sink.name, 0, 0)
        assert flush(journal, sink, wait_s=0) == ""
    (path,) = (tmp_path / "lake").rglob("*.parquet")
    assert path.relative_to(tmp_path / "lake").as_posix() == "experiment_id=e/r-000000000001.parquet"
    (row,) = parquet.read_table(path).to_pylist()
    assert row["value"] == 1.5
    assert json.loads(row["metadata_host"])["computerName"] == "h"
    assert row["system"] == "pipeline"


@pytest.mark.parametrize(
    ("sink", "extra", "module"),
    [
        ("otlp:http://h:4318", "otlp", "opentelemetry"),
        ("prometheus:127.0.0.1:9464", "prometheus", "prometheus_client"),
        ("parquet:/data", "parquet", "pyarrow"),
        ("content:s3://b/x", "content", "fsspec"),
        ("eventhubs:Endpoint=sb://n/;SharedAccessKeyName=a;SharedAccessKey=b", "eventhubs", "azure"),
    ],
)
def test_a_library_that_is_missing_is_named_with_the_command(
    sink: str, extra: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        assert name.startswith(module)
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(settings.importlib, "import_module", missing)
    with pytest.raises(UsageError, match="needs the Python package") as caught:
        open_sinks((sink,), SinkContext(tmp_path, "r"))
    assert f"pip install '.[{extra}]'" in str(caught.value)


def test_a_secret_may_stay_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", str(tmp_path / "there"))
    (sink,) = open_sinks(("jsonl:${PLACE}",), SinkContext(tmp_path, "r"))
    assert sink.name == f"jsonl {tmp_path}/there/r.jsonl"
    with pytest.raises(UsageError, match="variable NOT_SET"):
        open_sinks(("jsonl:${NOT_SET}",), SinkContext(tmp_path, "r"))


def test_a_row_that_parquet_cannot_hold_takes_no_other_along(journal: Journal, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    from agent.sinks.parquet import open_parquet

    bad = [record(float(value)) for value in range(10, 15)]
    bad[2].scenario = "half a pair \ud800"
    journal.add_records(bad)
    sink = open_parquet(str(tmp_path / "store"), context_of(journal))
    assert flush(journal, sink, wait_s=0) == ""
    ((refused, _),) = journal.refused(sink.name)
    assert refused.value == 12.0
    read = [parquet.read_table(file) for file in sorted((tmp_path / "store").rglob("*.parquet"))]
    assert sorted(value for table in read for value in table["value"].to_pylist()) == [1.5, 10, 11, 13, 14]


def test_a_name_that_is_not_utf_8_stops_no_other_file(journal: Journal, tmp_path: Path) -> None:
    run = journal.path.parent
    (run / "run.json").write_text(json.dumps({"run_id": "R", "experiment_id": "E", "client_id": "H"}))
    (run / os.fsdecode(b"caf\xe9.log")).write_text("content")
    sink = open_content(str(tmp_path / "store"), context_of(journal))
    assert flush(journal, sink, wait_s=0) == ""
    assert (tmp_path / "store" / "e/h/r/caf\\xe9.log").read_text() == "content"
    assert (tmp_path / "store" / "e/h/r/run.json.manifest.json").is_file()
    assert flush(journal, sink, wait_s=0) == ""
