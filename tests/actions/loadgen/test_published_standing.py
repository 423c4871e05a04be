"""Comparison of a run's figure with published ones, only for this host's own GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actions.loadgen.executor import LoadGenExecutor
from actions.loadgen.parameters import LoadGenParameters
from agent.core.records import Metric, ParsedOutput
from agent.facts import Facts
from agent.facts.gpus import Gpu
from agent.store.exhibits import read_exhibits

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT = ParsedOutput(
    "loadgen", "MLPerf LoadGen", metrics=(Metric("tokens_per_second", 13000.0, "tokens/s"),)
)
H100 = Gpu("0000:18:00.0", name="NVIDIA H100 80GB HBM3", memory_mib=81559, driver="580.159.04")
VLLM = {"vllm": {"model": "/models/m"}}


def rows(case_dir: Path, gpus: tuple[Gpu, ...], **parameters: Any) -> list[str]:
    """Return the names of the first table's rows."""
    asked = {"model": "llama3.1-8b", "loadgen_scenario": "Offline", "environment": "/e", **parameters}
    action = LoadGenExecutor(LoadGenParameters.model_validate(asked))
    facts = Facts(modelled={"gpus": gpus, "amd_gpus": (), "visible_devices": None, "gpu_memory": ()})
    action._set_beside_published(OUTPUT, {"engine": {"tensor_parallel_size": 2}}, case_dir, facts)
    return [row.name for table in read_exhibits(case_dir).tables for row in table.rows]


def test_the_gpus_that_the_engine_used_count(tmp_path: Path) -> None:
    assert rows(tmp_path, (H100, H100, H100), **VLLM)[0] == "this run: 2 x H100 SXM"


@pytest.mark.parametrize(
    ("gpus", "parameters"),
    [
        ((), VLLM),
        ((H100,), {"endpoint": "http://10.0.0.1:8000"}),
        ((H100,), {**VLLM, "mode": "accuracy", "dataset": "simple-facts"}),
    ],
)
def test_nothing_is_set_beside(tmp_path: Path, gpus: tuple[Gpu, ...], parameters: dict[str, Any]) -> None:
    assert rows(tmp_path, gpus, **parameters) == []
