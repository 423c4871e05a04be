"""VirtualClient's metrics, outcomes and traces for Azure Event Hubs, with a stand-in for Azure's library."""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import UsageError
from agent.sinks import SinkContext, flush
from agent.sinks.agent_log import log_entries, log_parts
from agent.sinks.event_hubs import open_event_hubs
from agent.store.journal import Journal
from tests.agent.store.test_journal import record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONNECTION = "Endpoint=sb://hubs/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
LIMIT = "EventDataBatch has reached its size limit"
HOST = {"version": "1.0", "platform": "linux-x64"}
START, END = "2026-04-01T12:01:00+00:00", "2026-04-01T14:09:00+02:00"
RUN = {
    "run_id": "r", "experiment_id": "e", "client_id": "host", "profile": {"name": "P"},
    "metadata": {"team": "a"},
    "steps": [
        {"key": "1", "name": "run", "type": "LoadGenExecutor", "status": "done", "command": "run it",
         "start": START, "end": END},
        {"key": "2", "name": "install", "type": "DockerInstallation", "status": "failed", "start": START,
         "end": END},
        {"key": "3", "name": "never started", "type": "ExecuteCommand", "status": "pending"},
    ],
}  # fmt: skip
LOG = (
    {"timestamp": "2026-04-01T12:00:00Z", "level": "info", "event": "run started", "run_id": "r"},
    {"timestamp": "2026-04-01T12:09:00Z", "level": "warning", "event": "step ended", "step": "2",
     "status": "failed", "error": "no sekret"},
    {"timestamp": "2026-04-01T12:09:01Z", "level": "info", "event": "no steps", "type": "GpuSelection"},
)  # fmt: skip


class Hubs:
    """The events of each hub; a hub that is not there refuses."""

    def __init__(self) -> None:
        self.got: dict[str, list[dict[str, Any]]] = {}
        self.absent = ""
        self.error = "amqp:not-found"
        self.closed = 0
        self.largest = 1_000_000

    def check(self, bodies: list[bytes]) -> None:
        """Refuse a batch that is too large, as the library does."""
        if sum(map(len, bodies)) > self.largest:
            raise ValueError(LIMIT)


class EventHubError(Exception):
    """Azure's error."""


@pytest.fixture
def hubs(monkeypatch: pytest.MonkeyPatch) -> Hubs:
    """Put a stand-in for azure-eventhub in place of it."""
    hubs = Hubs()

    class Client:
        def __init__(self, hub: str) -> None:
            self.hub = hub

        @classmethod
        def from_connection_string(cls, text: str, *, eventhub_name: str, retry_total: int) -> Client:
            assert (text, retry_total) == (CONNECTION, 0)
            return cls(eventhub_name)

        def create_batch(self) -> Any:
            if self.hub == hubs.absent:
                raise EventHubError(hubs.error)
            return Batch()

        def send_batch(self, batch: Any) -> None:
            hubs.got.setdefault(self.hub, []).extend(map(json.loads, batch.bodies))

        def close(self) -> None:
            hubs.closed += 1

    class Batch:
        def __init__(self) -> None:
            self.bodies: list[bytes] = []

        def add(self, body: bytes) -> None:
            self.bodies.append(body)
            hubs.check(self.bodies)

    azure, eventhub, exceptions = map(ModuleType, ("azure", "azure.eventhub", "azure.eventhub.exceptions"))
    vars(eventhub).update(EventHubProducerClient=Client, EventData=lambda body: body)
    vars(exceptions).update(EventHubError=EventHubError, EventDataSendError=type("Other", (Exception,), {}))
    for module in (azure, eventhub, exceptions):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return hubs


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.add_records([record(1.5), record(2.5)])
        (tmp_path / "run.json").write_text(json.dumps(RUN))
        (tmp_path / "logs").mkdir()
        lines = "".join(f"{json.dumps(entry)}\n" for entry in LOG)
        (tmp_path / "logs" / "vcagent.jsonl").write_text(lines + '{"cut')
        yield journal


