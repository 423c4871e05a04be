"""metrics.csv: VirtualClient's 29 columns in its order, every field quoted."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from agent.core.records import CONTEXT_KEY, categorization
from agent.core.terminal import plain_cell
from agent.sinks.base import FileSink
from agent.store.journal import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from agent.core.records import MetadataValue, MetricRecord

COLUMNS = (
    "Timestamp", "ExperimentId", "ExecutionSystem", "ProfileName", "ClientId", "ToolName", "ToolVersion",
    "ScenarioName", "ScenarioStartTime", "ScenarioEndTime", "MetricName", "MetricValue", "MetricUnit",
    "MetricCategorization", "MetricDescription", "MetricRelativity", "MetricVerbosity", "AppHost", "AppName",
    "AppVersion", "OperatingSystemPlatform", "PlatformArchitecture", "SeverityLevel", "OperationId",
    "OperationParentId", "Metadata", "Metadata_Host", "ToolResults", "Tags",
)  # fmt: skip
"""Columns of the metrics.csv that VirtualClient's file logger writes (microsoft/VirtualClient)."""

INFORMATION = 2
"""Severity of an ordinary record on VirtualClient's scale: 0 trace, 1 debug, 2 information, 3 warning,
4 error, 5 critical (its guide "0040-telemetry")."""


class CsvSink(FileSink):
    """Writes records the way VirtualClient does.

    Args:
        path: the file.
        host: facts about the host that every line carries: ``platform`` (linux-x64), ``os`` (Unix),
            ``version`` (of the agent), and ``system`` for the column ExecutionSystem.
        context: returns a record's context by its id, for the columns Metadata_Host and ToolResults.
    """

    def __init__(
        self,
        path: Path,
        host: Mapping[str, Any],
        context: Callable[[str], Mapping[str, Any]] = lambda _: {},
    ) -> None:
        super().__init__(path)
        told = (host.get("version", ""), host.get("os", "Unix"), host.get("platform", ""))
        self._host = ("vcagent", *map(str, told), str(INFORMATION))
        self._system = str(host.get("system", ""))
        self._of_context = lru_cache(maxsize=256)(lambda name: _context_cells(context(name)))
        self.header = f"{_cells(*COLUMNS)}\r\n"
        # 1, 1.0 and True are written differently.
        self._kind = lru_cache(maxsize=1024, typed=True)(self._cells_of_kind)

    def line(self, record: MetricRecord) -> str:
        """Return a record's row. A monitor's records share most cells, which are made only once."""
        first = _cells(
            _time(record.timestamp), record.experiment_id, self._system, record.profile, record.client_id,
            record.tool_name, record.tool_version, record.scenario, _time(record.scenario_start),
            _time(record.scenario_end),
        )  # fmt: skip
        last = self._kind(
            record.unit, record.description, record.relativity.value, record.verbosity, record.client_id,
            record.run_id, record.tags, tuple(record.metadata), *record.metadata.values(),
        )  # fmt: skip
        return f'{first},{_cells(record.metric)},"{record.value!r}",{last}\r\n'

    def _cells_of_kind(  # noqa: PLR0917 - what makes one kind of record
        self, unit: str, description: str, relativity: str, verbosity: int, client_id: str, run_id: str,
        tags: tuple[str, ...], names: tuple[str, ...], *values: MetadataValue,
    ) -> str:  # fmt: skip
        metadata = dict(zip(names, values, strict=True))
        host_metadata, results = self._of_context(str(metadata.pop(CONTEXT_KEY, "")))
        return _cells(
            unit, categorization(metadata), description, relativity, str(verbosity), client_id, *self._host,
            run_id, run_id, _pairs(metadata), host_metadata, results, ",".join(tags),
        )  # fmt: skip


@lru_cache(maxsize=1024)
def _cells(*values: str) -> str:
    return ",".join('"' + plain_cell(value).replace('"', '""') + '"' for value in values)


def _context_cells(context: Mapping[str, Any]) -> tuple[str, str]:
    r"""Return the cells Metadata_Host, without the host's parts as in VirtualClient, and ToolResults.

    A record stays on one line for every reader: line ends in the results are written as ``\n``.
    """
    host = context.get("metadata_host", {})
    scalars = {key: value for key, value in host.items() if not isinstance(value, (list, dict))}
    return _pairs(scalars), "\\n".join(str(context.get("tool_results", "")).splitlines())


def _pairs(values: Mapping[str, Any]) -> str:
    return ";".join(
        f"{key}={value if isinstance(value, str) else json_text(value)}" for key, value in values.items()
    )


@lru_cache(maxsize=64)  # a monitor's records have only a few different times
def _time(moment: Any) -> str:
    text: str = moment.isoformat()
    return text.replace("+00:00", "Z")
