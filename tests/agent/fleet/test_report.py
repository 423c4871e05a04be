"""The report of a fleet run: the sick hosts with their numbers, and the text if no diagnosis is possible."""

from __future__ import annotations

import json
import re
import statistics
import sys
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from agent.cli.main import main
from agent.fleet.assignment import FleetRequest, assigned
from agent.fleet.inventory import FleetHost
from agent.fleet.options import FleetOptions
from agent.fleet.outcome import write_outcome
from agent.fleet.record import FleetRecord, fleet_folder
from agent.fleet.ssh.credentials import Credentials
from agent.fleet.status import HostPhase, HostStatus
from agent.fleet.terminal import render_fleet
from agent.profile import Source
from agent.run.request import RunRequest
from agent.store.journal import Journal
from agent.store.results import JOURNAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

CASE = "bench/Offline/performance"


def outcome(run_dir: Path, speeds: Mapping[str, float | Sequence[float] | None]) -> dict[str, Any]:
    """Return the outcome of a run on hosts, each with the speeds of its runs; None for a host that failed."""
    hosts = [FleetHost(name, name) for name in speeds]
    fleet = FleetRequest(hosts, RunRequest(("P.yaml",)), FleetOptions())
    source = Source("P", "P.yaml", "description: x", "yaml")
    with Journal(run_dir / JOURNAL) as journal:
        record = FleetRecord(journal)
        record.begin(assigned(fleet, [source], Credentials()))
        for name, speed in speeds.items():
            phase = HostPhase.FAILED if speed is None else HostPhase.DONE
            reason = "the <disk> is full" if speed is None else ""
            code = 6 if speed is None else 0
            record.put(HostStatus(name, name, phase, exit_code=code, reason=reason))
            if speed is not None:
                _results(run_dir / "hosts" / name, name, [speed] if isinstance(speed, float) else speed)
        record.end(10 if None in speeds.values() else 0)
        return write_outcome(run_dir, record)


def _results(folder: Path, host: str, speeds: Sequence[float]) -> None:
    speed = statistics.median(speeds)
    metric = {"name": "tokens_per_second", "value": speed, "unit": "tokens/s", "relativity": "HigherIsBetter"}
    (folder / "rollup").mkdir(parents=True)
    headline = {"throughput": {"metric": "tokens_per_second", "value": speed, "unit": "tokens/s"}}
    case = {"scenario": CASE, "headline": headline, "metrics": [metric]}
    (folder / "rollup" / "run_rollup.json").write_text(json.dumps({"cases": [case]}))
    record = {
        "run_id": host,
        "client_id": host,
        "scenario": CASE,
        "metric": metric["name"],
        "unit": "tokens/s",
        "relativity": "HigherIsBetter",
        "verbosity": 1,
    }
    lines = [
        json.dumps({**record, "record_id": number, "value": value})
        for number, value in enumerate(speeds, start=1)
    ]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def shown(description: Mapping[str, Any]) -> str:
    screen = Console(file=StringIO(), width=200)
    render_fleet(description, screen)
    assert isinstance(screen.file, StringIO)
    return screen.file.getvalue()


def test_a_slow_host_is_named_with_its_numbers(tmp_path: Path) -> None:
    speeds = {f"h{number}": 1000.0 + number for number in range(7)} | {"slow": 400.0}
    description = outcome(tmp_path, speeds)
    assert description["diagnosis"]["defective"] == ["slow"]
    assert description["exit_code"] == 0
    page = (tmp_path / "report.html").read_text()
    section = page.partition('id="diagnosis"')[2].partition("</section>")[0]
    for text in ("slow", f"{CASE}/tokens_per_second", "400", "1,003", "-60.1%"):
        assert text in section
    assert "8 hosts: 1 sick, 7 well" in page
    assert page.count('class="bad"') == 1
    assert description["distributions"][0]["outliers"] == {"slow": 400}
    assert "8 hosts: 1 sick, 7 well" in shown(description)
    assert (
        f"slow: Performance: {CASE}/tokens_per_second is 400 tokens/s, normal is 1,003 tokens/s (-60.1%)"
        in shown(description)
    )


