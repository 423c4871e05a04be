"""The Grafana dashboard asks for metrics and labels that the Prometheus sinks write, in their units."""

from __future__ import annotations

import json
import re
import runpy
from datetime import datetime, timezone
from html import unescape
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actions.monitors.gpu_metrics import _HEADLINES, GpuMetrics
from actions.monitors.host import metrics_between
from agent.core.records import MetricRecord
from agent.facts.nvml_library import CLOCK_EVENTS, NvmlGpu
from agent.sinks import SinkContext
from agent.sinks.prometheus import UNITS, Newest
from parsers.loadgen import PARSER
from tests.actions.monitors.test_host import AFTER, BEFORE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.core.records import Metric

pytest.importorskip("prometheus_client")

ROOT = Path(__file__).parents[1]
DASHBOARD = ROOT / "docs" / "grafana" / "vcagent.json"
LOGS = ROOT / "tests" / "parsers" / "loadgen" / "logs"
NOW = datetime(2026, 4, 1, tzinfo=timezone.utc)
PANEL_UNITS = {
    "seconds": {"s"}, "bytes": {"bytes"}, "ratio": {"percentunit"}, "watts": {"watt"}, "hertz": {"hertz"},
    "celsius": {"celsius"}, "bytes/s": {"binBps"}, "count": {"none"}, "tokens/s": {"none"},
    "samples/s": {"none"},
}  # fmt: skip
"""What Grafana calls the base units of records."""
SERVERS_LABELS = {"instance", "job"}
"""What Prometheus and the Pushgateway add."""


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions() -> dict[str, str]:
    """Return the unit of each expression's panel."""
    return {
        target["expr"]: panel["fieldConfig"]["defaults"]["unit"]
        for panel in panels() for target in panel["targets"]
    }  # fmt: skip


def written() -> Iterator[tuple[str, Metric]]:
    """Return the metrics of LoadGen's logs and the monitors, with the tool."""
    for log in sorted(LOGS.iterdir()):
        for output in PARSER.parse(log):
            yield from (("loadgen", metric) for metric in output.metrics)
    for metric in metrics_between(BEFORE, AFTER):
        yield "HostMonitor", metric
    yield from (("HostMonitor", one) for one in metrics_between(AFTER, _later()))
    gpu = GpuMetrics(NvmlGpu(3, "NVIDIA H200"), "570")
    every = sum(CLOCK_EVENTS)
    for metric in (*gpu.gauges(dict.fromkeys(_HEADLINES, 0.5), NOW), *gpu.clock_events(0, every)):
        yield "NvidiaSmiMonitor", metric


def _later() -> Any:
    from dataclasses import replace

    counters = {name: value + 100 for name, value in AFTER.counters.items()}
    return replace(AFTER, at_s=AFTER.at_s + 1, counters=counters)


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The metrics that a sink shows, each with its labels."""
    newest = Newest(SinkContext(tmp_path_factory.mktemp("run"), "r"))
    for number, (tool, metric) in enumerate(written()):
        newest.take(
            [
                MetricRecord(
                    record_id=number, timestamp=NOW, experiment_id="e", run_id="r", client_id="h",
                    profile="P", tool_name=tool, tool_version="", scenario="s", scenario_start=NOW,
                    scenario_end=NOW, metric=metric.name, value=metric.value, unit=metric.unit,
                    relativity=metric.relativity, metadata=metric.metadata,
                )
            ]
        )  # fmt: skip
    return {family.name: set(family.samples[0].labels) for family in newest.collect()}


def asked(expression: str, families: dict[str, set[str]]) -> list[list[str]]:
    """Return the metrics that each selector of an expression finds."""
    patterns = re.findall(r'__name__=~"([^"]+)"', expression)
    names = re.findall(r"\bvcagent_\w+", re.sub(r'"[^"]*"', "", expression))
    assert patterns or names, expression
    return [[name for name in families if re.fullmatch(pattern, name)] for pattern in (*patterns, *names)]


@pytest.mark.parametrize("expression", expressions())
def test_each_expression_asks_for_what_a_sink_writes(expression: str, families: dict[str, set[str]]) -> None:
    for found in asked(expression, families):
        assert found, expression
        labels = set(re.findall(r"(\w+)\s*=~?\s*\"", expression)) - {"__name__"}
        assert labels <= set.intersection(*(families[name] for name in found)) | SERVERS_LABELS


@pytest.mark.parametrize("expression", expressions())
def test_each_panel_has_the_unit_of_its_metrics(expression: str, families: dict[str, set[str]]) -> None:
    endings = {ending: unit for unit, ending in UNITS.items() if ending}
    for names in asked(expression, families):
        for name in names:
            longest = max((ending for ending in endings if name.endswith(ending)), key=len, default="")
            unit = endings.get(longest, "count")
            is_flag = "clock_event" in name  # a ratio that is 0 or 1
            assert expressions()[expression] in ({"none"} if is_flag else PANEL_UNITS[unit]), name


def test_the_picture_of_the_layout_is_current() -> None:
    found = runpy.run_path(str(ROOT / "docs" / "grafana_layout.py"))
    dashboard = json.loads(DASHBOARD.read_text())
    picture = DASHBOARD.with_name("layout.svg").read_text()
    assert picture == found["drawn"](dashboard), "run python docs/grafana_layout.py"
    for panel in panels():
        assert found["metrics_of"](panel), panel["title"]
        assert panel["title"] in unescape(picture)


def test_legends_name_labels_that_there_are(families: dict[str, set[str]]) -> None:
    for panel in panels():
        for target in panel["targets"]:
            labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"])) - {"__name__"} - SERVERS_LABELS
            assert all(
                labels <= families[name] for found in asked(target["expr"], families) for name in found
            )


def test_variables_are_defined_and_asked_of_known_metrics(families: dict[str, set[str]]) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    text = json.dumps(dashboard)
    used = set(re.findall(r"\$\{?([a-z]+)\b", text))
    assert used == set(variables)
    for variable in variables.values():
        if variable["type"] == "query":
            name, label = re.fullmatch(
                r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["definition"]
            ).groups()  # type: ignore[union-attr]
            assert label in families[name]


def test_panels_do_not_overlap_and_have_their_own_numbers() -> None:
    everything = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    for one, other in combinations((panel["gridPos"] for panel in everything), 2):
        apart = (
            one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        )  # fmt: skip
        assert apart
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in everything)