def context_of(journal: Journal) -> SinkContext:
    def mask(text: str) -> str:
        return text.replace("sekret", "***")

    return SinkContext(journal.path.parent, "r", HOST, journal.context, mask)


def test_metrics_outcomes_and_traces_go_to_the_hubs_of_virtualclient(hubs: Hubs, journal: Journal) -> None:
    assert flush(journal, open_event_hubs(CONNECTION, context_of(journal)), wait_s=0) == ""
    assert sorted(hubs.got) == ["telemetry-logs", "telemetry-metrics"]
    assert hubs.closed == 2
    values, succeeded, failed = (
        [event for event in hubs.got["telemetry-metrics"] if event["message"].endswith(end)]
        for end in (".ScenarioResult", "LoadGenExecutor.SucceededOrFailed", "Installation.SucceededOrFailed")
    )
    assert [event["customDimensions"]["metricValue"] for event in values] == [1.5, 2.5]
    (good,), (bad,) = succeeded, failed
    assert len(hubs.got["telemetry-metrics"]) == 4
    assert good["timestamp"] == "2026-04-01T12:09:00.0000000Z"
    dimensions = good["customDimensions"]
    assert {name: dimensions[name] for name in ("metricName", "metricValue", "metricRelativity")} == {
        "metricName": "Succeeded", "metricValue": 1, "metricRelativity": "HigherIsBetter",
    }  # fmt: skip
    assert dimensions["durationMs"] == 480_000
    assert dimensions["scenarioName"] == "run"
    assert dimensions["scenarioArguments"] == "run it"
    assert dimensions["executionProfile"] == "P (linux-x64)"
    assert dimensions["metadata"] == {"team": "a"}
    assert bad["customDimensions"]["metricName"] == "Failed"
    assert bad["customDimensions"]["metricVerbosity"] == "0"

    started, ended, nothing = hubs.got["telemetry-logs"]
    assert [event["message"] for event in (started, ended, nothing)] == [
        "vcagent.RunStarted", "DockerInstallation.StepEnded", "GpuSelection.NoSteps",
    ]  # fmt: skip
    assert [started["itemType"], started["severityLevel"]] == ["information", 2]
    assert [ended["itemType"], ended["severityLevel"]] == ["warning", 3]
    assert ended["customDimensions"]["error"] == [{"errorMessage": "no ***"}]
    assert ended["customDimensions"]["status"] == "failed"
    assert ended["customDimensions"]["experimentId"] == "e"
    # The same transaction as the step's outcome.
    assert ended["customDimensions"]["transactionId"] == bad["customDimensions"]["transactionId"]
    every = [event["operation_Id"] for events in hubs.got.values() for event in events]
    assert len(set(every)) == len(every)


def test_what_is_sent_again_is_recognised(hubs: Hubs, journal: Journal) -> None:
    for _ in range(2):
        sink = open_event_hubs(CONNECTION, context_of(journal))
        for piece in sink.pieces():
            piece.send()
    for events in hubs.got.values():
        half = len(events) // 2
        assert events[:half] == events[half:]


def test_a_namespace_with_one_hub_gets_metrics_alone(hubs: Hubs, journal: Journal) -> None:
    hubs.absent = "telemetry-logs"
    sink = open_event_hubs(CONNECTION, context_of(journal))
    assert flush(journal, sink, wait_s=0) == ""
    (reason,) = journal.refused_pieces(sink.name).values()
    assert "no hub telemetry-logs for traces (amqp:not-found)" in reason
    assert "signals=metrics" in reason
    chosen = open_event_hubs(f"{CONNECTION},signals=metrics", context_of(journal))
    assert flush(journal, chosen, wait_s=0) == ""
    assert list(hubs.got) == ["telemetry-metrics"]


