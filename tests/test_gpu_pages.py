"""The commands of the GPU pages are planned for a recorded host with two H200."""

from __future__ import annotations

import importlib
import json
import pkgutil
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import TypeAdapter

import agent.facts
from agent.cli.options import pairs
from agent.facts import Fact, Facts, LocalHost
from agent.facts.agent_paths import PACKAGE_DIR
from agent.run import session
from agent.run.request import RunRequest
from tests.agent.facts.recorded_host import RecordedHost
from tests.test_docs import COMMANDS, NEEDS_GPU, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "benchmarks" / "results" / "h200_x2_facts_doctor.json"
UNTYPED = {"docker_server", "daemon_config", "package_origins", "services"}
"""Recorded facts whose types exist only for the type checker; the host has no Docker."""


def recorded_facts() -> dict[str, Any]:
    """Return the recorded values in the types that the constants of the facts have."""
    values = json.loads(RECORDED.read_text(encoding="utf-8"))["idle"]["facts"]
    facts = {}
    for info in pkgutil.iter_modules(agent.facts.__path__):
        module = importlib.import_module(f"agent.facts.{info.name}")
        for constant, annotation in getattr(module, "__annotations__", {}).items():
            fact = getattr(module, constant)
            if isinstance(fact, Fact) and fact.name in values and fact.name not in UNTYPED:
                kind = typing.get_args(eval(annotation, vars(module)))[0]  # noqa: S307 - the text is the module's own
                facts[fact.name] = TypeAdapter(kind).validate_python(values[fact.name])
    return facts


def gpu_commands() -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield profile, parameters and scenarios of the pages' commands for GPU hosts, with their pages."""
    for place, command in COMMANDS:
        values = parsed(command)
        for name in (*(values.get("profiles") or ()), *(values.get("profile") or ())):
            if (profile := name.removesuffix(".yaml")) in NEEDS_GPU:
                yield (
                    (profile, ",,,".join(values.get("parameters") or ()), values.get("scenarios") or ""),
                    place,
                )


class _Host(RecordedHost):
    """A host with nothing but vcagent's own files."""

    def text(self, path: str) -> str | None:
        return Path(path).read_text(encoding="utf-8") if Path(path).is_relative_to(ROOT) else None

    def output(self, command: Sequence[str], **options: Any) -> str | None:
        if command[0] == "find" and Path(command[2]).is_relative_to(ROOT):
            return LocalHost().output(command, **options)
        return super().output(command, **options)

    def names(self, folder: str) -> list[str]:
        is_own = Path(folder).is_relative_to(ROOT) and Path(folder).is_dir()
        return sorted(path.name for path in Path(folder).iterdir()) if is_own else []


GPU_COMMANDS = dict(gpu_commands())
"""A page of each request, by profiles, parameters and scenarios."""

REFUSED = {
    "PERF-GPU-MLPERF": {
        "MountDisks": "no disk fits",
        "MLPerfExecutor": "account",
        "DockerInstallation": "user",
    },
    "PERF-GPU-MLPERF-LLAMA2-70B": {
        "GpuSelection": "no AMD GPU",
        "AmdRocmInstallation": "no AMD GPU",
        "HuggingFaceModel": "GiB free",
        "OpenOrcaDataSet": "samples of OpenOrca",
    },
    "SETUP-GPU-AMD": {"AmdRocmInstallation": "no AMD GPU"},
}
"""Words of the refusals for parts that the recorded host lacks."""


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return recorded_facts()


@pytest.mark.parametrize("asked", GPU_COMMANDS, ids=["-".join(filter(None, one)) for one in GPU_COMMANDS])
def test_the_commands_of_gpu_pages_are_planned(
    asked: tuple[str, str, str], facts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile, parameters, scenarios = asked
    for name in ("LAB_MODEL", "LAB_DATASET", "MLPERF_SCRATCH_PATH", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    here = Facts(_Host(), {**facts, PACKAGE_DIR.name: tmp_path / "packages"})
    monkeypatch.setattr(session, "_this_host", lambda *_: here)
    request = RunRequest((profile,), pairs([parameters]), scenarios=scenarios, results_dir=tmp_path)
    planned = session.plan(request, folders=False).components
    known = REFUSED.get(profile, {})
    for component in planned:
        if component.error:
            assert component.element.type in known, (GPU_COMMANDS[asked], component.error)
            assert known[component.element.type] in component.error.message
    standings = [one.standing.value for one in planned if one.element.kind != "monitor"]
    assert {"planned", "nothing to do"} & set(standings)
    if not known:
        assert "refused" not in standings
        assert sum(len(one.plan.steps) for one in planned if one.plan) > 0
