"""Sends records, the agent's log and the run as one trace over OTLP: ``--sink otlp:URL``.

``http://host:4318`` and ``https://…`` use OTLP over HTTP, ``grpc://host:4317`` and ``grpcs://…`` over gRPC.
The SDK's data model and encoders make the messages. The SDK's exporters are not used: they treat a partial
success as a success, retry on their own, and do not report what was refused.
"""

from __future__ import annotations

import hashlib
import os
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from typing_extensions import override

from agent.core.errors import UsageError
from agent.core.records import CONTEXT_KEY, categorization
from agent.sinks.agent_log import log_entries, log_parts
from agent.sinks.base import (
    Piece,
    PieceRefusedError,
    RecordsRefusedError,
    Sink,
    SinkUnavailableError,
    numbered,
    refusing_unwritable,
    send_apart,
    writable,
)
from agent.sinks.settings import needed, parse_settings, require_address, without_credentials
from agent.store.documents import RunDocument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.core.records import MetricRecord
    from agent.sinks.agent_log import LogEntry
    from agent.sinks.opening import SinkContext

METRIC_PREFIX = "vcagent."
_UNITS = {
    "seconds": "s", "bytes": "By", "ratio": "1", "watts": "W", "joules": "J", "celsius": "Cel", "hertz": "Hz",
    "count": "1", "tokens/s": "{token}/s", "samples/s": "{sample}/s", "queries/s": "{query}/s",
    "requests/s": "{request}/s", "bytes/s": "By/s",
}  # fmt: skip
"""Units in UCUM's spelling, which OpenTelemetry requires."""

_RESOURCE_KEYS = {
    "cpuArchitecture": "host.arch", "osName": "os.description", "osVersion": "os.version",
    "cloudProvider": "cloud.provider", "cloudVmSize": "host.type", "cloudRegion": "cloud.region",
    "gpuName": "vcagent.gpu.name", "gpuCount": "vcagent.gpu.count",
    "gpuDriverVersion": "vcagent.gpu.driver", "gpuCudaVersion": "vcagent.gpu.cuda",
}  # fmt: skip
"""Keys of metadata_host in the resource. Only these: some stores turn each into a label of every series."""

_TIMEOUT_S = 10.0
_RETRIED = frozenset({429, 502, 503, 504})
_REFUSED = frozenset({400, 413, 422})
_MENDABLE = frozenset({401, 403, 408, 425})
"""Errors of the client that end when a token is renewed, or by themselves."""
_OK, _REDIRECTED, _CLIENT_ERROR, _SERVER_ERROR = 200, 300, 400, 500
_NEVER = ("too old", "out of bounds", "out of order", "duplicate sample", "message larger than max")
"""Messages about what will never be taken: Prometheus', some with status 500, and gRPC's, as "exhausted"."""
_SEVERITIES = {"debug": 5, "info": 9, "warning": 13, "error": 17, "critical": 21}
_RESULTS = {"VALID": "success", "INVALID": "failure", "FAILED": "error", None: "success"}
_STEP_RESULTS = {"done": "success", "failed": "failure", "interrupted": "cancellation", "cut": "timeout"}
_INTERRUPTED = 9


class _NotServedError(SinkUnavailableError):
    """The receiver answers, and has no service for the signal.

    Records wait for a correct address; the log and the trace are set aside, so that the rest is sent.
    """