def test_a_suspect_host_is_named_but_is_not_coloured_as_sick(tmp_path: Path) -> None:
    speeds = {f"h{number}": [1000.0 + 4 * (number - 4) + run for run in range(3)] for number in range(8)}
    description = outcome(tmp_path, speeds | {"odd": [998, 1000, 900]})
    assert description["diagnosis"]["suspect"] == ["odd"]
    assert description["distributions"][0]["outliers"] == {}
    page = (tmp_path / "report.html").read_text()
    assert 'class="bad"' not in page
    assert '<td data-label="Defect">Performance (suspect)</td>' in page
    assert '<td data-label="Diagnosis">suspect: Performance</td>' in page
    assert "9 hosts: 1 suspect, 8 well" in shown(description)
    assert f"odd (suspect): Performance: {CASE}/tokens_per_second is 900 tokens/s" in shown(description)


def test_where_all_are_alike_nobody_is_sick(tmp_path: Path) -> None:
    description = outcome(tmp_path, {f"h{number}": 1000.0 + number for number in range(8)})
    assert description["diagnosis"]["defective"] == []
    assert "8 hosts: 8 well" in (tmp_path / "report.html").read_text()


def test_a_host_that_is_not_judged_is_not_called_well(tmp_path: Path) -> None:
    description = outcome(tmp_path, {f"h{number}": 1000.0 for number in range(5)} | {"lost": None})
    assert description["diagnosis"]["summary"] == "6 hosts: 1 no records, 5 well"
    page = (tmp_path / "report.html").read_text()
    hosts = page.partition('id="hosts"')[2]
    assert '<td data-label="Diagnosis">no records</td>' in hosts
    assert hosts.count('<td data-label="Diagnosis">well</td>') == 5
    assert "diagnosis of 6 hosts: 1 no records, 5 well" in shown(description)


def test_the_points_of_the_page_have_the_colour_of_the_diagnosis(tmp_path: Path) -> None:
    description = outcome(tmp_path, {f"h{number}": 1000.0 for number in range(7)} | {"near": 980.0})
    assert description["diagnosis"]["defective"] == []
    assert description["distributions"][0]["outliers"] == {}
    assert 'class="bad"' not in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("speeds", [{"a": None}, {"a": 1.0, "b": 2.0, "c": None}])
def test_where_nobody_can_tell_that_is_said(tmp_path: Path, speeds: dict[str, float | None]) -> None:
    description = outcome(tmp_path, speeds)
    assert description["diagnosis"] is None
    assert description["undiagnosed"]
    page = (tmp_path / "report.html").read_text()
    assert f"No diagnosis: {description['undiagnosed'][:20]}" in page
    assert "the &lt;disk&gt; is full" in page
    assert "FAILED" in shown(description).upper()


def test_the_page_has_failed_hosts_first_and_equal_reasons_once(tmp_path: Path) -> None:
    speeds: dict[str, float | None] = {f"h{number}": 1000.0 + number for number in range(10)}
    speeds |= {"h3": None, "h7": None}
    outcome(tmp_path, speeds)
    page = (tmp_path / "report.html").read_text()
    reasons = page.partition('id="reasons"')[2].partition("</section>")[0]
    assert reasons.count("the &lt;disk&gt; is full") == 1
    assert "<span>h3</span><span>h7</span>" in reasons
    assert "8 done, 2 failed" in page
    hosts = page.partition('id="hosts"')[2]
    assert [hosts.index(f">{name}<") for name in ("h3", "h7", "h0")] == sorted(
        hosts.index(f">{name}<") for name in ("h3", "h7", "h0")
    )
    assert "<script" not in page


