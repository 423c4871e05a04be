"""A fleet run that was refused before anything was started."""

from pathlib import Path

import pytest

from agent.core.errors import HostError
from agent.fleet import run as fleet_run
from agent.fleet.assignment import FleetRequest
from agent.fleet.display import FleetDisplay
from agent.fleet.inventory import FleetHost
from agent.fleet.options import FleetOptions
from agent.fleet.record import fleet_folder
from agent.fleet.ssh.credentials import Credentials
from agent.run.request import RunRequest

PROFILE = """
description: A test.
actions: [{type: ExecuteCommand, parameters: {scenario: act, command: "true"}}]
"""
BEFORE = "20260401T120000Z-before-3fa9"


@pytest.mark.parametrize("before", [None, BEFORE])
def test_it_never_becomes_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    def refuse(*_: object) -> None:
        assert fleet_folder(tmp_path).latest_name() not in {None, before}
        raise HostError("the host key of a is not known")

    monkeypatch.setattr(fleet_run, "_work", refuse)
    profile = tmp_path / "P.yaml"
    profile.write_text(PROFILE, encoding="utf-8")
    folder = fleet_folder(tmp_path)
    folder.prepare()
    if before:
        folder.create(before)
    request = RunRequest((str(profile),), results_dir=tmp_path)
    fleet = FleetRequest([FleetHost("a", "a")], request, FleetOptions())
    with pytest.raises(HostError, match="not known"):
        fleet_run.start_fleet(fleet, fleet_run.Wishes(Credentials(), FleetDisplay()))
    assert folder.latest_name() == before
