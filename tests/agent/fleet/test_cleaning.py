"""Files that fleet runs left on their hosts, according to their journals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from agent.cli.fleet import app
from agent.core.errors import UsageError
from agent.fleet.assignment import FleetRequest, assigned
from agent.fleet.cleaning import clean, survey
from agent.fleet.inventory import FleetHost
from agent.fleet.options import FleetOptions
from agent.fleet.record import FleetRecord, fleet_folder
from agent.fleet.scheduling import Wait
from agent.fleet.ssh.credentials import Credentials
from agent.fleet.status import HostPhase, HostStatus
from agent.profile import Source
from agent.run.request import RunRequest
from agent.store.journal import Journal
from agent.store.results import JOURNAL, ResultsFolder

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from agent.fleet.scheduling import Task

pytest.importorskip("fabric")

OLD, NEW = "20250101T000000Z-p-0000", "20260102T000000Z-p-1111"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = fleet_folder(tmp_path)
    folder.prepare()
    for run in (OLD, NEW):
        run_dir = folder.create(run)
        hosts = [FleetHost(name, name) for name in "ab"]
        options = FleetOptions(ssh_config=tmp_path / "none")
        fleet = FleetRequest(hosts, RunRequest(("P.yaml",)), options)
        with Journal(run_dir / JOURNAL) as journal:
            record = FleetRecord(journal)
            record.begin(assigned(fleet, [Source("P", "P.yaml", "description: x", "yaml")], Credentials()))
            journal.remember(started=f"{run[:4]}-{run[4:6]}-{run[6:8]}T00:00:00+00:00")
            for name in "ab":
                record.put(
                    HostStatus(
                        name, name, HostPhase.DONE, exit_code=0, python="/py", starts=1,
                        run_dir=f"/base/runs/{run}.{name}",
                    )
                )  # fmt: skip
            record.flush()
    return tmp_path


def put(results: Path, run: str, status: HostStatus) -> None:
    with Journal(fleet_folder(results).find(run) / JOURNAL) as journal:
        record = FleetRecord(journal)
        record.put(status)
        record.flush()


def test_each_host_is_one_place_with_all_its_runs(results: Path) -> None:
    places, left = survey(results, [])
    assert {place.host.name: sorted(place.runs) for place in places} == {
        name: [f"{OLD}.{name}", f"{NEW}.{name}"] for name in "ab"
    }
    assert left == []
    assert [place.host.name for place in survey(results, [OLD], "b")[0]] == ["b"]
    with pytest.raises(UsageError, match="there is no run"):
        survey(results, ["2024"])


def test_newer_runs_are_left(results: Path) -> None:
    with Journal(fleet_folder(results).find(NEW) / JOURNAL) as journal:
        journal.remember(started="2999-01-01T00:00:00+00:00")
    places, _ = survey(results, [], older_than_s=7 * 86400)
    assert [list(place.runs) for place in places] == [[f"{OLD}.a"], [f"{OLD}.b"]]


def test_runs_that_may_go_on_are_left_and_said(results: Path) -> None:
    put(results, NEW, HostStatus("a", "a", HostPhase.RUNNING, starts=1, run_dir=f"/base/runs/{NEW}.a"))
    with ResultsFolder(fleet_folder(results).find(OLD)).locked(OLD):
        places, left = survey(results, [])
    assert [list(place.runs) for place in places] == [[f"{NEW}.b"]]
    assert left == [
        f"{OLD}: a controller is working on it; stop it first: vcagent fleet stop",
        f"{NEW}: a may still run; stop it first: vcagent fleet stop {NEW}",
    ]


class Host:
    """A host over a simulated connection that keeps its orders."""

    orders: list[dict[str, object]] = []  # noqa: RUF012 - emptied by each test

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent = b""

    def start(self, command: str, _: float) -> Host:
        assert command.startswith("/py -I -c ")
        return self

    def write(self, data: bytes) -> None:
        self.sent += data

    def end_input(self) -> None: ...

    def close(self) -> None: ...

    def line(self, _: float) -> Task[bytes]:
        yield Wait(0)
        order = json.loads(self.sent.splitlines()[-1])
        self.orders.append(order)
        runs = sorted(order["runs"])
        answer = {"removed": runs[:1], "left": {runs[1]: "it is running"}, "bundles": [], "bytes": 5}
        return json.dumps(answer).encode() + b"\n"


def test_what_is_gone_from_a_host_is_not_asked_for_again(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(_: object, route: tuple[object, ...], __: object) -> Task[Host]:
        yield Wait(0)
        if "b" in str(route[-1]):
            raise UsageError("b is down")
        return Host("a")

    monkeypatch.setattr("agent.fleet.ssh.connecting.Connector.connect", connect)
    Host.orders.clear()
    told: list[str] = []
    done = clean(survey(results, [])[0], Credentials(), lambda one: told.append(one.host), older_than_s=60)
    assert sorted(told) == ["a", "b"]
    (good,) = (one for one in done if not one.error)
    (bad,) = (one for one in done if one.error)
    assert (good.host, good.removed, good.size_bytes) == ("a", [f"{OLD}.a"], 5)
    assert (bad.host, bad.error) == ("b", "b is down")
    assert Host.orders[0]["base"] == "/base"
    assert Host.orders[0]["bundles_older_than_s"] == 60
    places = {place.host.name: sorted(place.runs) for place in survey(results, [])[0]}
    assert places == {"a": [f"{NEW}.a"], "b": [f"{OLD}.b", f"{NEW}.b"]}


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_the_command_shows_what_it_would_do_and_asks(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = call("clean", f"--results-dir={results}")
    assert isinstance(refused.exception, UsageError)
    assert "Remove 4 runs from 2 hosts? add --yes" in str(refused.exception)
    nothing = call("clean", f"--results-dir={results}", "--older-than=99999w")
    assert nothing.output == "Nothing to remove.\n"

    def connect(*_: object) -> Task[Host]:
        yield Wait(0)
        return Host("a")

    monkeypatch.setattr("agent.fleet.ssh.connecting.Connector.connect", connect)
    done = call("clean", f"--results-dir={results}", "--yes")
    assert done.exit_code == 0
    assert f"a: removed 1 run, 0 bundles, 0.0 MiB\na: left {NEW}.a: it is running" in done.output


@pytest.mark.parametrize("age", ["7", "d", "1.5d", "-1d", "7y"])
def test_an_age_is_a_number_with_a_unit(results: Path, age: str) -> None:
    refused = call("clean", f"--results-dir={results}", f"--older-than={age}")
    assert "is not an age" in str(refused.exception)


def test_a_folder_on_the_hosts_is_absolute() -> None:
    refused = call("run", "-i", "a,", "-p", "P", "--host-dir=scratch")
    assert "--host-dir scratch is relative" in str(refused.exception)
