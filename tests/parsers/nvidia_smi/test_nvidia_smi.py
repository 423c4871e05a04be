"""nvidia-smi's output in all its forms; unknown values are absent.

``h200_x2`` is from a host with two H200 (driver 580.159.04), the first under load; so is the XML of the tests
of facts, without its lists of clocks.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.component.parsing import parse_path
from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Validity
from parsers.nvidia_smi import PARSER, gpus, parse_text

OUTPUTS = Path(__file__).parent / "outputs"
H200_X2 = OUTPUTS / "h200_x2"
FACTS = Path(__file__).parents[2] / "agent" / "facts"
WITH_UNITS = """\
index, name, uuid, driver_version, memory.total [MiB], memory.used [MiB], utilization.gpu [%], \
power.draw [W], temperature.gpu, clocks.current.sm [MHz], mig.mode.current
0, NVIDIA L40S, GPU-a, 560.35.03, 46068 MiB, 3 MiB, 7 %, 70.89 W, 26, 345 MHz, [N/A]
1, NVIDIA L4, GPU-b, 560.35.03, 23034 MiB, [Not Supported], N/A, [N/A], 31, 300 MHz, [N/A]
"""
XML = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
<nvidia_smi_log>
  <driver_version>580.95.05</driver_version>
  <attached_gpus>1</attached_gpus>
  <gpu id="00000000:19:00.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <uuid>GPU-1</uuid>
    <mig_mode><current_mig>Enabled</current_mig></mig_mode>
    <mig_devices><mig_device><index>0</index><uuid>MIG-1</uuid></mig_device></mig_devices>
    <fan_speed>N/A</fan_speed>
    <fb_memory_usage><total>81559 MiB</total><used>0 MiB</used></fb_memory_usage>
    <utilization><gpu_util>N/A</gpu_util><memory_util>3 %</memory_util></utilization>
    <pci><pci_gpu_link_info><link_widths><current_link_width>16x</current_link_width></link_widths>
    </pci_gpu_link_info></pci>
    <gpu_power_readings><average_power_draw>70.75 W</average_power_draw></gpu_power_readings>
  </gpu>
</nvidia_smi_log>
"""
LIST = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa)
  MIG 3g.20gb     Device  0: (UUID: MIG-1)
  MIG 3g.20gb     Device  1: (UUID: MIG-2)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbb)
