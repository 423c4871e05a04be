"""Sinks with real servers that go down in the middle: nothing is lost, nothing is doubled."""

from __future__ import annotations

import gc
import json
import signal
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from agent.sinks import Delivering, flush
from agent.sinks.delivering import Delivery
from tests.lab.sinks.journals import context_of, filled
from tests.lab.sinks.padded_frames import pad_frames
from tests.lab.sinks.servers import Server, azurite, free_port, in_the_whole_lab, moto, of_debian

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.sinks import Sink
    from agent.store.journal import Journal

pytestmark = [pytest.mark.lab, in_the_whole_lab]
COUNT = 4000
WITHIN_S = 60.0


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with filled(tmp_path / "run", COUNT) as journal:
        yield journal


def deliver_over_a_kill(
    journal: Journal, sink: Sink, server: Server, how: signal.Signals, again: Callable[[], Sink]
) -> None:
    """Deliver two batches; the server is down for the third, and another process delivers the rest."""
    first = Delivery(journal, sink)
    assert first.step()
    assert first.step()
    server.end(how)
    with pytest.raises(Exception, match=r".+"):
        first.step()
    server.start()
    assert flush(journal, again(), wait_s=WITHIN_S) == ""
    assert journal.sink_position(sink.name)[0] == COUNT


def victoria_metrics(tmp_path: Path) -> Server:
    command = [
        of_debian("victoria-metrics"), f"-storageDataPath={tmp_path / 'vm'}", "-retentionPeriod=100y",
        "-httpListenAddr=127.0.0.1:PORT", "-dedup.minScrapeInterval=1ms", "-search.latencyOffset=0s",
    ]  # fmt: skip
    return Server(command, tmp_path / "vm.log", "/health")


def values_in_victoria_metrics(server: Server) -> tuple[int, set[float]]:
    server.get("/internal/force_flush")
    lines = server.get("/api/v1/export?match[]=" + quote('{run_id="r1"}')).splitlines()
    values = [value for line in lines for value in json.loads(line)["values"]]
    return len(values), set(values)


def test_otlp_to_victoria_metrics(journal: Journal, tmp_path: Path) -> None:
    otlp = pytest.importorskip("agent.sinks.otlp")
    with victoria_metrics(tmp_path) as server:

        def opened() -> Sink:
            return otlp.open_otlp(f"{server.url}/opentelemetry,signals=metrics", context_of(journal))

        # It acknowledges points seconds before they are on its disk: SIGKILL would lose these.
        deliver_over_a_kill(journal, opened(), server, signal.SIGTERM, opened)
        assert values_in_victoria_metrics(server) == (COUNT, set(map(float, range(COUNT))))
        sink = opened()
        journal.move_sink(sink.name, 0, 0)
        assert flush(journal, sink, wait_s=WITHIN_S) == ""
        assert values_in_victoria_metrics(server)[0] == COUNT


def test_a_run_of_last_year_arrives_late(tmp_path: Path) -> None:
    otlp = pytest.importorskip("agent.sinks.otlp")
    with (
        filled(tmp_path / "run", 10, age=timedelta(days=400)) as journal,
        victoria_metrics(tmp_path) as server,
    ):
        sink = otlp.open_otlp(f"{server.url}/opentelemetry,signals=metrics", context_of(journal))
        assert flush(journal, sink, wait_s=WITHIN_S) == ""
        assert values_in_victoria_metrics(server)[0] == 10


def prometheus(tmp_path: Path, target: str) -> Server:
    configuration = {
        "scrape_configs": [
            {
                "job_name": "vcagent",
                "scrape_interval": "1s",
                "honor_labels": True,
                "static_configs": [{"targets": [target]}],
            }
        ]
    }
    path = tmp_path / "prometheus.yml"
    path.write_text(json.dumps(configuration))
    command = [
        of_debian("prometheus"), f"--config.file={path}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        "--web.listen-address=127.0.0.1:PORT",
    ]  # fmt: skip
    return Server(command, tmp_path / "prometheus.log", "/-/ready")


def wait_for(answer: Callable[[], Any], wanted: Any) -> None:
    deadline, found = time.monotonic() + WITHIN_S, None
    while time.monotonic() < deadline:
        found = answer()
        if found == wanted:
            return
        time.sleep(0.2)
    assert found == wanted


def newest(server: Server) -> set[float]:
    reply = json.loads(server.get("/api/v1/query?query=" + quote('{__name__=~"vcagent_m.*_seconds"}')))
    return {float(series["value"][1]) for series in reply["data"]["result"]}


LAST = set(map(float, range(COUNT - 50, COUNT)))


