"""VirtualClient's metrics and traces in Azure Event Hubs: ``--sink eventhubs:${CONNECTION}``.

The envelope is that of Core/Logging/EventHubTelemetryLogger.cs, which VirtualClient's tables and queries
read. If an event was sent but its success was not noted, it is sent again, with the same ``operation_Id``
and ``recordId``.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from agent.core.errors import UsageError
from agent.core.records import CONTEXT_KEY, categorization
from agent.sinks.agent_log import log_entries, log_parts
from agent.sinks.base import (
    EntriesRefusedError,
    Piece,
    PieceRefusedError,
    RecordsRefusedError,
    Sink,
    SinkUnavailableError,
    numbered,
)
from agent.sinks.csv_file import INFORMATION
from agent.sinks.settings import needed, parse_settings
from agent.store.documents import RunDocument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.core.records import MetricRecord
    from agent.sinks.agent_log import LogEntry
    from agent.sinks.opening import SinkContext
    from agent.store.documents import StepPart

METRICS_HUB = "telemetry-metrics"
TRACES_HUB = "telemetry-logs"
"""VirtualClient's names of the hubs (Core/Configuration: EventHubLogSettings)."""
_SIGNALS = ("metrics", "traces")
_LEVELS = {
    "debug": ("debug", 1),
    "info": ("information", INFORMATION),
    "warning": ("warning", 3),
    "error": ("error", 4),
    "critical": ("critical", 5),
}
"""Names and numbers of severities, by the levels of the agent's log."""
_LARGEST_BATCH_BYTES = 700_000
"""VirtualClient's limit for the bodies of a batch."""