"""
C2C = """\
GPU 0: NVIDIA GH200 480GB (UUID: GPU-c)
\t C2C Link 0: 44.712 GB/s
\t C2C Link 1: <inactive>
GPU 1: NVIDIA GH200 480GB (UUID: GPU-d)
\t C2C Link 0: 44.7 GB/s
"""


def codes(output: ParsedOutput) -> list[str]:
    assert output.verdict is not None
    return [reason.code for reason in output.verdict.reasons]


def values(text: str) -> dict[str, tuple[float, str]]:
    return {metric.name: (metric.value, metric.unit) for metric in parse_text(text).metrics}


def test_a_query_with_units_in_its_values() -> None:
    assert values(WITH_UNITS) == {
        "gpu0_utilization": (0.07, "ratio"),
        "gpu0_temperature": (26, "celsius"),
        "gpu0_power_draw_average": (70.89, "watts"),
        "gpu0_sm_clock": (345e6, "hertz"),
        "gpu0_memory_total": (46068 * 1024**2, "bytes"),
        "gpu0_memory_used": (3 * 1024**2, "bytes"),
        "gpu1_temperature": (31, "celsius"),
        "gpu1_sm_clock": (300e6, "hertz"),
        "gpu1_memory_total": (23034 * 1024**2, "bytes"),
    }


def test_units_in_the_header_alone_are_the_same() -> None:
    without = WITH_UNITS
    for unit in (" MiB,", " %,", " W,", " MHz,"):
        without = without.replace(unit, ",")
    assert without != WITH_UNITS
    assert values(without) == values(WITH_UNITS)


def test_a_metric_tells_its_gpu_and_the_tools_own_number() -> None:
    metric = next(metric for metric in parse_text(WITH_UNITS).metrics if metric.name == "gpu0_memory_used")
    assert metric.metadata["gpu_index"] == 0
    assert metric.metadata["gpu_name"] == "NVIDIA L40S"
    assert metric.metadata["gpu_uuid"] == "GPU-a"
    assert (metric.metadata["tool_value"], metric.metadata["tool_unit"]) == (3, "MiB")
    assert "gpu_mig_mode" not in metric.metadata


def test_a_row_shorter_than_its_header_has_what_it_has() -> None:
    short = WITH_UNITS.splitlines()[0] + "\n0, NVIDIA L4, GPU-b, 560.35.03, 23034 MiB\n"
    assert set(values(short)) == {"gpu0_memory_total"}


def test_a_gpu_is_its_index_or_its_bus_id_and_never_the_place_of_its_row() -> None:
    assert values("pci.bus_id, memory.used [MiB]\n00000000:17:00.0, 1 MiB\n") == {
        "gpu_00000000_17_00_0_memory_used": (1024**2, "bytes")
    }
    with pytest.raises(ParseError, match="no column identifies the GPU"):
        parse_text("name, memory.total [MiB]\nNVIDIA L4, 1 MiB\nNVIDIA L4, 1 MiB\n")
    some = XML.replace("<attached_gpus>1<", "<attached_gpus>2<")  # nvidia-smi -i 1 -q -x
    assert "gpu_00000000_19_00_0_memory_used" in values(some)


def test_a_repeated_query_has_the_times_of_its_rows() -> None:
    rows = "2026/01/02 03:04:05.500, 0, 70 W\n2026/01/02 03:04:06.500, 0, 80 W\n"
    text = f"timestamp, index, power.draw [W]\n{rows}"
    output = parse_text(text)
    assert [metric.value for metric in output.metrics] == [70, 80]
    assert output.metrics[0].timestamp == datetime(2026, 1, 2, 3, 4, 5, 500_000, tzinfo=timezone.utc)
    assert output.end == datetime(2026, 1, 2, 3, 4, 6, 500_000, tzinfo=timezone.utc)
    assert [metric.scenario for metric in output.metrics] == ["reading-1", "reading-2"]
    assert output.verdict is None


def test_times_that_run_backwards_are_told() -> None:
    rows = "2026/01/02 03:04:06.500, 0, 70 W\n2026/01/02 03:04:05.500, 0, 80 W\n"
    output = parse_text(f"timestamp, index, power.draw [W]\n{rows}")
    assert codes(output) == ["time_backwards"]


def test_xml_says_the_same_under_the_same_names() -> None:
    assert values(XML) == {
        "gpu0_memory_utilization": (0.03, "ratio"),
        "gpu0_power_draw_average": (70.75, "watts"),
        "gpu0_memory_total": (81559 * 1024**2, "bytes"),
        "gpu0_memory_used": (0, "bytes"),
        "gpu0_pcie_width": (16, "lanes"),
    }
    assert parse_text(XML).tool_version == "580.95.05"


def test_two_h200_of_which_one_is_under_load() -> None:
    found = values((H200_X2 / "query.csv").read_text())
    of_one = {name.partition("_")[2] for name in found}
    assert len(of_one) == 19
    assert set(found) == {f"gpu{index}_{name}" for index in (0, 1) for name in of_one}
    assert found["gpu0_utilization"] == (1.0, "ratio")
    assert found["gpu0_power_draw_average"] == (692.74, "watts")
    assert found["gpu0_power_draw_instant"] == (705.46, "watts")  # above the limit, for an instant
    assert found["gpu0_power_limit"] == (700.0, "watts")
    assert found["gpu0_sm_clock"] == (1770e6, "hertz")
    assert found["gpu0_max_sm_clock"] == (1980e6, "hertz")
    assert found["gpu0_memory_used"] == (137041 * 1024**2, "bytes")
    assert found["gpu0_memory_temperature"] == (63, "celsius")
    assert found["gpu1_memory_used"] == (0, "bytes")
    assert found["gpu1_power_draw_average"] == (78.54, "watts")
    assert parse_text((H200_X2 / "query.csv").read_text()).tool_version == "580.159.04"


def test_the_xml_of_two_h200() -> None:
    found = values((FACTS / "h200_x2_nvidia_smi_q.xml").read_text())
    assert len(found) == 68
    assert found["gpu0_power_draw_average"] == (691.1, "watts")
    assert found["gpu0_memory_power_draw"] == (158.27, "watts")
    assert found["gpu0_memory_reserved"] == (616 * 1024**2, "bytes")
    assert found["gpu0_video_clock"] == (1545e6, "hertz")
    assert found["gpu1_pcie_replays"] == (1, "count")
    assert found["gpu1_remapped_rows_uncorrected"] == (0, "count")


def test_both_shapes_and_the_list_name_the_same_two() -> None:
    texts = (H200_X2 / "query.csv", FACTS / "h200_x2_nvidia_smi_q.xml", H200_X2 / "list.txt")
    query, xml, listed = (gpus(path.read_text()) for path in texts)
    assert query == xml
    assert [(gpu.name, gpu.memory_bytes, gpu.mig_mode) for gpu in query] == 2 * [
        ("NVIDIA H200", 143771 * 1024**2, "Disabled")
    ]
    assert [gpu.uuid for gpu in listed] == [gpu.uuid for gpu in query]


def test_the_log_of_two_h200_says_what_the_xml_says() -> None:
    log = values((H200_X2 / "log.txt").read_text())
    xml = values((FACTS / "h200_x2_nvidia_smi_q.xml").read_text())
    assert {name: unit for name, (_, unit) in log.items()} == {name: unit for name, (_, unit) in xml.items()}
    moved = {name for name in log if log[name] != xml[name]}
    # A second lies between the two: the busy GPU is warmer, and has other clocks and power.
    assert {name for name in moved if name.startswith("gpu1")} == {
        "gpu1_power_draw_instant", "gpu1_memory_power_draw"
    }  # fmt: skip
    assert {name.removeprefix("gpu0_") for name in moved if name.startswith("gpu0")} == {
        "temperature", "memory_temperature", "graphics_clock", "sm_clock",
        "power_draw_average", "power_draw_instant", "memory_power_draw",
    }  # fmt: skip


def test_the_table_of_two_h200() -> None:
    found = values((FACTS / "h200_x2_nvidia_smi.txt").read_text())
    assert len(found) == 12
    assert found["gpu0_power_draw_average"] == (695, "watts")
    assert found["gpu0_memory_used"] == (137041 * 1024**2, "bytes")
    assert found["gpu1_utilization"] == (0, "ratio")


def test_the_monitor_of_two_h200() -> None:
    metrics = parse_text((H200_X2 / "dmon.txt").read_text()).metrics
    assert len(metrics) == 4 * 2 * 11  # rounds, GPUs, readings
    power = [metric.value for metric in metrics if metric.name == "gpu0_power_draw_average"]
    assert power == [692, 693, 688, 677]
    assert [metric.value for metric in metrics if metric.name == "gpu1_pcie_replays"] == [1, 1, 1, 1]


def test_no_entity_of_a_dtd_expands() -> None:
    bomb = XML.replace(
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">',
        '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>',
    ).replace("GPU-1", "&b;")
    with pytest.raises(ParseError, match="entity"):
        parse_text(bomb)


@pytest.mark.parametrize("reading", ["utilization.gpu", "utilization.memory", "utilization.encoder"])
def test_more_than_the_whole_is_set_aside(reading: str) -> None:
    text = f"index, {reading} [%], fan.speed [%]\n0, 250 %, 120 %\n"
    output = parse_text(text)
    assert codes(output) == ["above_100"]
    assert output.verdict
    assert "of GPU 0 is 250 %, which is above 100 %" in output.verdict.reasons[0].message
    assert values(text) == {"gpu0_fan_speed": (1.2, "ratio")}
    assert parse_text(text.replace("250", "100")).verdict is None


def test_the_gpus_of_every_shape() -> None:
    (h100,) = gpus(XML)
    assert (h100.name, h100.memory_bytes, h100.driver_version) == (
        "NVIDIA H100 80GB HBM3",
        81559 * 1024**2,
        "580.95.05",
    )
    assert (h100.uuid, h100.mig_mode, h100.mig_devices) == ("GPU-1", "Enabled", ("MIG-1",))
    l40s, l4 = gpus(WITH_UNITS)
    assert (l40s.name, l4.name) == ("NVIDIA L40S", "NVIDIA L4")
    split, whole = gpus(LIST)
    assert split.mig_devices == ("MIG-1", "MIG-2")
    assert (whole.mig_devices, whole.memory_bytes) == ((), None)


def test_chip_to_chip_links() -> None:
    assert values(C2C) == {
        "gpu0_c2c_link0_speed": (44_712_000_000, "bytes/s"),
        "gpu1_c2c_link0_speed": (44_700_000_000, "bytes/s"),
    }
    assert _in_virtualclient(parse_text(C2C)) == {"gpu0_link0_speed": 44.712, "gpu1_link0_speed": 44.7}


def test_colours_and_redraws_are_no_part_of_it() -> None:
    assert values(C2C.replace("44.712", "\x1b[32m44.712\x1b[0m").replace("\n", "\r\n")) == values(C2C)


def test_what_has_no_number_is_an_error() -> None:
    with pytest.raises(ParseError, match="holds no number"):
        parse_text(LIST)
    with pytest.raises(ParseError, match="not a supported output"):
        parse_text("something else\n")
    with pytest.raises(ParseError, match="cut or broken"):
        parse_text(XML[: len(XML) // 2])


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("No devices were found\n", "found no device"),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.1\n",
            "driver and library differ",
        ),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that\n",
            "cannot talk to the driver",
        ),
        (
            "Unable to determine the device handle for GPU0000:C1:00.0: Unknown Error\n",
            "cannot get hold of a GPU",
        ),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "does not find the driver's"),
        ("bash: line 1: nvidia-smi: command not found\n", "there is no nvidia-smi"),
        ("Failed to initialize NVML: Unknown Error", "the driver's library cannot be used"),
        ('Field "power.drw" is not a valid field to query.\n', "does not exist in this driver"),
    ],
)
def test_why_nvidia_smi_has_no_reading_is_said(said: str, meaning: str, tmp_path: Path) -> None:
    (tmp_path / "smi.txt").write_text(said)
    assert PARSER.recognise(tmp_path / "smi.txt")
    with pytest.raises(ParseError, match=meaning) as refusal:
        PARSER.parse(tmp_path / "smi.txt")
    assert refusal.value.remedy


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("Unable to determine the device handle for GPU0000:C1:00.0: GPU is lost.  Reboot", "gpu_lost"),
        ("1, [GPU requires reset], [GPU requires reset]", "gpu_requires_reset"),
        ("1, [GPU is lost], [GPU is lost]", "gpu_lost"),
        ("1, 20 %, -5 MiB", "below_0"),
    ],
)
def test_a_gpu_that_is_lost_is_told_and_the_others_are_read(line: str, code: str) -> None:
    text = f"index, utilization.gpu [%], memory.used [MiB]\n0, 99 %, 70000 MiB\n{line}\n"
    output = parse_text(text)
    assert codes(output) == [code]
    assert output.validity is Validity.INVALID
    found = {metric.name: metric.value for metric in output.metrics}
    assert found["gpu0_memory_used"] == 70000 * 1024**2
    assert "gpu1_memory_used" not in found


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("70.89 W", "70,89 W", "cells"),
        ("70.89 W", "70.89 MiB", "not in W"),
        ("46068 MiB", "46068 W", "not in MiB"),
        ("46068 MiB", "46.068.1 MiB", "not a number"),
        ("26, 345 MHz", "26, 345 MHz, 1, 2", "cells"),
        ("\n0, NVIDIA", "\nx1, NVIDIA", "its index is not a number"),
        ("\n0, NVIDIA", "\n², NVIDIA", "its index is not a number"),
        ("memory.used [MiB]", "memory.used [W]", "not in MiB"),
    ],
)
def test_a_query_that_does_not_fit_its_header_is_refused(old: str, new: str, match: str) -> None:
    assert old in WITH_UNITS
    with pytest.raises(ParseError, match=match):
        parse_text(WITH_UNITS.replace(old, new))


@pytest.mark.parametrize(("old", "new"), [("70.75 W", "70,75 W"), ("70.75 W", "70.75 MiB"), ("3 %", "3 W")])
def test_xml_with_another_unit_or_a_decimal_comma_is_refused(old: str, new: str) -> None:
    with pytest.raises(ParseError, match="is not"):
        parse_text(XML.replace(old, new))


def test_a_row_that_was_cut_keeps_what_is_whole() -> None:
    header = "index, name, utilization.gpu [%], memory.used [MiB]\n"
    for end, left in (("15 %, 10", {"gpu1_utilization"}), ("15", set()), ("15 %", {"gpu1_utilization"})):
        output = parse_text(f"{header}0, NVIDIA L4, 12 %, 100 MiB\n1, NVIDIA L4, {end}")
        assert not output.complete
        assert {metric.name for metric in output.metrics if metric.name.startswith("gpu1")} == left
    whole = parse_text(f"{header}0, NVIDIA L4, 12 %, 100 MiB\n1, NVIDIA L4, 15 %, 10 MiB")
    assert whole.complete  # the unit shows that nothing is missing


def test_a_round_that_lacks_a_gpu_is_incomplete() -> None:
    header = "index, memory.used [MiB]\n"
    assert parse_text(f"{header}0, 1 MiB\n1, 1 MiB\n0, 2 MiB\n1, 2 MiB\n").complete
    assert not parse_text(f"{header}0, 1 MiB\n1, 1 MiB\n0, 2 MiB\n").complete


def test_lines_of_other_programs_are_passed_over_and_told() -> None:
    text = "srun: job 7 queued\n" + WITH_UNITS + "srun: done\n"
    output = parse_text(text)
    assert len(output.metrics) == len(parse_text(WITH_UNITS).metrics)
    assert output.verdict is not None
    assert "is not a row: srun: done" in output.verdict.warnings[0]


def metrics_of(name: str) -> tuple[ParsedOutput, dict[str, float]]:
    """Return the content of one of the invented outputs, which follow public pastes of these drivers."""
    (output,) = parse_path(OUTPUTS / name)
    return output, {
        f"{metric.scenario}/{metric.name}" if metric.scenario else metric.name: metric.value
        for metric in output.metrics
    }


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("table.txt", "580.95.05", {"gpu0_memory_used": 1024**3, "gpu0_power_draw_average": 172}),
        ("table-418.txt", "418.67", {"gpu0_utilization": 0.03, "gpu0_power_limit": 70}),
        (
            "log-535.txt",
            "535.161.07",
            {
                "gpu0_power_draw_average": 100.89,
                "gpu0_temperature": 61,
                "gpu0_sm_clock": 1980e6,
                "gpu0_memory_used": 1024**2,
                "gpu0_ecc_volatile_dram_uncorrected_errors": 3,
                "gpu0_pcie_generation": 4,
                "gpu1_power_draw_average": 82.1,
            },
        ),
        ("log-470.txt", "470.256.02", {"gpu_00000000_06_00_0_power_draw_average": 60.53}),
        ("xml-418.xml", "418.67", {"gpu_00000000_00_04_0_power_draw_average": 9.63,
                                   "gpu_00000000_00_04_0_ecc_volatile_total_corrected_errors": 4}),
        ("xml-535-loop.xml", "535.161.07", {"reading-1/gpu0_power_draw_average": 271.4,
                                            "reading-2/gpu0_power_draw_average": 281.4}),
        ("dmon.txt", "", {"reading-1/gpu0_utilization": 0.98, "reading-2/gpu1_memory_used": 1025 * 1024**2}),
        ("query-nounits.csv", "", {"reading-2/gpu1_utilization": 0.2}),
    ],
)  # fmt: skip
def test_every_form_is_read(name: str, version: str, expected: dict[str, float]) -> None:
    output, found = metrics_of(name)
    assert (output.complete, output.tool_version) == (True, version)
    assert {key: found.get(key) for key in expected} == expected


def test_what_a_table_cannot_tell_is_absent() -> None:
    _, found = metrics_of("table.txt")
    assert {name for name in found if name.startswith("gpu1_")} == {"gpu1_memory_total"}


def test_a_gpu_that_requires_a_reset_is_named() -> None:
    output, _ = metrics_of("log-535.txt")
    assert codes(output) == ["gpu_requires_reset"]
    assert output.verdict is not None
    assert "00000000:2A:00.0" in output.verdict.reasons[0].message


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("table.txt", "1024MiB", "1024GHz"),
        ("table.txt", "172W", "17,2W"),
        ("table.txt", "|   0  NVIDIA GB200                   On  |   00000008:01:00.0", "|   0  NVIDIA | x"),
        ("log-535.txt", "100.89 W", "100,89 W"),
        ("log-535.txt", "61 C", "61 W"),
        ("dmon.txt", "Idx      W ", "Idx     mW "),
        ("dmon.txt", "    512\n", "    512    7\n"),
        ("c2c.txt", "44.712 GB/s", "44712 MB/s"),
        ("c2c.txt", "44.712 GB/s", "44,712 GB/s"),
    ],
)
def test_another_unit_or_form_is_refused_everywhere(name: str, old: str, new: str) -> None:
    text = (OUTPUTS / name).read_text()
    assert old in text
    with pytest.raises(ParseError):
        parse_text(text.replace(old, new))


def test_documents_of_a_loop_that_are_whole_are_read() -> None:
    text = (OUTPUTS / "xml-535-loop.xml").read_text()
    output = parse_text(text[: text.rindex("</gpu>")])
    assert not output.complete
    assert {metric.value for metric in output.metrics if "power_draw" in metric.name} == {271.4}


@given(cut=st.integers(0, len(WITH_UNITS)))
def test_a_query_cut_anywhere_gives_whole_rows_or_an_error(cut: int) -> None:
    try:
        output = parse_text(WITH_UNITS[:cut])
    except ParseError:
        return
    assert {metric.name for metric in output.metrics} <= set(values(WITH_UNITS))


def test_a_folder_gives_each_file(tmp_path: Path) -> None:
    (tmp_path / "before.csv").write_text(WITH_UNITS)
    (tmp_path / "after.xml").write_text(XML)
    (tmp_path / "gpus.txt").write_text(LIST)
    (tmp_path / "notes.txt").write_text("index, of, things\n")
    assert PARSER.recognise(tmp_path)
    assert [output.scenario for output in PARSER.parse(tmp_path)] == ["after.xml/gpu", "before.csv/gpu"]
    (tmp_path / "cut.xml").write_text(XML[:300])
    outputs = {output.scenario: output.validity for output in PARSER.parse(tmp_path)}
    assert outputs == {"after.xml/gpu": None, "before.csv/gpu": None, "cut.xml": Validity.FAILED}


def _in_virtualclient(output: ParsedOutput) -> dict[str, Any]:
    """Return the metrics under VirtualClient's names and in its units."""
    return {
        str(metric.metadata["virtualclient_name"]): metric.metadata.get("tool_value", metric.value)
        for metric in output.metrics
        if "virtualclient_name" in metric.metadata
    }


