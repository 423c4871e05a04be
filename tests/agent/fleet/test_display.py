"""The display of a fleet: failures with reasons, the slowest hosts, and the number of hosts in each phase."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from agent.core.terminal import safe_console
from agent.fleet.display import host_table
from agent.fleet.reasons import reason_groups
from agent.fleet.status import HostPhase, HostStatus
from agent.fleet.terminal import _metric_table, print_reasons, render_fleet


def many(count: int = 500) -> dict[str, HostStatus]:
    """Return hosts: a few failed, some wait, and the others are working, the last one the longest."""
    hosts = {}
    for number in range(count):
        name = f"gpu-{number:03d}.cluster.example"
        started = f"2026-01-01T{23 - number * 23 // count:02d}:{59 - number % 60:02d}:00+00:00"
        status = HostStatus(name, name, HostPhase.RUNNING, step="server_load", started=started)
        if number % 50 == 7:
            reason = f"no connection to {name}:22: Connection refused\n  → check that the host is up"
            status = replace(status, phase=HostPhase.UNREACHED, step="", reason=reason, started=None)
        elif number == 100:
            status = replace(status, phase=HostPhase.FAILED, reason="the [disk] is full\n  → free some")
        elif number % 5 == 3:
            status = HostStatus(name, name)
        hosts[name] = status
    return hosts


def shown(hosts: dict[str, HostStatus], rows: int | None, width: int = 80) -> list[str]:
    screen = Console(file=StringIO(), width=width)
    screen.print(host_table(hosts, rows, expand=True))
    assert isinstance(screen.file, StringIO)
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]


def test_many_hosts_fit_on_a_small_screen() -> None:
    lines = shown(many(), 20)
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("10 hosts unreached no connection to …: Connection refused (gpu-007")
    assert lines[1].startswith("gpu-100.cluster.example failed server_load: the [disk] is full")
    assert lines[2].split() == ["host", "phase", "elapsed", "step,", "or", "reason"]
    slowest = min((host for host in many().values() if host.started), key=lambda host: host.started or "")
    assert lines[3].split()[:2] == [slowest.name.partition(".")[0], "running"]
    assert lines[-1] == "100 waiting, 389 running, 1 failed, 10 unreached"


def test_reasons_take_no_more_than_half_of_the_screen() -> None:
    hosts = many()
    for number, name in enumerate(list(hosts)[:100]):
        hosts[name] = replace(hosts[name], phase=HostPhase.FAILED, reason=f"reason {chr(65 + number)}")
    lines = shown(hosts, 20)
    assert sum(" failed " in line or " unreached " in line for line in lines[:-1]) == 10
    assert sum("running" in line for line in lines[:-1]) == 10


def test_few_hosts_have_a_row_each_with_failed_ones_first() -> None:
    hosts = dict(list(many().items())[95:105])
    rows = [line.split()[:2] for line in shown(hosts, 20, 120)[1:-1]]
    assert rows[0] == ["gpu-100.cluster.example", "failed"]
    assert len(rows) == 10
    assert rows[-1][1] == "waiting"


def test_the_last_step_and_the_reason_stand_together() -> None:
    failed = HostStatus("a", "a", HostPhase.FAILED, step="load", reason="it broke\n  → mend it", exit_code=6)
    assert shown({"a": failed}, 20)[1].split() == ["a", "failed", "load:", "it", "broke"]
    bare = HostStatus("a", "a", HostPhase.FAILED, exit_code=6)
    assert shown({"a": bare}, 20)[1].split() == ["a", "failed", "exit", "code", "6"]
    done = HostStatus("a", "a", HostPhase.DONE, verdict="VALID", warning="its clock is 99 s ahead")
    assert "VALID; its clock is 99 s ahead" in shown({"a": done}, 20)[1]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("no connection to 10.0.0.1:22: refused", "no connection to 10.0.0.2:22: refused", True),
        ("no answer for 903 s: broke", "no answer for 1,204 s: broke", False),
        ("no answer for 903 s: broke", "no answer for 1204 s: broke", True),
        ("root@a.x rejected the login", "me@b.x:2222 rejected the login", True),
        ("only 12 MiB are free in /home", "only 99 MiB are free in /home", True),
        ("exit code 1", "exit code 2", False),
        ("the key of [fe80::1]:2222 SHA256:abc", "the key of [fe80::2]:2222 SHA256:def", True),
    ],
)
def test_equal_reasons_are_told_once(one: str, other: str, same: bool) -> None:  # noqa: FBT001
    hosts = [
        HostStatus(name, name, HostPhase.UNREACHED, reason=reason)
        for name, reason in (("a", one), ("b", other))
    ]
    groups = reason_groups(hosts)
    assert len(groups) == (1 if same else 2)
    assert groups[0].hosts == (("a", "b") if same else ("a",))


def test_whole_reasons_come_with_their_remedies() -> None:
    screen = Console(file=StringIO(), width=200)
    warned = HostStatus("ok", "ok", HostPhase.DONE, exit_code=0, warning="its clock is 99 s ahead")
    print_reasons([*many().values(), warned], screen)
    assert isinstance(screen.file, StringIO)
    text = screen.file.getvalue()
    assert text.count("→ check that the host is up") == 1
    assert "gpu-100.cluster.example: server_load: the [disk] is full\n  → free some" in text
    assert "ok: its clock is 99 s ahead" in text


def test_in_a_pipe_no_line_is_filled_with_blanks_and_no_reason_is_cut() -> None:
    hosts = many(250)
    reason = "x" * 300
    hosts["a"] = HostStatus("a", "a", HostPhase.FAILED, reason=reason)
    console = safe_console(file=StringIO())
    description = {
        "hosts": [host.to_json() for host in hosts.values()],
        "distributions": [],
        "diagnosis": None,
        "undiagnosed": "",
    }
    render_fleet(description, console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert any(reason in line for line in lines)
    assert max(map(len, lines)) < 400


def test_the_numbers_of_a_metric_have_one_unit_and_are_not_broken() -> None:
    numbers = {"minimum": 5.42e-07, "median": 6.1e-07, "maximum": 1.3e-06}
    metric = {"scenario": "Sum", "metric": "time_per_loop", "unit": "seconds", "count": 3, "outliers": ["c"]}
    console = Console(record=True, width=80, file=StringIO())
    console.print(_metric_table([metric | numbers]))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert lines[2] == ["Sum"]
    assert lines[3] == ["Time", "per", "loop", "µs", "3", "0.542", "0.61", "1.3", "c"]
