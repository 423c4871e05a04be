"""nvidia-smi's output: queries as CSV, ``-q -x``, ``c2c -s`` and ``-L``; what it could not tell is absent."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Parser
from parsers.nvidia_smi.c2c import link_metrics
from parsers.nvidia_smi.devices import Device, Gpu, devices, gpus, kind
from parsers.nvidia_smi.readings import READINGS, metric
from parsers.terminal import plain
from parsers.trees import beginning, files_in, parse_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["PARSER", "Gpu", "gpus", "parse_text", "virtualclient_metrics"]

FORMAT = "nvidia_smi"
TOOL = "nvidia-smi"
_ENDINGS = {".csv", ".xml", ".txt", ".log", ".out"}
_SIZE_LIMIT = 64 << 20
_METADATA = {
    "name": "gpu_name",
    "uuid": "gpu_uuid",
    "pci.bus_id": "gpu_pci_bus_id",
    "driver_version": "gpu_driver_version",
    "pstate": "gpu_pstate",
    "pcie.link.gen.max": "gpu_pcie_link_gen_max",
    "pcie.link.gen.current": "gpu_pcie_link_gen_current",
    "mig.mode.current": "gpu_mig_mode",
}
_VIRTUALCLIENT_UNITS = {reading.name: reading.virtualclient_unit for reading in READINGS}


def parse_text(text: str, source: str = "") -> ParsedOutput:
    """The metrics in nvidia-smi's output.

    Args:
        text: the output; times in it are taken as UTC, because nvidia-smi writes no zone.
        source: where the text comes from, for errors.

    Raises:
        ParseError: if the text is not nvidia-smi's, is cut, or holds no number.
    """
    text = plain(text)
    links = link_metrics(text)
    try:
        found = [] if links else devices(text)
    except ParseError as error:
        raise ParseError(error.message, where=source or None) from error
    metrics = links or tuple(item for device in found for item in _metrics(device, repeated=_repeats(found)))
    if not metrics:
        raise ParseError("nvidia-smi's output holds no number", where=source or None)
    return ParsedOutput(
        format=FORMAT,
        tool_name=TOOL,
        tool_version=found[0].texts.get("driver_version", "") if found else "",
        scenario="c2c" if links else "gpu",
        metrics=metrics,
        start=_time(found[0]) if found else None,
        end=_time(found[-1]) if found else None,
        details={"gpus": len({item.metadata["gpu_index"] for item in metrics})},
        sources=(source,) if source else (),
    )


def virtualclient_metrics(output: ParsedOutput) -> tuple[Metric, ...]:
    """The same numbers under VirtualClient's names, in its units: for dashboards built on them.

    Args:
        output: what `parse_text` gave.
    """
    return tuple(
        replace(
            item,
            name=str(item.metadata["virtualclient_name"]),
            value=float(item.metadata.get("tool_value", item.value)),
            unit=_virtualclient_unit(item),
            tags=("virtualclient",),
        )
        for item in output.metrics
        if "virtualclient_name" in item.metadata
    )


def _virtualclient_unit(item: Metric) -> str:
    if item.metadata.get("tool_unit") == "GB/s":
        return "GB/s"
    # VirtualClient gives a utilization no unit; a record needs one
    return _VIRTUALCLIENT_UNITS.get(item.name.partition("_")[2], "") or "percent"


def _repeats(found: list[Device]) -> bool:
    return len({device.index for device in found}) < len(found)


def _metrics(device: Device, *, repeated: bool) -> Iterator[Metric]:
    metadata: dict[str, str | int | float | bool] = {"gpu_index": device.index}
    metadata |= {name: text for column, name in _METADATA.items() if (text := device.texts.get(column, ""))}
    timestamp = _time(device) if repeated else None
    for reading in READINGS:
        if reading.name in device.numbers:
            value, unit = device.numbers[reading.name]
            yield replace(metric(reading, str(device.index), value, unit, metadata), timestamp=timestamp)


def _time(device: Device) -> datetime | None:
    try:
        time = datetime.strptime(device.texts.get("timestamp", ""), "%Y/%m/%d %H:%M:%S.%f")  # noqa: DTZ007
    except ValueError:
        return None
    return time.replace(tzinfo=timezone.utc)


def _recognise_file(path: Path) -> bool:
    try:
        head = plain(beginning(path, 1 << 14)) if path.suffix.lower() in _ENDINGS else ""
    except OSError:
        return False
    return kind(head) in {"query", "xml"} or bool(link_metrics(head))


def recognise(path: Path) -> bool:
    """Whether the path is nvidia-smi's output, or a folder with some below."""
    return any(map(_recognise_file, files_in(path)))


def parse(path: Path) -> list[ParsedOutput]:
    """All of nvidia-smi's output in a file or a tree.

    Raises:
        ParseError: if there is none, or it holds no number.
    """
    found = parse_files(
        path, TOOL, _recognise_file, lambda file: parse_text(beginning(file, _SIZE_LIMIT), str(file))
    )
    if len(found) == 1:
        return [found[0][1]]
    return [
        replace(output, scenario=f"{file.relative_to(path).as_posix()}/{output.scenario}")
        for file, output in found
    ]


PARSER = Parser(
    name=FORMAT,
    description="nvidia-smi: --query-gpu as CSV, -q -x, c2c -s",
    recognise=recognise,
    parse=parse,
)
