"""Turns the output of AMD's tools into records. The records are the same for each tool."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Reason, Validity, Verdict
from parsers.amd_smi.readings import READINGS, choose_temperature
from parsers.nvidia_smi.devices import even
from parsers.nvidia_smi.readings import metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.nvidia_smi.devices import Device, Seen

_METADATA = {
    "name": "gpu_name",
    "uuid": "gpu_uuid",
    "pci.bus_id": "gpu_pci_bus_id",
    "driver_version": "gpu_driver_version",
    "compute_partition": "gpu_compute_partition",
    "memory_partition": "gpu_memory_partition",
}


def output_of(seen: Seen, format: str, tool: str, source: str, remedy: str) -> ParsedOutput:  # noqa: A002
    """Return the records of the GPUs in a tool's output.

    Args:
        seen: the GPUs and messages of the output.
        format: the parser's name.
        tool: the tool's name.
        source: the file, for errors.
        remedy: the command that prints readings, for an output that has none.

    Raises:
        ParseError: if no GPU has a reading.
    """
    for device in seen.devices:
        choose_temperature(device)
    metrics = tuple(_all_metrics(seen.devices))
    reasons = list({reason.message: reason for reason in seen.said}.values())
    if not metrics:
        raise ParseError(
            reasons[0].message if reasons else f"{tool}'s output holds no reading of a GPU",
            where=source or None,
            remedy=reasons[0].remedy if reasons else remedy,
        )
    reasons += [
        Reason(f"{what}; left out", "see the driver's messages in dmesg", code=code)
        for what, code in dict.fromkeys(one for device in seen.devices for one in device.impossible)
    ]
    verdict = None
    if reasons or seen.warnings:
        validity = Validity.INVALID if reasons else Validity.NOT_APPLICABLE
        verdict = Verdict(validity, tuple(reasons), tuple(seen.warnings))
    return ParsedOutput(
        format=format,
        tool_name=tool,
        tool_version=seen.devices[0].texts.get("driver_version", ""),
        scenario="gpu",
        metrics=metrics,
        verdict=verdict,
        complete=seen.complete and even(seen.devices),
        details={"gpus": len({device.label for device in seen.devices})},
        sources=(source,) if source else (),
    )


def _all_metrics(devices: list[Device]) -> Iterator[Metric]:
    times = Counter(device.label for device in devices)
    readings = Counter[str]()
    for device in devices:
        label = device.label
        readings[label] += 1
        metadata: dict[str, str | int | float | bool] = {"gpu": label}
        metadata |= {"gpu_index": device.index} if device.index is not None else {}
        metadata |= {
            name: text for column, name in _METADATA.items() if (text := device.texts.get(column, ""))
        }
        for name, reading in READINGS.items():
            if name not in device.numbers:
                continue
            found = metric(reading, label, *device.numbers[name], metadata)
            scenario = f"reading-{readings[label]}" if times[label] > 1 else None
            yield replace(found, scenario=scenario)
