"""Records for Prometheus: a file for node_exporter, the Pushgateway, or an endpoint to scrape during the run.

Prometheus keeps the newest value of a series, so each of these sinks shows the newest record of each metric.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

from typing_extensions import override

from agent.core.errors import UsageError
from agent.core.records import CONTEXT_KEY
from agent.sinks.base import RecordsRefusedError, Sink, writable
from agent.sinks.settings import local_path, needed, parse_settings, require_address, without_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.core.records import MetricRecord
    from agent.sinks.opening import SinkContext

PREFIX = "vcagent_"
UNITS = {
    "seconds": "_seconds",
    "bytes": "_bytes",
    "ratio": "_ratio",
    "watts": "_watts",
    "joules": "_joules",
    "celsius": "_celsius",
    "hertz": "_hertz",
    "tokens/s": "_tokens_per_second",
    "samples/s": "_samples_per_second",
    "queries/s": "_queries_per_second",
    "requests/s": "_requests_per_second",
    "bytes/s": "_bytes_per_second",
    "count": "",
}
"""Suffixes of metric names by unit; see "Metric and label naming" on prometheus.io."""
_LABELS = ("run_id", "scenario", "tool", "device")
_INFO_LABELS = ("run_id", "experiment_id", "client_id", "profile", "gpu", "driver")
_BAD_REQUEST = 400


def metric_name(name: str, unit: str) -> str:
    """Return a metric's name by Prometheus' rules: with the prefix, and the base unit at the end."""
    ending = UNITS.get(unit, f"_{unit.replace('/s', '_per_second')}" if unit else "")
    plain = re.sub(r"[^a-zA-Z0-9_]+", "_", name).strip("_")
    ending = re.sub(r"[^a-zA-Z0-9_]+", "_", ending)
    return f"{PREFIX}{plain}{'' if f'_{plain}'.endswith(ending) else ending}"


class Newest:
    """The newest record of each series, as a collector of prometheus_client."""

    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._series: dict[str, dict[tuple[str, ...], float]] = {}
        self._help: dict[str, str] = {}
        self._info: dict[tuple[str, ...], None] = {}
        self._newest = 0.0
        self._lock = threading.Lock()  # a scrape reads in its own thread

    def take(self, records: list[MetricRecord]) -> None:
        """Add records."""
        for record in records:
            name = metric_name(record.metric, record.unit)
            device = str(record.metadata.get("gpu_index", record.metadata.get("device", "")))
            labels = tuple(map(writable, (record.run_id, record.scenario, record.tool_name, device)))
            with self._lock:
                self._series.setdefault(name, {})[labels] = record.value
            self._help.setdefault(name, writable(record.description or record.metric))
            self._newest = max(self._newest, record.timestamp.timestamp())
            host = self._context.context(str(record.metadata.get(CONTEXT_KEY, ""))).get("metadata_host", {})
            info = (
                record.run_id, record.experiment_id, record.client_id, record.profile,
                str(host.get("gpuName", "")), str(host.get("gpuDriverVersion", "")),
            )  # fmt: skip
            self._info = {tuple(map(writable, info)): None}

    def copied(self) -> tuple[Any, ...]:
        """Return the present values, for ``restore``."""
        series = {name: dict(values) for name, values in self._series.items()}
        return series, dict(self._help), dict(self._info), self._newest

    def restore(self, values: tuple[Any, ...]) -> None:
        """Return to earlier values."""
        with self._lock:
            self._series, self._help, self._info, self._newest = values

    @property
    def empty(self) -> bool:
        """True if no records were added yet."""
        return not self._series

    def collect(self) -> Iterator[Any]:
        """Return the metrics in prometheus_client's form."""
        from prometheus_client.core import GaugeMetricFamily

        with self._lock:
            everything = [(name, dict(series)) for name, series in sorted(self._series.items())]
        for name, series in everything:
            family = GaugeMetricFamily(name, self._help.get(name, name), labels=_LABELS)
            for labels, value in series.items():
                family.add_metric(labels, value)
            yield family
        if self._info:
            info = GaugeMetricFamily(f"{PREFIX}run_info", "The run of the records.", labels=_INFO_LABELS)
            for labels in self._info:
                info.add_metric(labels, 1)
            yield info
            yield GaugeMetricFamily(
                f"{PREFIX}last_record_timestamp_seconds", "Time of the newest record.", self._newest
            )


class _PrometheusSink(Sink):
    """Common part of the three sinks."""

    def __init__(self, name: str, context: SinkContext, kind: str) -> None:
        needed(kind, "prometheus", "prometheus_client")
        from prometheus_client import CollectorRegistry

        self.name = name
        self._newest = Newest(context)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._newest)

    @override
    def intact(self, position: int) -> bool:
        """Return False if this process has no values yet, so that it reads all records of the run again."""
        return position == 0 or not self._newest.empty

    @override
    def write(self, records: list[MetricRecord], position: int) -> int:
        self._newest.take(records)
        self._show()
        return position + len(records)

    def _show(self) -> None:
        """Send the newest values to Prometheus."""