def event_of(record: MetricRecord, context: Mapping[str, Any], host: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record as VirtualClient's event; unknown values are left out.

    Args:
        record: the record.
        context: its context.
        host: version and platform of the agent.
    """
    scenario = context.get("metadata_scenario", {})
    metadata = {key: value for key, value in record.metadata.items() if key != CONTEXT_KEY}
    own = context.get("metadata", {})
    runtime = context.get("metadata_runtime", {})
    values: dict[str, Any] = {
        "transactionId": _guid(f"{record.run_id} {record.scenario}"),
        "durationMs": _milliseconds(record.scenario_start, record.scenario_end),
        "recordId": record.record_id,
        **_run_values(record.run_id, record.experiment_id, record.client_id, record.profile, host),
        "executionArguments": runtime.get("executionArguments"),
        "executionSystem": context.get("system") or None,
        "scenario": record.scenario,
        "scenarioName": record.scenario,
        "scenarioStartTime": _time(record.scenario_start),
        "scenarioEndTime": _time(record.scenario_end),
        "scenarioArguments": scenario.get("command"),
        "metricName": record.metric,
        "metricValue": record.value,
        "metricUnit": record.unit,
        "metricCategorization": categorization(record.metadata) or None,
        "metricDescription": record.description or None,
        "metricRelativity": record.relativity.value,
        "metricVerbosity": str(record.verbosity),
        "toolName": record.tool_name,
        "toolVersion": record.tool_version or None,
        "toolResults": context.get("tool_results") or None,
        "tags": ",".join(record.tags),
        "metadata": own or None,
        "metadata_metrics": {key: value for key, value in metadata.items() if key not in own},
        **{
            key: context.get(key) or None
            for key in ("metadata_dependencies", "metadata_host", "metadata_runtime", "metadata_scenario")
        },
    }
    return _envelope(
        f"{record.tool_name.replace(' ', '')}.ScenarioResult",
        record.timestamp,
        operation=(record.run_id, str(record.record_id)),
        client=record.client_id,
        host=host,
        values=values,
    )


def trace_event(entry: LogEntry, key: str, run: RunDocument, host: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of the agent's log as VirtualClient's trace.

    Args:
        entry: the line.
        key: unique within the run.
        run: the run.
        host: version and platform of the agent.
    """
    step = next((step for step in run.steps if step.key and step.key == entry.values.get("step")), None)
    source = entry.values.get("type") or (step and step.type) or "vcagent"
    told = {name: value for name, value in entry.values.items() if name not in ("run_id", "profile", "error")}
    error = entry.values.get("error")
    values = {
        "transactionId": _guid(f"{run.run_id} {step.key if step else ''}"),
        **_run_values(run.run_id, run.experiment_id, run.client_id, run.profile.name, host),
        **told,
        "error": [{"errorMessage": str(error)}] if error else None,
        "metadata": run.metadata or None,
    }
    return _envelope(
        f"{source}.{''.join(word.capitalize() for word in entry.event.split())}",
        entry.moment,
        operation=(run.run_id, key),
        client=run.client_id,
        host=host,
        values=values,
        level=_LEVELS.get(entry.level, _LEVELS["info"]),
    )


def outcome_event(step: StepPart, run: RunDocument, host: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the outcome of a step as VirtualClient's metric ``Succeeded`` or ``Failed``, or None.

    Source: Contracts/VirtualClientLoggingExtensions.cs, LogSuccessOrFailedMetric.
    """
    if step.status not in ("done", "failed") or not step.start or not step.end:
        return None
    succeeded = step.status == "done"
    start, end = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (step.start, step.end))
    how = "succeeded" if succeeded else "failed"
    values: dict[str, Any] = {
        "transactionId": _guid(f"{run.run_id} {step.key}"),
        "durationMs": _milliseconds(start, end),
        **_run_values(run.run_id, run.experiment_id, run.client_id, run.profile.name, host),
        "scenario": step.name,
        "scenarioName": step.name,
        "scenarioStartTime": _time(start),
        "scenarioEndTime": _time(end),
        "scenarioArguments": step.command,
        "metricName": how.capitalize(),
        "metricValue": 1,
        "metricUnit": "",
        "metricCategorization": "",
        "metricDescription": f"Indicates the component or toolset execution {how} for the scenario defined.",
        "metricRelativity": "HigherIsBetter" if succeeded else "LowerIsBetter",
        "metricVerbosity": "2" if succeeded else "0",
        "toolName": step.type,
        "tags": "",
        "metadata": run.metadata or None,
    }
    return _envelope(
        f"{step.type}.SucceededOrFailed",
        end,
        operation=(run.run_id, f"outcome {step.key}"),
        client=run.client_id,
        host=host,
        values=values,
    )


def _run_values(
    run_id: str, experiment_id: str, client_id: str, profile: str, host: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the dimensions that all events of a run have."""
    platform = host.get("platform") or None
    return {
        "experimentId": experiment_id,
        "clientId": client_id,
        "clientInstance": _guid(run_id),
        "appVersion": host.get("version") or None,
        "appPlatformVersion": host.get("version") or None,
        "operatingSystemPlatform": "Unix",
        "platformArchitecture": platform,
        "executionProfile": f"{profile} ({platform})" if platform else profile,
        "executionProfileName": profile,
    }


def _envelope(
    message: str,
    moment: datetime,
    *,
    operation: tuple[str, str],
    client: str,
    host: Mapping[str, Any],
    values: Mapping[str, Any],
    level: tuple[str, int] = ("information", INFORMATION),
) -> dict[str, Any]:
    """Return an event.

    Args:
        message: the event's name.
        moment: its time.
        operation: the run, and what is unique within the run; an event that is sent again has both again.
        client: the host's name.
        host: version and platform of the agent.
        values: its dimensions; those that are None are left out.
        level: name and number of its severity.
    """
    return {
        "appName": "vcagent",
        "appHost": client,
        "itemType": level[0],
        "severityLevel": level[1],
        "message": message,
        "timestamp": _time(moment),
        "operation_Id": _guid(" ".join(operation)),
        "operation_ParentId": _guid(operation[0]),
        "sdkVersion": host.get("version", ""),
        "customDimensions": {key: value for key, value in values.items() if value is not None},
    }


class EventHubSink(Sink):
    """A sink that sends records, the outcomes of steps, and the agent's log to event hubs.

    Args:
        connection: the connection string of their namespace.
        context: the run.
        signals: what it sends, of ``metrics`` and ``traces``; empty for both, or for metrics alone if the
            connection string names a hub.
    """

    batch = 500

    def __init__(self, connection: str, context: SinkContext, signals: frozenset[str] = frozenset()) -> None:
        needed("eventhubs", "eventhubs", "azure.eventhub")
        parts = dict(part.partition("=")[::2] for part in connection.split(";") if part)
        lowered = {key.strip().lower(): value for key, value in parts.items()}
        endpoint = re.fullmatch(r"sb://([\w.-]+(?::[0-9]{1,5})?)/?", lowered.get("endpoint", ""))
        if not endpoint or not (lowered.get("sharedaccesskey") or lowered.get("sharedaccesssignature")):
            raise UsageError(
                "the sink eventhubs needs the connection string of a namespace",
                remedy="export EVENT_HUB='Endpoint=sb://…/;SharedAccessKeyName=…;SharedAccessKey=…'"
                ", and --sink 'eventhubs:${EVENT_HUB}'",
            )
        own = lowered.get("entitypath")
        self._signals = signals or frozenset(_SIGNALS if not own else _SIGNALS[:1])
        if own and "traces" in self._signals:
            raise UsageError(
                f"the sink eventhubs would send metrics and traces to the one hub {own}",
                remedy=f"leave EntityPath out, so that traces go to the hub {TRACES_HUB}; or signals=metrics",
            )
        self._hubs = {"metrics": own or METRICS_HUB, "traces": TRACES_HUB}
        # Traces alone have a name of their own: the journal must not note the metrics as delivered.
        main = "metrics" if "metrics" in self._signals else "traces"
        self.name = f"eventhubs {endpoint[1]}/{self._hubs[main]}"
        self._connection = connection
        self._context = context
        self._clients: dict[str, Any] = {}
        self._sent = 0

    @override
    def write(self, records: list[MetricRecord], position: int) -> int:
        if "metrics" in self._signals:
            new = ((one.record_id, self._body(one)) for one in records if one.record_id > self._sent)
            for record_id, reason in self._send("metrics", new):
                if reason:
                    raise RecordsRefusedError(reason)
                self._sent = record_id  # not sent again if this call fails later
        return position + len(records)

    @override
    def pieces(self) -> Iterator[Piece]:
        if "metrics" in self._signals:
            yield Piece("outcomes", self._send_outcomes, self._send_outcomes)
        if "traces" in self._signals:
            for start in log_parts(self._context.run_dir):
                send = partial(self._send_log, start)
                yield Piece(f"log {start}", send, send)

    def _send_outcomes(self, only: frozenset[int] | None = None) -> None:
        run = RunDocument.read(self._context.run_dir)
        events = (outcome_event(step, run, self._context.host) for step in run.steps)
        self._send_piece("metrics", (event for event in events if event), only)

    def _send_log(self, start: int, only: frozenset[int] | None = None) -> None:
        run, host = RunDocument.read(self._context.run_dir), self._context.host
        entries = enumerate(log_entries(self._context, start))
        events = (trace_event(one, f"log {start} {row}", run, host) for row, one in entries)
        self._send_piece("traces", events, only)

    def _send_piece(
        self, signal: str, events: Iterator[Mapping[str, Any]], only: frozenset[int] | None
    ) -> None:
        """Send the events of a piece, or those with some numbers.

        Raises:
            EntriesRefusedError: if the hub refuses some of them.
        """
        sent = self._send(signal, ((number, _encoded(event)) for number, event in numbered(events, only)))
        if refused := {number: reason for number, reason in sent if reason}:
            raise EntriesRefusedError(refused)

    def _send(self, signal: str, events: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
        """Send numbered events in batches; yield each number, with the reason if the hub refused the event.

        Raises:
            PieceRefusedError: if the namespace does not have the hub of the traces.
        """
        from azure.eventhub.exceptions import EventHubError

        client = self._open(self._hubs[signal])
        try:
            for part in _batches(events):
                yield from _sent_apart(client, part)
        except EventHubError as error:
            self.close()  # the next attempt connects again
            if signal == "traces" and "amqp:not-found" in str(error):
                raise PieceRefusedError(
                    f"the namespace has no hub {self._hubs[signal]} for traces ({error}); create it, or send "
                    "metrics alone: eventhubs:${EVENT_HUB},signals=metrics"
                ) from error
            raise SinkUnavailableError(f"{self._hubs[signal]}: {error}") from error

    def _open(self, hub: str) -> Any:
        if hub not in self._clients:
            from azure.eventhub import EventHubProducerClient

            self._clients[hub] = EventHubProducerClient.from_connection_string(
                self._connection, eventhub_name=hub, retry_total=0
            )
        return self._clients[hub]

    def _body(self, record: MetricRecord) -> bytes:
        context = self._context.context(str(record.metadata.get(CONTEXT_KEY, "")))
        return _encoded(event_of(record, context, self._context.host))

    @override
    def close(self) -> None:
        while self._clients:
            _, client = self._clients.popitem()
            client.close()


def _sent_apart(client: Any, part: list[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
    """Send a batch; if the hub refuses it, send halves, so that only the events at fault are left out."""
    from azure.eventhub import EventData
    from azure.eventhub.exceptions import EventDataSendError

    batch = client.create_batch()
    try:
        for _, body in part:
            batch.add(EventData(body))
        client.send_batch(batch)
    except (ValueError, EventDataSendError) as error:
        if len(part) == 1:
            yield part[0][0], str(error)
            return
        middle = len(part) // 2
        yield from _sent_apart(client, part[:middle])
        yield from _sent_apart(client, part[middle:])
    else:
        yield from ((number, "") for number, _ in part)


def _batches(events: Iterator[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    batch: list[tuple[int, bytes]] = []
    size = 0
    for record_id, body in events:
        if batch and size + len(body) > _LARGEST_BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((record_id, body))
        size += len(body)
    if batch:
        yield batch


def _encoded(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def _guid(text: str) -> str:
    digits = hashlib.sha256(text.encode()).hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


def _milliseconds(start: datetime, end: datetime) -> float:
    return round((end - start).total_seconds() * 1000, 3)


def _time(moment: datetime) -> str:
    """Return a time in .NET's format, with 7 decimals."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f") + "0Z"


def open_event_hubs(settings: str, context: SinkContext) -> Sink:
    """Open ``eventhubs:CONNECTION STRING[,signals=metrics+traces]``.

    Without an EntityPath the hubs are ``telemetry-metrics`` and ``telemetry-logs``.
    """
    read = parse_settings("eventhubs", settings, "${EVENT_HUB}", ("signals",))
    signals = frozenset(filter(None, read.options.get("signals", "").split("+")))
    if unknown := signals - {*_SIGNALS}:
        raise UsageError(f"Event Hubs has no signal {min(unknown)!r}", remedy="signals=metrics+traces")
    return EventHubSink(read.target, context, signals)
