"""Records as VirtualClient's events in Azure Event Hubs: ``--sink eventhubs:${CONNECTION}``.

The envelope is that of Core/Logging/EventHubTelemetryLogger.cs, which VirtualClient's tables and queries
read. If an event was sent but its success was not noted, it is sent again, with the same ``operation_Id``
and ``recordId``.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from agent.core.errors import UsageError
from agent.core.records import CONTEXT_KEY, categorization
from agent.sinks.base import RecordsRefusedError, Sink
from agent.sinks.csv_file import INFORMATION
from agent.sinks.settings import needed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from agent.core.records import MetricRecord
    from agent.sinks.opening import SinkContext

METRICS_HUB = "telemetry-metrics"
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
    platform = host.get("platform") or None
    runtime = context.get("metadata_runtime", {})
    values: dict[str, Any] = {
        "transactionId": _guid(f"{record.run_id} {record.scenario}"),
        "durationMs": round((record.scenario_end - record.scenario_start).total_seconds() * 1000, 3),
        "recordId": record.record_id,
        "experimentId": record.experiment_id,
        "clientId": record.client_id,
        "clientInstance": _guid(record.run_id),
        "appVersion": host.get("version") or None,
        "appPlatformVersion": host.get("version") or None,
        "executionArguments": runtime.get("executionArguments"),
        "executionSystem": context.get("system") or None,
        "operatingSystemPlatform": "Unix",
        "platformArchitecture": platform,
        "executionProfile": f"{record.profile} ({platform})" if platform else record.profile,
        "executionProfileName": record.profile,
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
    return {
        "appName": "vcagent",
        "appHost": record.client_id,
        "itemType": "information",
        "severityLevel": INFORMATION,
        "message": f"{record.tool_name.replace(' ', '')}.ScenarioResult",
        "timestamp": _time(record.timestamp),
        "operation_Id": _guid(f"{record.run_id} {record.record_id}"),
        "operation_ParentId": _guid(record.run_id),
        "sdkVersion": host.get("version", ""),
        "customDimensions": {key: value for key, value in values.items() if value is not None},
    }


class EventHubSink(Sink):
    """A sink that sends records to an event hub.

    Args:
        connection: its connection string.
        context: the run.
    """

    batch = 500

    def __init__(self, connection: str, context: SinkContext) -> None:
        needed("eventhubs", "eventhubs", "azure.eventhub")
        parts = dict(part.partition("=")[::2] for part in connection.split(";") if part)
        lowered = {key.strip().lower(): value for key, value in parts.items()}
        endpoint = re.fullmatch(r"sb://([^/]+)/?", lowered.get("endpoint", ""))
        if not endpoint or not ({"sharedaccesskey", "sharedaccesssignature"} & set(lowered)):
            raise UsageError(
                "the sink eventhubs needs the connection string of a namespace",
                remedy="export EVENT_HUB='Endpoint=sb://…/;SharedAccessKeyName=…;SharedAccessKey=…'"
                ", and --sink 'eventhubs:${EVENT_HUB}'",
            )
        hub = lowered.get("entitypath") or METRICS_HUB
        self.name = f"eventhubs {endpoint[1]}/{hub}"
        self._connection = connection
        self._hub = hub
        self._context = context
        self._client: Any = None
        self._sent = 0

    @override
    def write(self, records: list[MetricRecord], position: int) -> int:
        from azure.eventhub import EventData
        from azure.eventhub.exceptions import EventDataSendError, EventHubError

        client = self._open()
        try:
            new = [record for record in records if record.record_id > self._sent]
            for events in _batches((record.record_id, self._body(record)) for record in new):
                batch = client.create_batch()
                for _, body in events:
                    batch.add(EventData(body))
                client.send_batch(batch)
                self._sent = events[-1][0]  # not sent again if this call fails later
        except (ValueError, EventDataSendError) as error:  # larger than the hub accepts
            raise RecordsRefusedError(str(error)) from error
        except EventHubError:
            self.close()  # the next attempt connects again
            raise
        return position + len(records)

    def _open(self) -> Any:
        if self._client is None:
            from azure.eventhub import EventHubProducerClient

            self._client = EventHubProducerClient.from_connection_string(
                self._connection, eventhub_name=self._hub, retry_total=0
            )
        return self._client

    def _body(self, record: MetricRecord) -> bytes:
        context = self._context.context(str(record.metadata.get(CONTEXT_KEY, "")))
        return json.dumps(event_of(record, context, self._context.host), separators=(",", ":")).encode()

    @override
    def close(self) -> None:
        if self._client:
            client, self._client = self._client, None
            client.close()


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


def _guid(text: str) -> str:
    digits = hashlib.sha256(text.encode()).hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


def _time(moment: datetime) -> str:
    """Return a time in .NET's format, with 7 decimals."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f") + "0Z"


def open_event_hubs(settings: str, context: SinkContext) -> Sink:
    """Open ``eventhubs:CONNECTION STRING``; without an EntityPath the hub is ``telemetry-metrics``."""
    return EventHubSink(settings, context)
