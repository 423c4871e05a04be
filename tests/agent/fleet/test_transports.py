"""Transports of other distributions are found by entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from agent.core.errors import UsageError
from agent.fleet import transports
from agent.fleet.transports import SlurmTransport, SshTransport, known_transports, transport

HERE = "agent.fleet.transports"


@pytest.fixture(autouse=True)
def _transports(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        name: EntryPoint(name, value, transports.TRANSPORT_GROUP)
        for name, value in (("teleport", f"{HERE}:SshTransport"), ("gone", "no_such_module:Gone"))
    }
    monkeypatch.setattr(transports, "_registered", lambda: points)


def test_each_is_found_by_its_name() -> None:
    assert isinstance(transport("ssh"), SshTransport)
    assert isinstance(transport("slurm"), SlurmTransport)
    assert isinstance(transport("teleport"), SshTransport)
    assert known_transports() == ["ssh", "slurm", "gone", "teleport"]


@pytest.mark.parametrize(
    ("name", "message", "remedy"),
    [
        ("telport", "no transport is called 'telport'", "teleport"),
        ("gone", "cannot be loaded: ModuleNotFoundError", "use another --via"),
    ],
)
def test_what_cannot_be_used_is_refused(name: str, message: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        transport(name)
    assert remedy in str(caught.value)