class _Http:
    """OTLP over HTTP (opentelemetry.io/docs/specs/otlp)."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        import requests

        self._url = url.rstrip("/")
        self._session = requests.Session()
        self._session.headers.update({**headers, "Content-Type": "application/x-protobuf"})

    def send(self, signal: str, message: Any, answer: Any) -> Any:
        import requests

        try:
            reply = self._session.post(
                f"{self._url}/v1/{signal}", data=message.SerializeToString(), timeout=_TIMEOUT_S,
                allow_redirects=False,
            )  # fmt: skip
        except requests.RequestException as error:
            reason = str(error).rsplit(": ", 1)[-1].strip("'\")")
            raise SinkUnavailableError(
                f"{without_credentials(self._url)} does not answer: {reason}"
            ) from error
        code, text = reply.status_code, reply.text[:500].strip()
        if code in _RETRIED or (code >= _SERVER_ERROR and not _is_never(text)):
            wait = reply.headers.get("Retry-After", "")
            raise SinkUnavailableError(f"HTTP {code}: {text}", float(wait) if wait.isdigit() else None)
        if code in _REFUSED or code >= _SERVER_ERROR:
            raise RecordsRefusedError(f"HTTP {code}: {text}")
        if not _OK <= code < _REDIRECTED:
            lasting = code >= _CLIENT_ERROR and code not in _MENDABLE
            raise (_NotServedError if lasting else SinkUnavailableError)(
                f"HTTP {code} of {without_credentials(self._url)}: {text}"
            )
        if reply.headers.get("Content-Type", "").startswith("application/x-protobuf"):
            answer.ParseFromString(reply.content)
        return answer


class _Grpc:
    """OTLP over gRPC."""

    def __init__(self, url: str, headers: Mapping[str, str], *, secure: bool) -> None:
        import grpc

        self._headers = tuple((name.lower(), value) for name, value in headers.items())
        target = urlsplit(url).netloc.rpartition("@")[2]
        self._channel = (
            grpc.secure_channel(target, grpc.ssl_channel_credentials())
            if secure
            else grpc.insecure_channel(target)
        )

    def send(self, signal: str, message: Any, answer: Any) -> Any:
        import grpc

        service = {"metrics": "Metrics", "logs": "Logs", "traces": "Trace"}[signal]
        package = f"opentelemetry.proto.collector.{service.lower()}.v1"
        call = self._channel.unary_unary(
            f"/{package}.{service}Service/Export",
            request_serializer=type(message).SerializeToString,
            response_deserializer=type(answer).FromString,
        )
        try:
            return call(message, timeout=_TIMEOUT_S, metadata=self._headers)
        except grpc.RpcError as error:
            text = f"{error.code().name}: {error.details()}"
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT or _is_never(text):
                raise RecordsRefusedError(text) from error
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise _NotServedError(text) from error
            raise SinkUnavailableError(text) from error


def _is_never(text: str) -> bool:
    return any(phrase in text for phrase in _NEVER)


class OtlpSink(Sink):
    """A sink that sends to an OTLP receiver.

    Args:
        url: the receiver's address.
        context: the run.
        signals: the signals that it takes, of ``metrics``, ``logs`` and ``traces``.
    """

    def __init__(self, url: str, context: SinkContext, signals: frozenset[str]) -> None:
        needed(
            "otlp", "otlp", "opentelemetry.exporter.otlp.proto.common.metrics_encoder", "opentelemetry.sdk"
        )
        # Other signals alone have a name of their own: the journal must not note the metrics as delivered.
        alone = "" if "metrics" in signals else f" {'+'.join(sorted(signals))}"
        self.name = f"otlp {without_credentials(url)}{alone}"
        self._url = url
        self._context = context
        self._signals = signals
        self._sender: Any = None
        self._resources: dict[str, Any] = {}

    @override
    def start(self) -> None:
        if self._sender:
            return
        from opentelemetry.util.re import parse_env_headers

        headers = parse_env_headers(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", ""), liberal=True)
        scheme, _, rest = self._url.partition("://")
        if scheme in ("grpc", "grpcs"):
            self._sender = _Grpc(f"//{rest}", headers, secure=scheme == "grpcs")
        else:
            self._sender = _Http(self._url, headers)

    @override
    def write(self, records: list[MetricRecord], position: int) -> int:
        if "metrics" in self._signals and records:
            self._send_metrics(records)
        return position + len(records)

    def _send_metrics(self, records: list[MetricRecord]) -> None:
        from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

        with refusing_unwritable():
            message = encode_metrics(self._metrics_data(records))
        answer = self._sender.send("metrics", message, ExportMetricsServiceResponse())
        if refused := answer.partial_success.rejected_data_points:
            raise RecordsRefusedError(f"{refused} points: {answer.partial_success.error_message}")

    def _metrics_data(self, records: list[MetricRecord]) -> Any:
        """Return gauges with the times of their records; the SDK's instruments only use the present time."""
        from opentelemetry.sdk.metrics.export import (
            Gauge,
            Metric,
            MetricsData,
            NumberDataPoint,
            ResourceMetrics,
            ScopeMetrics,
        )
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        by_context: dict[str, dict[tuple[str, str, str], list[Any]]] = {}
        for record in records:
            context = str(record.metadata.get(CONTEXT_KEY, ""))
            kind = (record.metric, _UNITS.get(record.unit, record.unit), record.description)
            point = NumberDataPoint(
                attributes=_attributes(record),
                start_time_unix_nano=None,  # type: ignore[arg-type] # gauges do not have one
                time_unix_nano=_nanoseconds(record.timestamp),
                value=record.value,
            )
            by_context.setdefault(context, {}).setdefault(kind, []).append(point)
        scope = InstrumentationScope("vcagent", str(self._context.host.get("version", "")))
        return MetricsData(
            [
                ResourceMetrics(
                    self._resource(context, records[0]),
                    [
                        ScopeMetrics(
                            scope,
                            [
                                Metric(f"{METRIC_PREFIX}{name}", description, unit, Gauge(points))
                                for (name, unit, description), points in kinds.items()
                            ],
                            "",
                        )
                    ],
                    "",
                )
                for context, kinds in by_context.items()
            ]
        )

    def _resource(self, name: str, record: MetricRecord | None = None) -> Any:
        from opentelemetry.sdk.resources import Resource

        context = self._context.context(name)
        run_id = record.run_id if record else self._context.run_id
        values = {
            "service.name": "vcagent",
            "service.version": str(self._context.host.get("version", "")),
            "service.instance.id": run_id,
            "host.name": record.client_id if record else context.get("client_id", ""),
            "os.type": "linux",
            "vcagent.experiment_id": record.experiment_id if record else context.get("experiment_id", ""),
            "vcagent.profile": record.profile if record else context.get("profile", ""),
            "vcagent.system": context.get("system", ""),
        }
        host = context.get("metadata_host", {})
        values |= {attribute: host.get(key, "") for key, attribute in _RESOURCE_KEYS.items()}
        return Resource({key: _plain(value) for key, value in values.items() if value != ""})

    @override
    def pieces(self) -> Iterator[Piece]:
        if "logs" in self._signals:
            for start in log_parts(self._context.run_dir):
                send = partial(self._send_log, start)
                yield Piece(f"log {start}", send, send)
        if "traces" in self._signals:
            yield Piece("trace", self._send_trace, self._send_trace)

    def _send_log(self, start: int, only: frozenset[int] | None = None) -> None:
        """Send the lines of the agent's log that begin within one part of the file, or some of them."""
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
            ExportLogsServiceRequest,
            ExportLogsServiceResponse,
        )
        from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
        from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
        from opentelemetry.proto.resource.v1.resource_pb2 import Resource

        def send(entries: list[LogEntry]) -> None:
            with refusing_unwritable():
                lines = [
                    LogRecord(
                        time_unix_nano=_nanoseconds(entry.moment),
                        severity_number=_SEVERITIES.get(entry.level, 9),  # type: ignore[arg-type]
                        severity_text=entry.level,
                        body=AnyValue(string_value=entry.event),
                        trace_id=_identifier(self._context.run_id, 16),
                        attributes=[
                            KeyValue(key=f"vcagent.{key}", value=AnyValue(string_value=str(value)))
                            for key, value in entry.values.items()
                        ],
                    )
                    for entry in entries
                ]
                scope = ScopeLogs(scope=InstrumentationScope(name="vcagent"), log_records=lines)
                message = ExportLogsServiceRequest(
                    resource_logs=[ResourceLogs(resource=resource, scope_logs=[scope])]
                )
            self._deliver("logs", message, ExportLogsServiceResponse())

        resource = Resource(
            attributes=[
                KeyValue(key=key, value=AnyValue(string_value=str(value)))
                for key, value in self._run_resource().attributes.items()
            ]
        )
        if chosen := list(numbered(log_entries(self._context, start), only)):
            send_apart(chosen, send)

    def _send_trace(self, only: frozenset[int] | None = None) -> None:
        """Send the run as a trace: its steps as spans, and its cases with their verdicts below their steps.

        The identifiers are derived from the run, so that a trace sent twice appears once.
        """
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

        def send(spans: list[Any]) -> None:
            with refusing_unwritable():
                message = encode_spans(spans)
            self._deliver("traces", message, ExportTraceServiceResponse())

        spans = trace_of(RunDocument.read(self._context.run_dir), self._run_resource())
        send_apart(list(numbered(spans, only)), send)

    def _run_resource(self) -> Any:
        run = RunDocument.read(self._context.run_dir)
        resource = self._resource("").attributes
        own = {
            "host.name": run.client_id,
            "vcagent.experiment_id": run.experiment_id,
            "vcagent.profile": run.profile.name,
        }
        from opentelemetry.sdk.resources import Resource

        return Resource({**resource, **own})

    def _deliver(self, signal: str, message: Any, answer: Any) -> None:
        self.start()
        try:
            success = self._sender.send(signal, message, answer).partial_success
        except _NotServedError as error:
            others = "+".join(sorted(self._signals - {signal}))
            hint = f"; omit them: otlp:{without_credentials(self._url)},signals={others}" if others else ""
            raise PieceRefusedError(f"the receiver does not take {signal} ({error}){hint}") from error
        rejected = success.rejected_log_records if signal == "logs" else success.rejected_spans
        if rejected:
            # The others were taken, and would be doubled.
            raise PieceRefusedError(f"{rejected} of the {signal}: {success.error_message}")


