from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from agent.core.records import MetricRecord, Relativity
from agent.report.figures import host_figures
from agent.report.host_usage import HostUsage
from agent.report.plots import unbroken
from agent.store.metric_lines import is_monitor

START = datetime(2026, 4, 1, tzinfo=timezone.utc)


def record(metric: str, value: float, unit: str, after_s: float = 0, **metadata: str | int) -> MetricRecord:
    moment = START + timedelta(seconds=after_s)
    return MetricRecord(
        record_id=1, timestamp=moment, experiment_id="e", run_id="r", client_id="c", profile="p",
        tool_name="HostMonitor", tool_version="", scenario="host", scenario_start=moment, scenario_end=moment,
        metric=metric, value=value, unit=unit, relativity=Relativity.UNDEFINED, metadata=metadata,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("records", "name", "devices"),
    [
        (
            [record("gpu_10_power", 1, "watts"), record("gpu_2_power", 1, "watts")],
            "gpu power",
            ["GPU 2", "GPU 10"],
        ),
        ([record("gpu0_power", 1, "watts")], "gpu power", ["GPU 0"]),
        ([record("gpu_power", 1, "watts", gpu_index=3)], "gpu power", ["GPU 3"]),
        ([record("network_received", 1, "bytes/s", interface="eth0")], "network received", ["eth0"]),
        ([record("cpu_utilization", 1, "ratio")], "cpu utilization", [""]),
    ],
)
def test_devices_are_series_of_one_panel(records: list[MetricRecord], name: str, devices: list[str]) -> None:
    usage = HostUsage(START)
    for one in records:
        usage.add(one)
    (panel,) = usage.panels()
    assert panel.name == name
    assert list(panel.series) == devices


def test_gpus_come_before_the_rest_and_load_before_power() -> None:
    usage = HostUsage(START)
    for metric in ("swap_used", "memory_used", "cpu_utilization", "gpu_power", "gpu_utilization"):
        usage.add(record(metric, 1, "count"))
    assert [figure.title for figure in host_figures(usage)] == [
        "GPU utilization", "GPU power", "CPU utilization", "Memory used", "Swap used",
    ]  # fmt: skip


def test_only_the_span_that_is_asked_for_is_drawn() -> None:
    usage = HostUsage(START)
    for second in range(100):
        usage.add(record("cpu_utilization", second / 100, "ratio", second))
    (figure,) = host_figures(usage, start_s=10, end_s=20)
    assert figure.note == "mean 15\u00a0%, highest 20\u00a0%"
    assert host_figures(usage, start_s=1000, end_s=2000) == []


def test_more_devices_than_colours_are_drawn_alike() -> None:
    usage = HostUsage(START)
    for gpu in range(16):
        usage.add(record("gpu_utilization", 0.5, "ratio", gpu_index=gpu))
    (figure,) = host_figures(usage)
    assert figure.legend == ()
    assert figure.note.startswith("16 devices")


def test_no_line_is_drawn_over_a_gap() -> None:
    usage = HostUsage(START)
    for second in (*range(10), *range(50, 60)):
        usage.add(record("cpu_utilization", 0.5, "ratio", second))
    (figure,) = host_figures(usage)
    assert str(figure.svg).count('class="line s1"') == 2
    assert unbroken([(0, 1), (60, 1), (120, 1)]) == [[(0, 1), (60, 1), (120, 1)]]
    assert unbroken([(0, 1)]) == [[(0, 1)]]


def test_details_of_gpus_are_not_drawn() -> None:
    usage = HostUsage(START)
    usage.add(record("gpu0_sm_clock", 1e9, "hertz"))
    usage.add(replace(record("gpu0_video_clock", 1e9, "hertz"), verbosity=3))
    assert [figure.title for figure in host_figures(usage)] == ["GPU sm clock"]


def test_monitors_are_told_from_workloads_by_name() -> None:
    assert is_monitor("HostMonitor")
    assert not is_monitor("loadgen")
