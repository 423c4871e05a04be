"""The result of a fleet run: distributions, outliers, hosts to try again, names of folders."""

from __future__ import annotations

import os
import pty
import select
from dataclasses import replace
from io import StringIO
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from agent.fleet.display import LiveTable, PlainLines, counted, host_table
from agent.fleet.failed import failed_inventory
from agent.fleet.inventory import FleetHost, read_inventory
from agent.fleet.record import host_folders, host_from_json, host_to_json
from agent.fleet.status import HostPhase, HostStatus


@given(st.lists(st.text(min_size=1), unique=True, max_size=20))
def test_every_host_has_a_folder_of_its_own(names: list[str]) -> None:
    folders = host_folders(names)
    assert list(folders) == names
    assert len(set(folders.values())) == len(names)
    for folder in folders.values():
        assert Path(folder).name == folder
        assert not folder.startswith(".")


def test_hosts_to_try_again_are_an_inventory(tmp_path: Path) -> None:
    hosts = [
        FleetHost("good", "good"),
        FleetHost(
            "127.0.0.1:2202",
            "127.0.0.1",
            2202,
            "u",
            ("/k",),
            "a,b",
            None,
            True,
            "/py",
            "pw",
            "pw",
            {"A": "1"},
        ),
        FleetHost("skipped", "skipped", proxy_command="nc %h", ssh_config="lab.conf"),
    ]
    statuses = {
        "good": HostStatus("good", "good", HostPhase.DONE, exit_code=0),
        "127.0.0.1:2202": HostStatus("127.0.0.1:2202", "x", HostPhase.FAILED, reason="it broke\n  → mend it"),
        "skipped": HostStatus("skipped", "skipped", HostPhase.SKIPPED),
    }
    text = failed_inventory(hosts, statuses)
    assert "# failed: it broke\n" in text
    assert "pw" not in text
    (tmp_path / "failed.yaml").write_text(text)
    again = read_inventory([str(tmp_path / "failed.yaml")]).hosts
    assert list(again.values()) == [replace(hosts[1], password=None, sudo_password=None), hosts[2]]
    assert host_from_json(host_to_json(hosts[1])) == replace(hosts[1], password=None, sudo_password=None)


def test_a_status_survives_the_journal() -> None:
    status = HostStatus("a", "a", HostPhase.LOST, step="x", exit_code=3, starts=2)
    assert HostStatus.from_json(status.to_json()) == status
    assert not status.is_good


def test_plain_lines_tell_of_every_phase_once() -> None:
    stream = StringIO()
    display, status = PlainLines(stream), HostStatus("a", "a")
    display.expect([status, HostStatus("b", "b")])
    for change in (
        {"phase": HostPhase.RUNNING, "step": "one"},
        {"message": "nothing new"},
        {"phase": HostPhase.FAILED, "reason": "it broke\n  → mend it"},
    ):
        status = replace(status, **change)  # type: ignore[arg-type]
        display.update(status)
    lines = [line.partition("] ")[2] for line in stream.getvalue().splitlines()]
    assert lines == ["a: running: one", "a: failed: it broke (1 waiting, 1 failed)"]


def test_the_table_shows_who_is_at_work_and_counts_the_rest() -> None:
    from rich.console import Console

    hosts = {str(n): HostStatus(str(n), str(n)) for n in range(100)}
    hosts["77"] = HostStatus(
        "77", "77", HostPhase.RUNNING, step="[bold]", message="[/] 50%", started="2026-01-01T00:00:00+00:00"
    )
    console = Console(file=StringIO(), width=120)
    console.print(host_table(hosts, 3, expand=True))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "77" in shown
    assert "[/] 50%" in shown
    assert "99 waiting, 1 running" in shown
    assert len(shown.splitlines()) < 12
    assert counted(hosts.values()) == "99 waiting, 1 running"


def test_the_live_table_leaves_its_notes_behind() -> None:
    stream = StringIO()
    with LiveTable(stream) as display:
        display.expect([HostStatus("a", "a")])
        display.note("host key accepted: [x]")
    assert "host key accepted: [x]" in stream.getvalue()


def test_the_live_table_draws_what_changes() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, LiveTable(terminal) as display:
        display.expect([HostStatus("a", "a")])
        for step in ("first", "second"):
            display.update(HostStatus("a", "a", HostPhase.RUNNING, step=step))
            shown = ""
            while step not in shown:
                assert select.select([ours], [], [], 30)[0]
                shown += os.read(ours, 1 << 16).decode(errors="replace")
    os.close(ours)


def test_records_of_all_hosts_come_together(tmp_path: Path) -> None:
    from agent.fleet.outcome import _merge

    statuses = {name: HostStatus(name, name) for name in ("a", "b", "gone")}
    for name in ("a", "b"):
        folder = tmp_path / "hosts" / name
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(f'{{"client_id": "{name}"}}\n{{"cut off')
        (folder / "metrics.csv").write_text(f"head\n{name},1\n")
    for file in ("metrics.jsonl", "metrics.csv"):
        _merge(tmp_path, file, statuses)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"client_id": "a"}\n{"client_id": "b"}\n'
    assert (tmp_path / "metrics.csv").read_text() == "head\na,1\nb,1\n"