def test_prometheus_scrapes_the_endpoint(journal: Journal, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    from agent.sinks.prometheus import open_scrape

    port = free_port()
    delivering = Delivering(journal, [open_scrape(f"127.0.0.1:{port}", context_of(journal))])
    delivering.start()
    with prometheus(tmp_path, f"127.0.0.1:{port}") as server:
        wait_for(lambda: newest(server), LAST)
        server.end(signal.SIGKILL)
        server.start()
        wait_for(lambda: newest(server), LAST)
        reply = json.loads(server.get("/api/v1/query?query=vcagent_run_info"))
        assert reply["data"]["result"][0]["metric"]["gpu"] == "H200"
    assert delivering.finish(complete=False) == []


def test_prometheus_understands_the_dashboard(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    from tests.test_grafana import expressions

    with prometheus(tmp_path, f"127.0.0.1:{free_port()}") as server:
        for expression in expressions():
            query = expression.replace("$run", ".*").replace("$client", ".*")
            assert json.loads(server.get(f"/api/v1/query?query={quote(query)}"))["status"] == "success", query


def test_prometheus_scrapes_the_pushgateway(journal: Journal, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    from agent.sinks.prometheus import open_pushgateway

    command = [
        of_debian("prometheus-pushgateway"), "--web.listen-address=127.0.0.1:PORT",
        f"--persistence.file={tmp_path / 'pushed'}", "--persistence.interval=1s",
    ]  # fmt: skip
    with Server(command, tmp_path / "gateway.log", "/-/ready") as gateway:

        def opened() -> Sink:
            return open_pushgateway(gateway.url, context_of(journal))

        deliver_over_a_kill(journal, opened(), gateway, signal.SIGKILL, opened)
        with prometheus(tmp_path, f"127.0.0.1:{gateway.port}") as server:
            wait_for(lambda: newest(server), LAST)


def run_folder(journal: Journal) -> Path:
    folder = journal.path.parent
    (folder / "w" / "case").mkdir(parents=True)
    (folder / "w" / "case" / "out.log").write_text("token=sekret-value-123\nscore 1\n")
    (folder / "run.json").write_text(
        json.dumps(
            {
                "run_id": "R1", "experiment_id": "E1", "client_id": "H1",
                "profile": {"name": "P", "parameters": {"Threads": 4}}, "metadata": {"team": "a"},
                "cases": [{"scenario": "m/Server", "tool_name": "LoadGen", "case_dir": "w/case"}],
            }
        )
    )  # fmt: skip
    return folder


def check_store(read: Callable[[str], bytes], names: set[str]) -> None:
    place = "e1/h1/r1/w/case/out.log"
    assert read(place) == b"token=***\nscore 1\n"
    manifest = json.loads(read(f"{place}.manifest.json"))
    assert manifest["scenario"] == "m/Server"
    assert manifest["Threads"] == 4
    assert manifest["team"] == "a"
    assert manifest["fileSizeBytes"] == len(read(place))
    assert names == {
        f"e1/h1/r1/{name}{end}" for name in ("w/case/out.log", "run.json") for end in ("", ".manifest.json")
    }


def mask(text: str) -> str:
    return text.replace("sekret-value-123", "***")


def test_content_in_azure_blob_storage(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adlfs = pytest.importorskip("adlfs")
    from agent.sinks.content import open_content

    run_folder(journal)
    command = [
        azurite(), "--blobHost", "127.0.0.1", "--blobPort", "PORT", "-l", str(tmp_path / "blobs"), "--silent",
        "--disableTelemetry", "--skipApiVersionCheck",
    ]  # fmt: skip
    with Server(command, tmp_path / "azurite.log") as server:
        monkeypatch.setenv(
            "AZURE_STORAGE_CONNECTION_STRING",
            "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1"
            f"OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;BlobEndpoint={server.url}/devstoreaccount1;",
        )
        store = adlfs.AzureBlobFileSystem(skip_instance_cache=True)
        store.mkdir("logs")
        server.end()  # it writes its list of containers only every few seconds

        def opened() -> Sink:
            return open_content("az://logs", context_of(journal, mask))

        assert flush(journal, opened(), wait_s=0) != ""
        server.start()
        assert flush(journal, opened(), wait_s=WITHIN_S) == ""
        store.invalidate_cache()
        names = {name.removeprefix("logs/") for name in store.find("logs")}
        check_store(lambda name: store.cat_file(f"logs/{name}"), names)


def test_content_and_parquet_in_s3(journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s3fs, parquet = pytest.importorskip("s3fs"), pytest.importorskip("pyarrow.parquet")
    from agent.sinks.content import open_content
    from agent.sinks.parquet import open_parquet

    run_folder(journal)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    command = [moto(), "-m", "moto.server", "-H", "127.0.0.1", "-p", "PORT"]
    with Server(command, tmp_path / "moto.log") as server:
        at = f"endpoint_url={server.url}"
        store = s3fs.S3FileSystem(endpoint_url=server.url, skip_instance_cache=True)
        store.mkdir("lake")
        assert (
            flush(journal, open_content(f"s3://lake/logs,{at}", context_of(journal, mask)), wait_s=10) == ""
        )
        names = {name.removeprefix("lake/logs/") for name in store.find("lake/logs")}
        check_store(lambda name: store.cat_file(f"lake/logs/{name}"), names)
        sink = open_parquet(f"s3://lake/records,{at}", context_of(journal))
        sink.batch = 1500
        delivery = Delivery(journal, sink)
        assert delivery.step()
        # As if the agent had been killed before it noted the file.
        journal.move_sink(sink.name, 0, 0)
        assert flush(journal, sink, wait_s=10) == ""
        table = parquet.read_table("lake/records", filesystem=store)
        assert sorted(table["value"].to_pylist()) == list(map(float, range(COUNT)))
        assert set(table["experiment_id"].to_pylist()) == {"E1"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # azure-eventhub's sockets
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_event_hub(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    pytest.importorskip("azure.eventhub")
    pytest.importorskip("proton")
    from agent.sinks.event_hubs import open_event_hubs

    pad_frames(monkeypatch.setattr)
    run = journal.path.parent
    (run / "logs").mkdir()
    lines = [{"timestamp": "2026-04-01T12:00:00Z", "event": "run started", "row": row} for row in range(5000)]
    large = {**lines[0], "row": "large", "output": "x" * 1_200_000}  # a hub takes at most 1 MB
    lines.insert(100, large)
    (run / "logs" / "vcagent.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    times = {"start": "2026-04-01T12:00:00Z", "end": "2026-04-01T12:00:01Z"}
    steps = [{"key": status, "type": "Tool", "status": status, **times} for status in ("done", "failed")]
    (run / "run.json").write_text(json.dumps({"run_id": "r1", "steps": steps}))
    program = Path(__file__).with_name("event_hub_server.py")
    with Server([sys.executable, str(program), "PORT", str(tmp_path)], tmp_path / "hub.log") as server:
        connection = (
            f"Endpoint=sb://localhost:{server.port}/;SharedAccessKeyName=n;SharedAccessKey=a2V5;"
            "UseDevelopmentEmulator=true"
        )

        def opened() -> Sink:
            return open_event_hubs(connection, context_of(journal))

        deliver_over_a_kill(journal, opened(), server, how, opened)
        assert list(journal.refused_pieces(opened().name)) == ["log 0, entry 100"]
    metrics, traces = (
        [json.loads(line) for line in (tmp_path / f"{hub}.jsonl").read_text().splitlines()]
        for hub in ("telemetry-metrics", "telemetry-logs")
    )
    outcomes = [event for event in metrics if event["message"].endswith(".SucceededOrFailed")]
    records = [event for event in metrics if event not in outcomes]
    seen = Counter(event["customDimensions"]["recordId"] for event in records)
    assert seen == Counter(range(1, COUNT + 1))
    assert records[0]["customDimensions"]["metadata_host"]["gpuName"] == "H200"
    assert [event["customDimensions"]["metricName"] for event in outcomes] == ["Succeeded", "Failed"]
    assert [event["customDimensions"]["row"] for event in traces] == list(range(5000))
    gc.collect()  # azure-eventhub leaves sockets of failed attempts to the collector


def test_node_exporter_shows_the_textfile(journal: Journal, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    from agent.sinks.prometheus import open_textfile

    path = tmp_path / "text" / "vcagent.prom"
    path.parent.mkdir()
    assert flush(journal, open_textfile(str(path), context_of(journal)), wait_s=0) == ""
    command = [
        of_debian("prometheus-node-exporter"), "--collector.disable-defaults", "--collector.textfile",
        f"--collector.textfile.directory={path.parent}", "--web.listen-address=127.0.0.1:PORT",
    ]  # fmt: skip
    with Server(command, tmp_path / "exporter.log", "/") as server:
        lines = server.get("/metrics").splitlines()
    assert "node_textfile_scrape_error 0" in lines
    values = {float(line.rpartition(" ")[2]) for line in lines if line.startswith("vcagent_m")}
    assert values == LAST
