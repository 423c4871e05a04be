"""The newest values for Prometheus: names by its rules, a file, an endpoint."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING

import pytest

from agent.core.errors import UsageError
from agent.sinks import SinkContext, flush
from agent.sinks.prometheus import ScrapeSink, metric_name, open_pushgateway, open_scrape, open_textfile
from agent.store.journal import Journal
from tests.agent.store.test_journal import record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("prometheus_client")

SERIES = 'vcagent_ttft_p99_seconds{device="",run_id="r",scenario="m/Server/performance",tool="LoadGen"}'


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.add_records([record(1.5), record(2.5)])
        yield journal


def context(tmp_path: Path) -> SinkContext:
    return SinkContext(tmp_path, "r")


@pytest.mark.parametrize(
    ("name", "unit", "expected"),
    [
        ("ttft_p99", "seconds", "vcagent_ttft_p99_seconds"),
        ("tokens_per_second", "tokens/s", "vcagent_tokens_per_second"),
        ("gpu 0/power", "watts", "vcagent_gpu_0_power_watts"),
        ("errors", "count", "vcagent_errors"),
        ("read", "MB/s", "vcagent_read_MB_per_second"),
    ],
)
def test_names(name: str, unit: str, expected: str) -> None:
    assert metric_name(name, unit) == expected


def test_the_textfile_has_the_newest_value(journal: Journal, tmp_path: Path) -> None:
    path = tmp_path / "vcagent.prom"
    assert flush(journal, open_textfile(str(path), context(tmp_path)), wait_s=0) == ""
    lines = path.read_text().splitlines()
    assert f"{SERIES} 2.5" in lines
    assert not [line for line in lines if line.startswith(SERIES) and not line.endswith(" 2.5")]


def test_another_process_shows_all_metrics_again(journal: Journal, tmp_path: Path) -> None:
    path = tmp_path / "vcagent.prom"
    flush(journal, open_textfile(str(path), context(tmp_path)), wait_s=0)
    other = record(9.0)
    other.metric = "later"
    journal.add_records([other])
    flush(journal, open_textfile(str(path), context(tmp_path)), wait_s=0)
    assert f"{SERIES} 2.5" in path.read_text()
    assert "vcagent_later_seconds" in path.read_text()


def test_the_endpoint_is_there_while_the_run_goes_on(journal: Journal, tmp_path: Path) -> None:
    sink = open_scrape("127.0.0.1:0", context(tmp_path))
    assert isinstance(sink, ScrapeSink)
    sink.start()
    try:
        sink.write(journal.records_after(0), 0)
        with urllib.request.urlopen(f"http://127.0.0.1:{sink.port}/metrics", timeout=10) as answer:
            assert f"{SERIES} 2.5" in answer.read().decode()
    finally:
        sink.close()


def test_settings_that_cannot_be_used(tmp_path: Path) -> None:
    for call, text in (
        (open_textfile, "/data/x.txt"), (open_textfile, ""), (open_scrape, "host"), (open_scrape, "h:99999"),
        (open_pushgateway, ""), (open_pushgateway, "http://g,jb=1"),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            call(text, context(tmp_path))
