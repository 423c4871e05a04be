"""rocm-smi's table, JSON and CSV of ROCm 5 to 7.

Sources of ``outputs``, shortened, serial numbers replaced: ``mi100-*`` and ``rx6700xt-*``
influxdata/telegraf, plugins/inputs/amd_rocm_smi/testdata; ``table-*`` ROCm/container-toolkit;
``mi350x-vf`` a test of roctop. ``*-rocm52`` were written by the functions of Debian's rocm-smi 5.2.3, from
values of the MI100.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.component.parsing import parse_path
from agent.core.errors import ParseError
from parsers.rocm_smi import PARSER, parse_text

OUTPUTS = Path(__file__).parent / "outputs"
NO_DRIVER = "ERROR:root:Driver not initialized (amdgpu not found in modules)\n"


def values(text: str) -> dict[str, tuple[float, str]]:
    return {metric.name: (metric.value, metric.unit) for metric in parse_text(text).metrics}


def recorded(name: str) -> dict[str, tuple[float, str]]:
    return values((OUTPUTS / name).read_text())


def test_json_of_a_virtual_mi350x() -> None:
    assert recorded("mi350x-vf.json") == {
        "gpu0_utilization": (0.99, "ratio"),
        "gpu0_temperature": (60, "celsius"),
        "gpu0_hotspot_temperature": (60, "celsius"),
        "gpu0_power_draw_average": (266, "watts"),
        "gpu0_graphics_clock": (173e6, "hertz"),
        "gpu0_memory_clock": (2000e6, "hertz"),
        "gpu0_memory_total": (308902100992, "bytes"),
        "gpu0_memory_used": (200804560896, "bytes"),
        "gpu0_fan_speed": (0.42, "ratio"),
    }


@pytest.mark.parametrize("name", ["mi100-rocm5.json", "mi100-rocm60.json", "rx6700xt-rocm61.json"])
def test_keys_of_each_release(name: str) -> None:
    (output,) = PARSER.parse(OUTPUTS / name)
    found = {metric.name: metric for metric in output.metrics}
    for reading in ("utilization", "power_draw_average", "power_limit", "memory_total", "graphics_clock"):
        assert f"gpu0_{reading}" in found
    assert found["gpu0_memory_total"].metadata["gpu_name"]


def test_the_share_of_memory_has_a_name_since_rocm_6_1() -> None:
    assert recorded("rx6700xt-rocm61.json")["gpu0_memory_allocated"] == (0.12, "ratio")
    assert "gpu0_memory_utilization" not in recorded("mi100-rocm60.json")


def test_table_of_mi300x() -> None:
    (output,) = PARSER.parse(OUTPUTS / "table-mi300x.txt")
    found = {metric.name: (metric.value, metric.unit) for metric in output.metrics}
    assert found["gpu0_hotspot_temperature"] == (45, "celsius")
    assert found["gpu3_power_draw_average"] == (136, "watts")
    assert found["gpu0_power_limit"] == (750, "watts")
    assert found["gpu0_graphics_clock"] == (123e6, "hertz")
    assert output.metrics[0].metadata["gpu_compute_partition"] == "SPX"
    assert output.metrics[0].metadata["gpu_memory_partition"] == "NPS1"
    assert output.complete


def test_table_of_mi210_measures_the_edge() -> None:
    found = recorded("table-mi210.txt")
    assert found["gpu0_temperature"] == found["gpu0_edge_temperature"] == (33, "celsius")
    assert "gpu0_hotspot_temperature" not in found


def test_table_of_rocm_5() -> None:
    (output,) = PARSER.parse(OUTPUTS / "table-rocm52.txt")
    assert output.complete
    assert {metric.name: metric.value for metric in output.metrics} == {
        "gpu0_temperature": 31,
        "gpu0_edge_temperature": 31,
        "gpu0_power_draw_average": 39,
        "gpu0_power_limit": 290,
        "gpu0_graphics_clock": 300e6,
        "gpu0_memory_clock": 1200e6,
        "gpu0_fan_speed": 0,
        "gpu0_memory_allocated": 0,
        "gpu0_utilization": 0.07,
        "gpu1_graphics_clock": 300e6,
        "gpu1_memory_clock": 1200e6,
        "gpu1_fan_speed": 0,
        "gpu1_memory_allocated": 0,
    }


def test_a_table_without_its_last_rule_is_incomplete() -> None:
    lines = (OUTPUTS / "table-mi300x.txt").read_text().splitlines(keepends=True)
    output = parse_text("".join(lines[:-4]))
    assert not output.complete
    assert {metric.metadata["gpu"] for metric in output.metrics} == {"0", "1"}


def test_csv_has_the_numbers_of_json() -> None:
    assert recorded("mi100-rocm52.csv") == recorded("mi100-rocm5.json")
    assert values("device,GPU use (%)\ncard0,N/A\ncard1,97\n") == {"gpu1_utilization": (0.97, "ratio")}


def test_a_secondary_die_has_no_power() -> None:
    text = (
        '{"card0": {"Average Graphics Package Power (W)": "N/A (Secondary die)", "GPU use (%)": "1"},'
        ' "card1": {"Current Socket Graphics Package Power (W)": "4.0", "GPU use (%)": "1"}}'
    )
    found = values(text)
    assert "gpu0_power_draw_average" not in found
    assert found["gpu1_power_draw_average"] == (4, "watts")


def test_a_driver_that_is_not_loaded_is_told_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text(NO_DRIVER)
    with pytest.raises(ParseError, match="amdgpu is not loaded") as refusal:
        parse_path(tmp_path / "out.txt")
    assert refusal.value.remedy is not None
    assert "modprobe amdgpu" in refusal.value.remedy


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("device,GPU use (%)\ncard0,7,5\n", "3 cells, its header 2"),
        ('{"card0": {"GPU use (%)": "7,5"}}', "decimal comma"),
        ('{"card0": {"GPU use (%)": "7W"}}', "not in %"),
        ('{"card0": {"GPU use (%)": "7"}', "was cut"),
        ('{"card0": {"Card Series": "x"}}', "no reading"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, what: str) -> None:
    with pytest.raises(ParseError, match=what):
        parse_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "=== ROCm System Management Interface ===\n=== Weight between two GPUs ===\n       GPU0\nGPU0   0\n",
        "GPU[0]\t\t: Average Graphics Package Power (W): 4.0\n",
    ],
)
def test_other_outputs_of_rocm_smi_are_refused_by_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text(text)
    with pytest.raises(ParseError, match="rocm-smi"):
        parse_path(tmp_path / "out.txt")
