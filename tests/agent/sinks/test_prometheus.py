"""The newest values for Prometheus: names by its rules, a file, an endpoint."""

from __future__ import annotations

import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from agent.core.errors import UsageError
from agent.sinks import SinkContext, flush
from agent.sinks.prometheus import ScrapeSink, metric_name, open_pushgateway, open_scrape, open_textfile
from agent.store.journal import Journal
from tests.agent.store.test_journal import record
from tests.waiting import LIMIT_S

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
        with urllib.request.urlopen(f"http://127.0.0.1:{sink.port}/metrics", timeout=LIMIT_S) as answer:
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


def test_a_refused_record_is_not_sent_with_the_next_ones(journal: Journal, tmp_path: Path) -> None:
    """Count what a gateway gets that refuses one metric, as it does if two sources contradict each other."""
    bodies: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            refused = "vcagent_wrong" in body
            bodies.extend([] if refused else [body])
            self.send_response(400 if refused else 200)
            self.end_headers()
            self.wfile.write(b"inconsistent" if refused else b"")

        def log_message(self, *_: object) -> None:
            """Ignore the message."""

    wrong, last = record(3.0), record(4.5)
    wrong.metric = "wrong"
    journal.add_records([wrong, last])
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        sink = open_pushgateway(f"http://127.0.0.1:{server.server_port}", context(tmp_path))
        assert flush(journal, sink, wait_s=0) == ""
    finally:
        server.shutdown()
        server.server_close()
    ((refused, reason),) = journal.refused(sink.name)
    assert (refused.metric, reason) == ("wrong", "inconsistent")
    assert f"{SERIES} 4.5" in bodies[-1]


def test_half_a_character_stops_no_textfile(journal: Journal, tmp_path: Path) -> None:
    odd = record(3.0)
    odd.scenario = "half a pair \ud800"
    journal.add_records([odd])
    path = tmp_path / "vcagent.prom"
    assert flush(journal, open_textfile(str(path), context(tmp_path)), wait_s=0) == ""
    assert 'scenario="half a pair ?"' in path.read_text()