def _virtualclient(shared: Path, name: str) -> dict[str, Any]:
    (output,) = PARSER.parse(shared / "peers/virtualclient/results" / name)
    return _in_virtualclient(output)


def test_virtualclients_own_files_give_its_numbers(shared: Path) -> None:
    h100 = _virtualclient(shared, "query-gpu-1xH100.csv")
    assert len(h100) == 30  # the file has no final line end, so that its last number, 20, may be cut
    assert h100["gpu0_power_draw_average"] == 70.89
    assert h100["gpu0_memory_used"] == 3
    assert h100["gpu0_%_utilization"] == 1
    assert h100["gpu0_ecc_aggregate_sram_uncorrected_errors"] == 17
    assert "gpu0_ecc_aggregate_total_uncorrected_errors" not in h100
    t4 = _virtualclient(shared, "query-gpu-1xT4-NA.csv")
    assert len(t4) == 28
    assert {"gpu0_power_draw_average", "gpu0_memory_temperature"}.isdisjoint(t4)
    links = _virtualclient(shared, "query-c2c.txt")
    assert len(links) == 10
    assert links["gpu0_link0_speed"] == 44.712


def test_our_own_metrics_are_as_many(shared: Path) -> None:
    folder = shared / "peers/virtualclient/results"
    counts = [len(PARSER.parse(folder / f"query-gpu-1x{name}.csv")[0].metrics) for name in ("H100", "T4-NA")]
    assert counts == [30, 28]


