"""A submission of a real run of vcagent with real LoadGen: too short, and refused for that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from actions.submission.building import Order, build
from actions.submission.rounds import find_round
from actions.submission.runs import cases_of
from agent.core.progress import run_progress
from agent.run.request import RunRequest
from agent.run.session import start
from tests.actions.submission.conftest import MEASUREMENTS, SAID

if TYPE_CHECKING:
    from pathlib import Path

    from actions.submission.runs import Case

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def cases(bench_python: Path, tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """Return a performance run and an accuracy run of half a second in Offline, with the embedded profile."""
    folder = tmp_path_factory.mktemp("real")
    common = {
        "model": "smollm2-135m", "loadgenScenario": "Offline", "environment": str(bench_python.parent.parent),
        "server": {"model": str(tiny_gguf), "parallel": 4, "context": 256}, "maxOutputTokens": 4,
    }  # fmt: skip
    tests = {
        "performance": {"dataset": "short-prompts", "minDuration": 0.5, "targetQps": 20},
        "accuracy": {"dataset": "simple-facts", "samples": 8},
    }
    actions = [
        {
            "type": "LoadGenExecutor",
            "parameters": {"scenario": f"offline-{mode}", "mode": mode, **common, **asked},
        }
        for mode, asked in tests.items()
    ]
    profile = folder / "SMALL.yaml"
    profile.write_text(json.dumps({"description": "small", "actions": actions}))
    request = RunRequest((str(profile),), results_dir=folder / "results", package_dir=folder / "packages")
    return cases_of([start(request, run_progress(quiet=True)).run_dir])


@pytest.mark.parametrize("division", ["closed", "open"])
@pytest.mark.parametrize("kind", ["datacenter", "edge"])
def test_a_short_run_is_refused_for_its_length(
    cases: list[Case], tmp_path: Path, kind: str, division: str
) -> None:
    said = {**SAID, "accelerators_per_node": "0", "accelerator_model_name": "N/A",
            "accelerator_memory_capacity": "N/A", "host_storage_type": "SSD", "host_storage_capacity": "1 TB",
            "host_processor_model_name": "x", "host_processors_per_node": "1",
            "host_processor_core_count": "2"}  # fmt: skip
    benchmark = "llama3.1-8b" if kind == "datacenter" else "llama3.1-8b-edge"
    order = Order(
        tmp_path / "tree", division, find_round("v6.1"), "Demo", "cpu", kind, said, MEASUREMENTS,
        {"smollm2-135m": benchmark},
    )  # fmt: skip
    built = build(order, cases)
    assert built.filed == ()
    assert not order.output.exists()
    whys = " ".join(missing.why for missing in built.missing)
    assert "min_duration is 0.5 s, the rules require 600 s" in whys
    assert "the run itself took" in whys
    assert "seeds" not in whys  # LoadGen's own configuration has the seeds of the round