class TextfileSink(_PrometheusSink):
    """A file for node_exporter's textfile collector, replaced as a whole.

    Args:
        path: the file, ``*.prom``.
        context: the run.
    """

    interval_s = 5.0

    def __init__(self, path: Path, context: SinkContext) -> None:
        super().__init__(f"prometheus-textfile {path}", context, "prometheus-textfile")
        self._path = path

    @override
    def _show(self) -> None:
        from prometheus_client import write_to_textfile

        write_to_textfile(str(self._path), self._registry)


class PushgatewaySink(_PrometheusSink):
    """A Pushgateway; the host's group is replaced, so it shows the newest run of a host.

    Args:
        url: the Pushgateway's address.
        job: the group's job.
        client_id: the group's instance.
        context: the run.
    """

    interval_s = 5.0

    def __init__(self, url: str, job: str, client_id: str, context: SinkContext) -> None:
        super().__init__(f"pushgateway {without_credentials(url)}", context, "pushgateway")
        self._url = url
        self._job = job
        self._instance = client_id

    @override
    def write(self, records: list[MetricRecord], position: int) -> int:
        self._instance = records[-1].client_id if records else self._instance
        before = self._newest.copied()
        try:
            return super().write(records, position)
        except RecordsRefusedError:
            self._newest.restore(before)  # else the values at fault would be sent with the next ones
            raise

    @override
    def _show(self) -> None:
        from prometheus_client import push_to_gateway

        try:
            push_to_gateway(
                self._url, self._job, self._registry, grouping_key={"instance": self._instance}, timeout=10
            )
        except HTTPError as error:
            reason = error.read(500).decode("utf-8", "replace").strip() or str(error)
            if error.code == _BAD_REQUEST:
                raise RecordsRefusedError(reason) from error
            raise


class ScrapeSink(_PrometheusSink):
    """An endpoint that Prometheus scrapes during the run.

    Args:
        host: the address to listen on.
        port: the port; 0 for any free port.
        context: the run.
    """

    def __init__(self, host: str, port: int, context: SinkContext) -> None:
        super().__init__(f"prometheus {host}:{port}", context, "prometheus")
        self._at = (host, port)
        self._server: Any = None

    @property
    def port(self) -> int:
        """The port that it listens on; 0 if it does not listen yet."""
        return int(self._server.server_port) if self._server else 0

    @override
    def start(self) -> None:
        if self._server is None:
            from prometheus_client import start_http_server

            self._server, _ = start_http_server(self._at[1], addr=self._at[0], registry=self._registry)

    @override
    def close(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()


def open_textfile(settings: str, context: SinkContext) -> Sink:
    """Open ``prometheus-textfile:FILE.prom``."""
    example = "/var/lib/node_exporter/vcagent.prom"
    target = parse_settings("prometheus-textfile", settings, example).target
    path = local_path("prometheus-textfile", target, example, context.working_dir)
    if path.suffix != ".prom":
        raise UsageError(
            f"node_exporter reads files that end with .prom, not {path.name[:100]}",
            remedy=f"--sink prometheus-textfile:{example}",
        )
    return TextfileSink(path, context)


def open_pushgateway(settings: str, context: SinkContext) -> Sink:
    """Open ``pushgateway:URL[,job=NAME]``."""
    example = "http://gateway:9091"
    read = parse_settings("pushgateway", settings, example, ("job",))
    url = read.target if "://" in read.target else f"http://{read.target}"
    require_address("pushgateway", url, ("http", "https"), example)
    job = read.options.get("job", "vcagent")
    if not job:
        raise UsageError(
            "the job of the Pushgateway is empty", remedy=f"--sink pushgateway:{example},job=NAME"
        )
    return PushgatewaySink(url, job, "", context)


def open_scrape(settings: str, context: SinkContext) -> Sink:
    """Open ``prometheus:ADDRESS:PORT``; without an address only this host can scrape it."""
    target = parse_settings("prometheus", settings, "127.0.0.1:9464").target
    found = re.fullmatch(r"([\w.:%\[\]-]*):([0-9]{1,5})", target)
    host, port = found.groups() if found else ("", "")
    if not found or int(port) > 65535:  # noqa: PLR2004 - the highest port
        raise UsageError(
            f"{target[-100:]!r} is not an address with a port", remedy="--sink prometheus:127.0.0.1:9464"
        )
    return ScrapeSink(host.strip("[]") or "127.0.0.1", int(port), context)
