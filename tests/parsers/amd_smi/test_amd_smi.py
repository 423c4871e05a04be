"""amd-smi's JSON of ROCm 6 and 7.

Sources of ``outputs``, shortened, serial numbers replaced: ``metric-rocm6-w7700`` henrygd/beszel issue 737;
``metric-rocm7-rx7800xt`` nathaninline/ajean issue 39; ``metric-rocm7-mi210`` ROCm/device-metrics-exporter;
``static-rocm72-limit`` ROCm/rocm-systems, amdsmi's CHANGELOG, ROCm 7.2.0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.component.parsing import parse_path
from agent.core.errors import ParseError
from agent.core.records import Validity
from parsers.amd_smi import PARSER, parse_text

OUTPUTS = Path(__file__).parent / "outputs"
MIB = 1024**2


def values(text: str) -> dict[str, tuple[float, str]]:
    return {metric.name: (metric.value, metric.unit) for metric in parse_text(text).metrics}


def recorded(name: str) -> dict[str, tuple[float, str]]:
    return values((OUTPUTS / name).read_text())


def of_gpu(**blocks: Any) -> str:
    return json.dumps({"gpu_data": [{"gpu": 0, **blocks}]})


def test_rocm_6_gives_a_bare_list() -> None:
    assert recorded("metric-rocm6-w7700.json") == {
        "gpu0_utilization": (0.42, "ratio"),
        "gpu0_memory_utilization": (0.01, "ratio"),
    }


def test_rocm_7_gives_gpu_data() -> None:
    assert recorded("metric-rocm7-rx7800xt.json") == {
        "gpu0_utilization": (0.02, "ratio"),
        "gpu0_power_draw_average": (9, "watts"),
        "gpu0_graphics_clock": (49e6, "hertz"),
        "gpu0_max_graphics_clock": (2645e6, "hertz"),
        "gpu0_temperature": (41, "celsius"),
        "gpu0_hotspot_temperature": (41, "celsius"),
        "gpu0_memory_total": (16368 * MIB, "bytes"),
        "gpu0_memory_used": (14569 * MIB, "bytes"),
    }


def test_error_counts_are_volatile_and_zero_is_a_value() -> None:
    found = recorded("metric-rocm7-mi210.json")
    for kind in ("corrected", "uncorrected", "deferred"):
        assert found[f"gpu0_ecc_volatile_total_{kind}_errors"] == (0, "count")
    assert found["gpu0_ecc_volatile_dram_uncorrected_errors"] == (0, "count")
    assert found["gpu0_temperature"] == (37, "celsius")
    assert found["gpu0_memory_temperature"] == (48, "celsius")


def test_the_power_limit_of_rocm_7_2_and_of_before() -> None:
    assert recorded("static-rocm72-limit.json") == {"gpu0_power_limit": (100, "watts")}
    assert values(of_gpu(limit={"socket_power": {"value": 750, "unit": "W"}})) == {
        "gpu0_power_limit": (750, "watts")
    }


def test_metrics_say_which_gpu_they_are_of() -> None:
    (output,) = PARSER.parse(OUTPUTS / "static-mi300x.json")
    assert output.tool_version == "6.19.14"
    (memory,) = output.metrics
    assert (memory.name, memory.value) == ("gpu0_memory_total", 206141652992)
    assert memory.metadata["gpu_name"] == "AMD Instinct MI300X"
    assert memory.metadata["gpu_pci_bus_id"] == "0000:83:00.0"
    assert "virtualclient_name" not in memory.metadata


def test_which_power_is_valid_depends_on_the_gpu_before_rocm_7() -> None:
    mi300 = of_gpu(power={"current_socket_power": {"value": 141, "unit": "W"}, "average_socket_power": "N/A"})
    mi200 = of_gpu(power={"current_socket_power": 65535, "average_socket_power": {"value": 41, "unit": "W"}})
    assert values(mi300) == {"gpu0_power_draw_average": (141, "watts")}
    assert values(mi200) == {"gpu0_power_draw_average": (41, "watts")}


def test_throttling_and_energy() -> None:
    text = of_gpu(
        throttle={
            "ppt_violation_activity": {"value": 12, "unit": "%"},
            "hbm_thermal_violation_activity": "N/A",
            "low_utilization_violation_activity": {"xcp_0": [{"value": 100, "unit": "%"}]},
        },
        energy={"total_energy_consumption": {"value": 14292727.274, "unit": "J"}},
    )
    assert values(text) == {
        "gpu0_throttle_ppt": (0.12, "ratio"),
        "gpu0_energy_consumed": (14292727.274, "joules"),
    }


def test_warnings_around_the_json_are_passed_over() -> None:
    text = (OUTPUTS / "metric-rocm6-w7700.json").read_text()
    around = (
        "amdsmi_interface.py:3569: SyntaxWarning: 'return' in a 'finally' block\n"
        f"[AMDSMI_STATUS_NO_PERM] User is missing the groups\n{text}\nLegend:\n  * = Current mode\n"
    )
    assert values(around) == values(text)


def test_several_documents_are_several_readings() -> None:
    text = (OUTPUTS / "metric-rocm6-w7700.json").read_text()
    output = parse_text(text + text)
    assert [metric.scenario for metric in output.metrics][::2] == ["reading-1", "reading-2"]
    cut = parse_text(text + text[:40])
    assert not cut.complete
    assert len(cut.metrics) == len(parse_text(text).metrics)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (of_gpu(asic={"market_name": "AMD Instinct MI300X"}), "no reading"),
        (of_gpu(power={"socket_power": {"value": "12,5", "unit": "W"}}), "decimal comma"),
        (of_gpu(power={"socket_power": {"value": 12, "unit": "MB"}}), "not in W"),
        (of_gpu(power={"socket_power": {"value": 1e300, "unit": "W"}}), "no GPU has"),
        (of_gpu(power={"socket_power": 12}).replace('"gpu": 0', '"gpu": "0"'), "does not name its GPU"),
        (of_gpu(power={"socket_power": 12})[:-1], "was cut"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, what: str) -> None:
    with pytest.raises(ParseError, match=what):
        parse_text(text)


def test_a_value_below_0_is_left_out_and_makes_the_result_invalid() -> None:
    output = parse_text(of_gpu(power={"socket_power": -3}, usage={"gfx_activity": 5}))
    assert output.validity is Validity.INVALID
    assert [metric.name for metric in output.metrics] == ["gpu0_utilization"]


def test_more_than_the_whole_is_left_out() -> None:
    output = parse_text(of_gpu(usage={"gfx_activity": 250}, power={"socket_power": 5}))
    assert output.verdict
    assert [reason.code for reason in output.verdict.reasons] == ["above_100"]
    assert [metric.name for metric in output.metrics] == ["gpu0_power_draw_average"]


def test_it_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "metric.json").write_bytes((OUTPUTS / "metric-rocm7-mi210.json").read_bytes())
    assert [output.format for output in parse_path(tmp_path)] == ["amd_smi"]


@pytest.mark.parametrize(
    "text",
    [
        '[{"gpu": 0, "process_list": [{"process_info": {"name": "x", "usage": {"gfx": 1}}}]}]',
        '[{"gpu": 0, "bdf": "0000:0c:00.0", "links": [{"gpu": 1, "link_type": "XGMI"}]}]',
        '[{"gpu": 0, "memory_partition": "NPS1", "compute_partition": "CPX_DISABLED"}]',
        '[{"tool": "AMDSMI Tool", "version": "24.7.1", "amdsmi_library_version": "24.7.2.0"}]',
        "AMDSMI Tool: 25.4.2+aca1101 | ROCm version: 6.4.1 | amdgpu version: 6.10.5\n",
        "GPU: 0\n    POWER:\n        SOCKET_POWER: 140 W\n",
        "GPU  XCP  PVIOL  TVIOL\n  0    0    0 %    0 %\n",
        "        GFX_7:\n            CLK: 131 MHz\n",
        "    PROCESS_INFO:\n        NAME: /usr/bin/python3.12\n",
        "timestamp            gpu_id  severity\n2025/10/07 09:58:04  0       FATAL\n",
        "GPU  POWER  PWR_CAP\n  0  148 W    750 W\n",
        "| AMD-SMI 26.0.0+eaa54ecc      amdgpu version: 6.12.12  ROCm version: 7.0.0    |\n",
        "gpu,ppt0_max_power_limit,ppt0_min_power_limit\n0,203,0\n",
        "CURRENT_PARTITION:\nGPU_ID  MEMORY  ACCELERATOR_TYPE\n0       NPS1    SPX\n",
    ],
)
def test_other_outputs_of_amd_smi_are_refused_by_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text(text)
    with pytest.raises(ParseError, match="amd-smi") as refusal:
        parse_path(tmp_path / "out.txt")
    assert refusal.value.remedy is not None
    assert "amd-smi metric --json" in refusal.value.remedy
