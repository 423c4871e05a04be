"""A host's reason in the fleet run: why its own run did not succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from agent.fleet.host_run import HostPart, HostRun, Surroundings
from agent.fleet.inventory import FleetHost
from agent.fleet.options import FleetOptions
from agent.fleet.remote.standing import RunState, Standing
from agent.fleet.status import HostPhase, HostStatus
from agent.store.documents import ReasonPart, RunDocument, VerdictPart

if TYPE_CHECKING:
    from pathlib import Path

RUN = "20260101T000000Z-fleet-1a2b"
FAILED = VerdictPart(
    validity="FAILED",
    reasons=[
        ReasonPart(
            message="act: `x` ended with exit code 3\nlast line",
            remedy=f"all of its output is in /root/{RUN}/logs/x.log",
        ),
        ReasonPart(message="other: it broke"),
    ],
)


class AnyWay(HostRun):
    """A host whose run has ended."""

    def check(self, *, keep_open: bool) -> None:  # type: ignore[override]
        raise AssertionError(keep_open)

    def carry_out(self) -> None:  # type: ignore[override]
        raise AssertionError


@pytest.mark.parametrize(
    ("run", "standing", "reason"),
    [
        (
            RunDocument(run_id=RUN, verdict=FAILED),
            Standing(RunState.ENDED, "boot", 6, step="act"),
            "`x` ended with exit code 3\n  → all of its output is in {home}/logs/x.log",
        ),
        (
            RunDocument(run_id=RUN, verdict=FAILED),
            Standing(RunState.ENDED, "boot", 6, step="later"),
            "act: `x` ended with exit code 3\n  → all of its output is in {home}/logs/x.log",
        ),
        (
            RunDocument(run_id=RUN, verdict=FAILED, exit_reason="the disk is full"),
            Standing(RunState.ENDED, "boot", 4, step="act"),
            "the disk is full",
        ),
        (
            RunDocument(run_id=RUN, verdict=FAILED),
            Standing(RunState.ENDED, "boot", 9, "the node failed", step="act"),
            "the node failed",
        ),
        (
            RunDocument(exit_reason="no model\n  → see https://example.com/x"),
            Standing(RunState.ENDED, "boot", 4, step="act"),
            "no model\n  → see https://example.com/x",
        ),
        (None, Standing(RunState.ENDED, "boot", 6, step="act"), ""),
        (RunDocument(run_id=RUN, verdict=FAILED), Standing(RunState.ENDED, "boot", 0, step="act"), ""),
    ],
)
def test_the_reason_of_a_host(
    tmp_path: Path, run: RunDocument | None, standing: Standing, reason: str
) -> None:
    home = tmp_path / "host 1"
    home.mkdir()
    if run:
        (home / RunDocument.FILE).write_text(run.model_dump_json())
    around = Surroundings("fleet", tmp_path, FleetOptions(), cast("Any", None), str, lambda value: value)
    status = HostStatus("a", "host 1", HostPhase.RUNNING)
    host = AnyWay(HostPart(FleetHost("a", "a"), {}, status, lambda _: None), around)
    host.judge(standing)
    assert host.status.reason == reason.format(home=home)
