from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest

import agent.facts
from agent.cli.facts import facts

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _two_plug_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a plug-in whose module is missing, one that is not a module, and one that works."""
    points = [
        EntryPoint("gone", "no_such_module_of_facts", agent.facts.FACT_GROUP),
        EntryPoint("odd", "os.path:join", agent.facts.FACT_GROUP),
        EntryPoint("whole", "agent.facts.memory", agent.facts.FACT_GROUP),
    ]
    monkeypatch.setattr(agent.facts, "entry_points", lambda **_: points)
    agent.facts._plug_ins.cache_clear()
    yield
    agent.facts._plug_ins.cache_clear()


@pytest.mark.usefixtures("_two_plug_ins")
def test_broken_facts_are_named_and_do_not_stop_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(agent.facts._plug_ins()[0]) == 1
    facts(["memory"])
    shown = capsys.readouterr()
    assert "memory:" in shown.out
    assert (
        "warning: vcagent.facts: no_such_module_of_facts: the facts gone of an unknown distribution"
        in shown.err
    )
    assert "ModuleNotFoundError" in shown.err
    assert (
        "the facts odd of an unknown distribution cannot be loaded: TypeError: it is not a module"
        in shown.err
    )
    assert "install an unknown distribution again" in shown.err
