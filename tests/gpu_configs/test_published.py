from __future__ import annotations

import pytest

from agent.core.records import Metric
from gpu_configs.gpu_model import gpu_models
from gpu_configs.published import published_results, standing


def rate(value: float, unit: str = "tokens/s") -> list[Metric]:
    return [Metric("tokens_per_second" if unit == "tokens/s" else "samples_per_second", value, unit)]


def test_the_table_is_whole() -> None:
    names = {model.name for model in gpu_models()}
    assert all(each.gpu in names for each in published_results())
    keys = [(each.benchmark, each.scenario, each.gpu) for each in published_results()]
    assert len(set(keys)) == len(keys)


def test_a_run_stands_beside_its_own_kind_first() -> None:
    table = standing("llama3.1-8b", "Offline", rate(13032), ["NVIDIA H100 80GB HBM3"] * 2)
    assert table is not None
    assert [column.unit for column in table.columns] == ["tokens/s", "ratio"]
    own, first, *others = table.rows
    assert (own.name, own.cells[0].value) == ("this run: 2 x H100 SXM", 6516)
    assert first.name == "1 x H100 SXM, RedHat, v5.1"
    assert first.cells[0].value == pytest.approx(5777.08)
    assert first.cells[1].value == pytest.approx(6516 / 5777.08)
    values = [row.cells[0].value or 0 for row in others]
    assert values == sorted(values, reverse=True)
    assert (
        "inference_results_v5.1/tree/main/closed/RedHat/results/XE8640_4xH100_vLLM/llama3.1-8b/Offline"
        in table.note
    )


@pytest.mark.parametrize(
    ("benchmark", "scenario", "unit", "gpus"),
    [
        ("llama2-70b", "Interactive", "tokens/s", ["AMD Instinct MI300X"]),
        ("llama3_1-8b", "Server", "tokens/s", ["NVIDIA L40S"]),
        ("bert", "Offline", "samples/s", ["NVIDIA H200"] * 8),
        ("llama3.1-8b", "offline", "tokens/s", [None]),
    ],
)
def test_other_names(benchmark: str, scenario: str, unit: str, gpus: list[str | None]) -> None:
    assert standing(benchmark, scenario, rate(1000, unit), gpus) is not None


@pytest.mark.parametrize(
    ("benchmark", "scenario", "unit", "gpus"),
    [
        ("smollm2-135m", "Offline", "tokens/s", ["NVIDIA L40S"]),
        ("llama3.1-8b", "SingleStream", "tokens/s", ["NVIDIA L40S"]),
        ("llama3.1-8b", "Offline", "samples/s", ["NVIDIA L40S"]),
        ("llama3.1-8b", "Offline", "tokens/s", []),
    ],
)
def test_what_cannot_be_compared(benchmark: str, scenario: str, unit: str, gpus: list[str | None]) -> None:
    assert standing(benchmark, scenario, rate(1000, unit), gpus) is None
