"""A broken plug-in is named with its distribution, and stops no other."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import pytest

from agent.component import parsing, registry
from agent.component.registry import component_class
from agent.core.plug_ins import PlugInError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Install a distribution whose component, parser and command are broken."""
    folder = tmp_path / "plug_in-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plug-in\nVersion: 1\n")
    points = {
        registry.COMPONENT_GROUP: "Exploding = vcagent_plug_in:Thing\nNotOne = json:loads",
        parsing.ENTRY_POINTS: "exploding = vcagent_plug_in:PARSER",
        "vcagent.commands": "exploding = vcagent_plug_in:app",
    }
    text = "".join(f"[{group}]\n{lines}\n" for group, lines in points.items())
    (folder / "entry_points.txt").write_text(text)
    (tmp_path / "vcagent_plug_in.py").write_text("raise RuntimeError('it explodes')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for cache in (registry._registered, parsing._loaded):
        cache.cache_clear()
    yield "plug-in"
    for cache in (registry._registered, parsing._loaded):
        cache.cache_clear()


@pytest.mark.parametrize(("name", "why"), [("Exploding", "it explodes"), ("NotOne", "it is not a Component")])
def test_a_broken_component(name: str, why: str, plug_in: str) -> None:
    with pytest.raises(PlugInError, match=why) as refusal:
        component_class(name)
    assert f"{name} of {plug_in}" in str(refusal.value)
    assert component_class("ExecuteCommand").__name__ == "ExecuteCommand"


def test_a_broken_parser(plug_in: str, vcagent: Callable[..., Any], tmp_path: Path) -> None:
    log = tmp_path / "smi.csv"
    log.write_text("index, name, power.draw [W]\n0, NVIDIA L4, 20.5 W\n")
    code, out, err = vcagent("parse", str(log))
    assert code == 0
    assert "NVIDIA L4" in out or "power" in out
    assert f"the parser exploding of {plug_in} cannot be loaded: RuntimeError: it explodes" in err
    with pytest.raises(PlugInError):
        parsing.parse_path(log, "exploding")


def test_a_broken_command(plug_in: str, vcagent: Callable[..., Any]) -> None:
    code, out, err = vcagent("--help")
    assert (code, "Commands" in out) == (0, True)
    assert f"the command exploding of {plug_in}" in err
    code, _, err = vcagent("exploding")
    assert code == 1
    assert f"install {plug_in} again, or remove it" in err


def test_a_parser_that_fails_by_itself_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Crashing:
        name, description, refuses = "crashing", "a test's", False

        def recognise(self, _: Path) -> bool:
            return True

        def parse(self, _: Path) -> list[Any]:
            raise ValueError("not ready")

    log = tmp_path / "smi.csv"
    log.write_text("index, name, power.draw [W]\n0, NVIDIA L4, 20.5 W\n")
    known = {**parsing.parsers(), "crashing": Crashing()}
    monkeypatch.setattr(parsing, "parsers", lambda: known)
    outputs = parsing.parse_path(log)
    assert {output.format for output in outputs} == {"crashing", "nvidia_smi"}
    failed = next(output for output in outputs if output.format == "crashing")
    assert failed.verdict is not None
    assert "the parser crashing failed: ValueError: not ready" in failed.verdict.reasons[0].message


def test_an_entry_point_without_a_distribution() -> None:
    from agent.core.plug_ins import load_plug_in

    with pytest.raises(PlugInError, match="unknown distribution"):
        load_plug_in(EntryPoint("x", "no_such_module:y", "g"), "the parser")