def trace_of(run: RunDocument, resource: Any) -> list[Any]:
    """Return the spans of a run, by the conventions for CI/CD pipelines and tests."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

    trace_id = int.from_bytes(_identifier(run.run_id, 16), "big")
    begin = _moment(run.start)
    end = max(begin, _moment(run.end))

    def context(name: str) -> Any:
        span_id = int.from_bytes(_identifier(f"{run.run_id} {name}", 8), "big")
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def span(
        name: str, key: str, parent: Any, span_of: tuple[int, int], attributes: Any, *, bad: bool
    ) -> Any:
        return ReadableSpan(
            name=name,
            context=context(key),
            parent=parent,
            resource=resource,
            attributes={item: _plain(value) for item, value in attributes.items() if value not in (None, "")},
            kind=SpanKind.SERVER if parent is None else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR if bad else StatusCode.UNSET),
            start_time=span_of[0],
            end_time=span_of[1],
            instrumentation_scope=InstrumentationScope("vcagent"),
        )

    validity = run.verdict.validity
    result = "cancellation" if run.exit_code == _INTERRUPTED else _RESULTS.get(validity, "skip")
    root = context("run")
    spans = [
        span(
            f"RUN {run.profile.name}",
            "run",
            None,
            (begin, end),
            {
                "cicd.pipeline.name": run.profile.name,
                "cicd.pipeline.action.name": "RUN",
                "cicd.pipeline.result": result,
                "cicd.pipeline.run.id": run.run_id,
                "vcagent.exit_code": run.exit_code,
                "vcagent.verdict": validity,
            },
            bad=result in ("failure", "error"),
        )
    ]
    for step in run.steps:
        if not step.start:
            continue
        start = _moment(step.start)
        outcome = _STEP_RESULTS.get(step.status, "error")
        spans.append(
            span(
                step.name,
                step.key,
                root,
                (start, max(start, _moment(step.end))),
                {
                    "cicd.pipeline.task.name": step.name,
                    "cicd.pipeline.task.run.id": f"{run.run_id}/{step.key}",
                    "cicd.pipeline.task.run.result": outcome,
                    "cicd.pipeline.task.run.url.full": f"file:{step.log}" if step.log else None,
                    "vcagent.component.type": step.type,
                    "vcagent.component.kind": step.kind,
                    "vcagent.reason": step.reason,
                    "vcagent.attempts": step.attempts,
                },
                bad=outcome in ("failure", "error"),
            )
        )
    for case in run.cases:
        start = _moment(case.start)
        parent = (case.model_extra or {}).get("step")
        passed = {"VALID": "pass", "INVALID": "fail", "FAILED": "fail"}.get(case.validity or "")
        spans.append(
            span(
                case.scenario,
                f"case {case.scenario}",
                context(parent) if parent else root,
                (start, max(start, _moment(case.end))),
                {
                    "test.suite.name": run.profile.name,
                    "test.case.name": case.scenario,
                    "test.case.result.status": passed,
                    "vcagent.tool.name": case.tool_name,
                    "vcagent.tool.version": case.tool_version,
                    "vcagent.verdict": case.validity,
                },
                bad=passed == "fail",
            )
        )
    return spans


def _attributes(record: MetricRecord) -> dict[str, str | int]:
    values: dict[str, str | int] = {
        "run_id": writable(record.run_id),
        "scenario": writable(record.scenario),
        "tool": writable(record.tool_name),
        "verbosity": record.verbosity,
    }
    if device := categorization(record.metadata):
        values["device"] = writable(device)
    return values


def _plain(value: Any) -> Any:
    """Return a value that the SDK's encoder does not drop: it leaves out texts that it cannot encode."""
    return writable(value) if isinstance(value, str) else value


def _nanoseconds(moment: datetime) -> int:
    whole = int(moment.timestamp())
    return whole * 1_000_000_000 + moment.microsecond * 1000


def _moment(text: str | None) -> int:
    return _nanoseconds(datetime.fromisoformat(text.replace("Z", "+00:00"))) if text else 0


def _identifier(text: str, size: int) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:size]


def open_otlp(settings: str, context: SinkContext) -> Sink:
    """Open ``otlp:URL[,signals=metrics+logs+traces]``."""
    read = parse_settings("otlp", settings, "http://collector:4318", ("signals",))
    require_address("otlp", read.target, ("http", "https", "grpc", "grpcs"), "http://host:4318")
    signals = frozenset(read.options.get("signals", "metrics+logs+traces").split("+"))
    if unknown := signals - {"metrics", "logs", "traces"}:
        raise UsageError(f"OTLP has no signal {min(unknown)!r}", remedy="signals=metrics+logs+traces")
    if read.target.startswith("grpc"):
        needed("otlp", "otlp", "grpc")
    return OtlpSink(read.target, context, signals)