def test_a_lost_connection_is_told_as_such_and_the_log_is_sent_later(hubs: Hubs, journal: Journal) -> None:
    hubs.absent, hubs.error = "telemetry-logs", "Connection was lost"
    sink = open_event_hubs(CONNECTION, context_of(journal))
    assert flush(journal, sink, wait_s=0) == "telemetry-logs: Connection was lost"
    assert journal.refused_pieces(sink.name) == {}
    hubs.absent = ""
    assert flush(journal, open_event_hubs(CONNECTION, context_of(journal)), wait_s=0) == ""
    assert len(hubs.got["telemetry-logs"]) == len(LOG)


def test_signals_and_the_name_of_a_hub(hubs: Hubs, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    own = open_event_hubs(f"{CONNECTION};EntityPath=mine", context_of(journal))
    assert own.name == "eventhubs hubs/mine"
    assert [piece.name for piece in own.pieces()] == ["outcomes"]
    traces = open_event_hubs(f"{CONNECTION},signals=traces", context_of(journal))
    assert [piece.name for piece in traces.pieces()] == ["log 0"]
    assert traces.write(list(journal.records_after(0)), 0) == 2
    assert hubs.got == {}
    assert flush(journal, traces, wait_s=0) == ""
    assert list(hubs.got) == ["telemetry-logs"]
    metrics = open_event_hubs(f"{CONNECTION},signals=metrics", context_of(journal))
    assert flush(journal, metrics, wait_s=0) == ""
    assert len(hubs.got["telemetry-metrics"]) == 4, "traces alone did not count as metrics"
    with pytest.raises(UsageError, match="to the one hub mine"):
        open_event_hubs(f"{CONNECTION};EntityPath=mine,signals=metrics+traces", context_of(journal))
    with pytest.raises(UsageError, match="no signal 'logs'"):
        open_event_hubs(f"{CONNECTION},signals=logs", context_of(journal))


def test_a_long_log_is_read_in_parts(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.sinks.agent_log._PART_BYTES", 50)
    context = context_of(journal)
    parts = log_parts(context.run_dir)
    assert len(parts) > 3
    read = [entry.event for start in parts for entry in log_entries(context, start)]
    assert read == [str(entry["event"]) for entry in LOG]


def test_only_the_event_over_the_size_limit_is_set_aside(hubs: Hubs, journal: Journal) -> None:
    log = journal.path.parent / "logs" / "vcagent.jsonl"
    entries = [{"timestamp": "2026-04-01T12:00:00Z", "event": f"line {number}"} for number in range(20)]
    entries[7]["output"] = "x" * 5000
    log.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    hubs.largest = 3000  # several events: the library's own limit is also below the sink's
    sink = open_event_hubs(CONNECTION, context_of(journal))
    assert flush(journal, sink, wait_s=0) == ""
    told = [event["message"] for event in hubs.got["telemetry-logs"]]
    assert told == [f"vcagent.Line{number}" for number in range(20) if number != 7]
    assert journal.refused_pieces(sink.name) == {
        "log 0, entry 7": "EventDataBatch has reached its size limit"
    }
    assert len(hubs.got["telemetry-metrics"]) == 4  # two records, two outcomes
    hubs.largest = 100_000
    hubs.got.clear()
    assert flush(journal, sink, wait_s=0, refused=True) == ""
    (event,) = hubs.got["telemetry-logs"]
    assert event["message"] == "vcagent.Line7"
    assert journal.refused_pieces(sink.name) == {}


def test_a_record_over_the_size_limit_takes_no_other_along(hubs: Hubs, journal: Journal) -> None:
    large = [record(float(value)) for value in range(10, 20)]
    large[4].description = "x" * 5000
    journal.add_records(large)
    hubs.largest = 3000
    sink = open_event_hubs(f"{CONNECTION},signals=metrics", context_of(journal))
    assert flush(journal, sink, wait_s=0) == ""
    sent = [event["customDimensions"] for event in hubs.got["telemetry-metrics"]]
    values = [one["metricValue"] for one in sent if "recordId" in one]
    assert values == [1.5, 2.5, *(float(value) for value in range(10, 20) if value != 14)]
    ((refused, reason),) = journal.refused(sink.name)
    assert (refused.value, reason) == (14.0, LIMIT)