def test_a_real_h100_in_both_shapes(shared: Path) -> None:
    (query,) = PARSER.parse(shared / "fixtures/nvidia_smi/h100_smi-query.csv")
    (xml,) = PARSER.parse(shared / "fixtures/nvidia_smi/h100_smi-q.xml")
    in_query = {
        metric.name.replace("gpu_00000000_00_06_0_", "gpu0_"): metric.value for metric in query.metrics
    }
    in_xml = {metric.name: metric.value for metric in xml.metrics}
    assert in_query["gpu0_memory_total"] == in_xml["gpu0_memory_total"] == 81559 * 1024**2
    assert in_query["gpu0_power_limit"] == in_xml["gpu0_power_limit"] == 700
    assert "gpu0_fan_speed" not in in_xml


@pytest.mark.parametrize("error", ["[Unknown Error]", "Unknown Error", "ERR!"])
def test_an_error_in_place_of_a_number_is_told(error: str) -> None:
    head = "index, power.draw [W], temperature.gpu\n"
    one = parse_text(f"{head}0, {error}, 33\n1, 66.00 W, 34\n").verdict
    assert one is not None
    assert one.validity is Validity.NOT_APPLICABLE
    assert one.warnings == (
        "GPU 0 gives an error in place of power_draw_average; see the driver's messages in dmesg",
    )
    none = parse_text(f"{head}0, {error}, {error}\n1, 66.00 W, 34\n").verdict
    assert none is not None
    assert none.validity is Validity.INVALID
    assert none.reasons[0].code == "gpu_unread"
    assert parse_text(f"{head}0, [N/A], 33\n").verdict is None


def test_an_error_in_a_document_or_a_text_is_told() -> None:
    document = (OUTPUTS / "xml-418.xml").read_text()
    text = (OUTPUTS / "log-535.txt").read_text()
    for output, old, name in (
        (document, "<gpu_temp>44 C<", "temperature"),
        (text, ": 97 %", "utilization"),
    ):
        assert output.count(old) == 1
        error = old.replace("44 C", "Unknown Error").replace("97 %", "Unknown Error")
        verdict = parse_text(output.replace(old, error)).verdict
        assert verdict is not None
        assert f"gives an error in place of {name};" in "\n".join(verdict.warnings)