def test_the_page_can_be_sorted_by_name_duration_and_metric(tmp_path: Path) -> None:
    outcome(tmp_path, {"h10": 30.0, "h9": 20.0, "h11": None})
    page = (tmp_path / "report.html").read_text()
    hosts = page.partition('id="hosts"')[2]
    labels = re.findall(r'for="order-\d">([^<]+)', hosts)
    assert labels == ["failed first", "name", "longest", f"Tokens per second · {CASE}"]
    places = {
        name: [int(place) for place in re.findall(r"--o\d:(\d+)", style)]
        for style, name in re.findall(
            r'<tr style="([^"]+)">\s*<td data-label="Host">(?:<a[^>]*>)?(h\d+)', hosts
        )
    }
    by_name, by_speed = [sorted(places, key=lambda name: places[name][at]) for at in (1, 3)]
    assert by_name == ["h9", "h10", "h11"]
    assert by_speed == ["h9", "h10", "h11"]
    assert min(places, key=lambda name: places[name][0]) == "h11"
    for at in range(4):
        assert f"#order-{at}:checked ~ .hosts tbody tr {{ order: var(--o{at}); }}" in page


def test_time_without_a_controller_does_not_count(tmp_path: Path) -> None:
    with Journal(tmp_path / JOURNAL) as journal:
        record = FleetRecord(journal)
        journal.remember(started="2026-01-01T00:00:00+00:00", seen="2026-01-01T00:10:00+00:00")
        assert record.worked_s() == 600
        record.begin_again()
        journal.remember(resumed="2026-01-03T00:00:00+00:00", ended="2026-01-03T00:05:00+00:00")
        assert record.worked_s() == 900


def _vcagent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str | Path
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["vcagent", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as end:
        main()
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out + captured.err


def test_runs_and_report_know_fleet_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fleet_folder(tmp_path)
    folder.prepare()
    name = "20260401T120000Z-p-3fa9"
    run_dir = folder.create(name)
    outcome(run_dir, {f"h{number}": 1000.0 for number in range(7)} | {"slow": 400.0})
    code, out = _vcagent(capsys, monkeypatch, "runs", "--results-dir", tmp_path, "--json")
    (row,) = json.loads(out)["runs"]
    assert (code, row["run_id"], row["hosts"], row["profile"]) == (0, name, 8, "P")
    assert "fleet of 8" in _vcagent(capsys, monkeypatch, "runs", "--results-dir", tmp_path)[1]
    (run_dir / "report.html").unlink()
    for run in (name, "20260401", str(run_dir)):
        code, out = _vcagent(capsys, monkeypatch, "report", run, "--results-dir", tmp_path)
        assert code == 0
        assert "diagnosis of 8 hosts: 1 sick, 7 well" in out
    assert (run_dir / "report.html").is_file()
    code, out = _vcagent(capsys, monkeypatch, "diagnose", name[:10], "--results-dir", tmp_path)
    assert (code, "8 hosts: 1 sick, 7 well" in out) == (10, True)
    code, out = _vcagent(capsys, monkeypatch, "report", "other", "--results-dir", tmp_path)
    assert code == 2


def test_a_fleet_run_that_started_nowhere_names_the_command_that_tries_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fleet_folder(tmp_path)
    run_dir = folder.create("20260101T000000Z-p-ab12")
    source = Source("P", "P.yaml", "description: x", "yaml")
    fleet = FleetRequest([FleetHost("a", "a"), FleetHost("b", "b")], RunRequest(("P.yaml",)), FleetOptions())
    with Journal(run_dir / JOURNAL) as journal:
        FleetRecord(journal).begin(assigned(fleet, [source], Credentials()))
    monkeypatch.setattr(sys, "argv", ["vcagent", "runs", "--results-dir", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row[:5] == [run_dir.name, "unfinished,", "fleet", "of", "2"]
    assert row[-1] == "P"
    assert len(row) > 6  # its age
    monkeypatch.setattr(sys, "argv", ["vcagent", "report", run_dir.name, "--results-dir", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert f"vcagent fleet resume {run_dir.name} tries again" in capsys.readouterr().err
