"""OTLP over HTTP and gRPC, to receivers that decode the messages."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import UsageError
from agent.sinks import RecordsRefusedError, SinkContext, SinkUnavailableError, flush
from agent.sinks.otlp import open_otlp
from agent.store.journal import Journal
from tests.agent.store.test_journal import record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.sinks import Sink

pytest.importorskip("opentelemetry.sdk")
grpc = pytest.importorskip("grpc")

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest  # noqa: E402
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (  # noqa: E402
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: E402
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

RUN = {
    "run_id": "r", "experiment_id": "e", "client_id": "host", "profile": {"name": "P"},
    "start": "2026-04-01T12:00:00+00:00", "end": "2026-04-01T12:10:00+00:00", "exit_code": 7,
    "verdict": {"validity": "INVALID"},
    "steps": [
        {"key": "1:actions[0]/run", "name": "run", "type": "LoadGenExecutor", "kind": "action",
         "status": "done", "log": "logs/run.log", "start": "2026-04-01T12:01:00+00:00",
         "end": "2026-04-01T12:09:00+00:00"},
        {"key": "1:actions[1]/run", "name": "never started", "status": "pending"},
    ],
    "cases": [
        {"scenario": "m/Server", "tool_name": "LoadGen", "validity": "INVALID", "step": "1:actions[0]/run",
         "start": "2026-04-01T12:02:00+00:00", "end": "2026-04-01T12:08:00+00:00"},
    ],
}  # fmt: skip


class Receiver:
    """Keeps the messages; gives the configured answers."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes]] = []
        self.headers: dict[str, str] = {}
        self.status = 200
        self.text = b""
        self.answer = b""
        self.by_path: dict[str, int] = {}
        self.refused_text = b""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.headers = dict(self.headers)
                status = receiver.by_path.get(self.path, receiver.status)
                if receiver.refused_text and receiver.refused_text in body:
                    status = 413
                if status == 200:
                    receiver.got.append((self.path, body))
                self.send_response(status)
                self.send_header("Retry-After", "7")
                self.send_header("Content-Type", "application/x-protobuf")
                self.end_headers()
                self.wfile.write(receiver.answer if status == 200 else receiver.text)

            def log_message(self, *_: object) -> None:
                """Ignore the message."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.sqlite") as journal:
        name = journal.add_context({"metadata_host": {"gpuName": "H200", "cpuArchitecture": "x86_64"}})
        for value in (1.5, 2.5):
            one = record(value)
            one.metadata = {"gpu_index": 3, "context_id": name}
            journal.add_records([one])
        (tmp_path / "run.json").write_text(json.dumps(RUN))
        (tmp_path / "logs").mkdir()
        entries = [
            {"timestamp": "2026-04-01T12:00:00Z", "level": "warning", "event": "step ended", "key": "sekret"},
            {"timestamp": "2026-04-01T12:00:01Z", "level": "info", "event": "run ended"},
        ]
        lines = "".join(f"{json.dumps(entry)}\n" for entry in entries)
        (tmp_path / "logs" / "vcagent.jsonl").write_text(lines + '{"cut')
        yield journal


def opened(journal: Journal, settings: str) -> Sink:
    def mask(text: str) -> str:
        return text.replace("sekret", "***")

    return open_otlp(settings, SinkContext(journal.path.parent, "r", {"version": "1"}, journal.context, mask))


def named(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def test_metrics_logs_and_the_trace(
    journal: Journal, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b")
    assert flush(journal, opened(journal, receiver.url), wait_s=0) == ""
    assert [path for path, _ in receiver.got] == ["/v1/metrics", "/v1/logs", "/v1/traces"]
    assert receiver.headers["x-tenant"] == "a b"

    (resource,) = ExportMetricsServiceRequest.FromString(receiver.got[0][1]).resource_metrics
    assert named(resource.resource.attributes)["vcagent.gpu.name"] == "H200"
    (metric,) = resource.scope_metrics[0].metrics
    assert (metric.name, metric.unit) == ("vcagent.ttft_p99", "s")
    points = metric.gauge.data_points
    assert [point.as_double for point in points] == [1.5, 2.5]
    assert points[0].time_unix_nano == 1775044800_123456000
    assert named(points[0].attributes)["device"] == "GPU 3"

    (logs,) = ExportLogsServiceRequest.FromString(receiver.got[1][1]).resource_logs
    entries = logs.scope_logs[0].log_records
    assert [entry.body.string_value for entry in entries] == ["step ended", "run ended"]
    assert named(entries[0].attributes) == {"vcagent.key": "***"}
    assert entries[0].severity_number == 13

    (spans,) = ExportTraceServiceRequest.FromString(receiver.got[2][1]).resource_spans
    root, step, case = spans.scope_spans[0].spans
    assert named(root.attributes)["cicd.pipeline.result"] == "failure"
    assert (step.parent_span_id, case.parent_span_id) == (root.span_id, step.span_id)
    assert named(case.attributes)["test.case.result.status"] == "fail"
    assert named(step.attributes)["cicd.pipeline.task.run.result"] == "success"
    assert entries[0].trace_id == root.trace_id


def test_what_was_sent_is_not_sent_again(journal: Journal, receiver: Receiver) -> None:
    assert flush(journal, opened(journal, receiver.url), wait_s=0) == ""
    assert flush(journal, opened(journal, receiver.url), wait_s=0) == ""
    assert len(receiver.got) == 3


def test_a_trace_that_is_sent_twice_is_one(journal: Journal, receiver: Receiver) -> None:
    for _ in range(2):
        sink = opened(journal, f"{receiver.url},signals=traces")
        next(iter(sink.pieces())).send()
    assert receiver.got[0] == receiver.got[1]


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, b"bad point", RecordsRefusedError),
        (500, b"too old sample", RecordsRefusedError),
        (500, b"disk on fire", SinkUnavailableError),
        (401, b"who are you", SinkUnavailableError),
        (404, b"", SinkUnavailableError),
        (302, b"", SinkUnavailableError),
        (503, b"", SinkUnavailableError),
    ],
)
def test_what_a_receiver_says(
    journal: Journal, receiver: Receiver, status: int, text: bytes, kind: type[Exception]
) -> None:
    receiver.status, receiver.text = status, text
    sink = opened(journal, receiver.url)
    sink.start()
    with pytest.raises(kind, match=str(status)) as caught:
        sink.write(journal.records_after(0), 0)
    if status == 503:
        assert isinstance(caught.value, SinkUnavailableError)
        assert caught.value.retry_after_s == 7


def test_a_partial_success_is_a_refusal(journal: Journal, receiver: Receiver) -> None:
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = 2
    answer.partial_success.error_message = "too many labels"
    receiver.answer = answer.SerializeToString()
    assert flush(journal, opened(journal, f"{receiver.url},signals=metrics"), wait_s=0) == ""
    ((first, reason), _) = journal.refused(f"otlp {receiver.url}")
    assert first.value == 1.5
    assert reason == "2 points: too many labels"


@pytest.mark.parametrize("status", [400, 404, 413])
def test_a_log_that_is_refused_does_not_hold_the_trace_back(
    journal: Journal, receiver: Receiver, status: int
) -> None:
    receiver.by_path["/v1/logs"] = status
    sink = opened(journal, receiver.url)
    assert flush(journal, sink, wait_s=0) == ""
    assert [path for path, _ in receiver.got] == ["/v1/metrics", "/v1/traces"]
    (refused,) = journal.refused_pieces(sink.name).items()
    assert refused[0] == "log 0"
    assert f"HTTP {status}" in refused[1]
    receiver.by_path.clear()
    assert flush(journal, opened(journal, receiver.url), wait_s=0) == ""
    assert len(receiver.got) == 2, "it was sent again, unasked"
    assert flush(journal, opened(journal, receiver.url), wait_s=0, refused=True) == ""
    assert [path for path, _ in receiver.got] == ["/v1/metrics", "/v1/traces", "/v1/logs"]
    assert journal.refused_pieces(sink.name) == {}


@pytest.mark.parametrize("status", [401, 429, 503])
def test_a_log_that_cannot_be_taken_now_is_sent_later(
    journal: Journal, receiver: Receiver, status: int
) -> None:
    receiver.by_path["/v1/logs"] = status
    sink = opened(journal, receiver.url)
    assert f"HTTP {status}" in flush(journal, sink, wait_s=0)
    assert journal.refused_pieces(sink.name) == {}
    receiver.by_path.clear()
    assert flush(journal, opened(journal, receiver.url), wait_s=0) == ""
    assert [path for path, _ in receiver.got] == ["/v1/metrics", "/v1/logs", "/v1/traces"]


def test_a_partly_rejected_trace_is_set_aside(journal: Journal, receiver: Receiver) -> None:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 2
    answer.partial_success.error_message = "no such schema"
    receiver.answer = answer.SerializeToString()
    sink = opened(journal, f"{receiver.url},signals=traces")
    assert flush(journal, sink, wait_s=0) == ""
    assert journal.refused_pieces(sink.name) == {"trace": "2 of the traces: no such schema"}


def test_grpc(journal: Journal) -> None:
    got: list[tuple[str, bytes]] = []

    class Every(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            def keep(body: bytes, _: Any) -> bytes:
                got.append((details.method, body))
                return b""

            return grpc.unary_unary_rpc_method_handler(keep)

    server = grpc.server(ThreadPoolExecutor(1), handlers=(Every(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        assert flush(journal, opened(journal, f"grpc://127.0.0.1:{port}"), wait_s=0) == ""
    finally:
        server.stop(0).wait()
    assert [method.split(".")[3] for method, _ in got] == ["metrics", "logs", "trace"]
    request = ExportMetricsServiceRequest.FromString(got[0][1])
    assert len(request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points) == 2
    sink = opened(journal, f"grpc://127.0.0.1:{port}")
    sink.start()
    with pytest.raises(SinkUnavailableError, match="UNAVAILABLE"):
        sink.write(journal.records_after(0), 0)


def test_traces_alone_leave_the_metrics_to_be_sent_later(receiver: Receiver, journal: Journal) -> None:
    assert flush(journal, opened(journal, f"{receiver.url},signals=logs+traces"), wait_s=0) == ""
    assert {path for path, _ in receiver.got} == {"/v1/logs", "/v1/traces"}
    assert flush(journal, opened(journal, receiver.url), wait_s=0) == ""
    assert "/v1/metrics" in {path for path, _ in receiver.got}


@pytest.mark.parametrize("settings", ["", "collector:4318", "http://c:4318,signals=smoke", "http://c,x=1"])
def test_settings_that_cannot_be_used(journal: Journal, settings: str) -> None:
    with pytest.raises(UsageError):
        opened(journal, settings)


def test_credentials_of_the_address_are_not_in_the_name(journal: Journal) -> None:
    assert opened(journal, "https://u:p@host:1/x?sig=s").name == "otlp https://host:1/x"


def test_only_the_refused_line_and_span_are_set_aside(journal: Journal, receiver: Receiver) -> None:
    log = journal.path.parent / "logs" / "vcagent.jsonl"
    entries = [{"timestamp": "2026-04-01T12:00:00Z", "event": f"line {number}"} for number in range(9)]
    entries[5]["event"] = "HUGE"
    entries[6]["event"] = "half a pair \ud800"
    log.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    steps = [{**RUN["steps"][0], "key": name, "name": name} for name in ("one", "HUGE", "three")]
    (journal.path.parent / "run.json").write_text(json.dumps({**RUN, "steps": steps, "cases": []}))
    receiver.refused_text = b"HUGE"
    sink = opened(journal, receiver.url)
    assert flush(journal, sink, wait_s=0) == ""
    assert list(journal.refused_pieces(sink.name)) == ["log 0, entry 5", "trace, entry 2"]
    taken = b"".join(body for path, body in receiver.got if path == "/v1/logs")
    for number in (0, 1, 2, 3, 4, 7, 8):
        assert taken.count(f"line {number}".encode()) == 1
    assert b"half a pair ?" in taken
    spans = b"".join(body for path, body in receiver.got if path == "/v1/traces")
    assert b"three" in spans
    receiver.refused_text = b""
    receiver.got.clear()
    assert flush(journal, opened(journal, receiver.url), wait_s=0, refused=True) == ""
    assert [path for path, _ in receiver.got] == ["/v1/logs", "/v1/traces"]
    assert b"line" not in receiver.got[0][1]
    assert journal.refused_pieces(sink.name) == {}


def test_a_record_that_cannot_be_written_takes_no_other_along(journal: Journal, receiver: Receiver) -> None:
    bad = [record(float(value)) for value in range(10, 16)]
    bad[2].metric = "half a pair \ud800"
    bad[4].scenario = "half a pair \ud800"
    journal.add_records(bad)
    sink = opened(journal, f"{receiver.url},signals=metrics")
    assert flush(journal, sink, wait_s=0) == ""
    ((refused, reason),) = journal.refused(sink.name)
    assert refused.value == 12.0
    assert reason.startswith("it cannot be written: ")
    assert journal.sink_position(sink.name)[0] == journal.last_record_id()
    assert any(b"half a pair ?" in body for _, body in receiver.got)
