"""Reads nvidia-smi: a query as CSV, ``-q`` as XML or text, its table, dmon, ``c2c -s`` and ``-L``.

A value that nvidia-smi could not read is absent; the verdict gives the reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import pairwise
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Reason, Validity, Verdict
from parsers.nvidia_smi.c2c import has_links, link_metrics
from parsers.nvidia_smi.devices import Device, Seen, check
from parsers.nvidia_smi.dmon import has_dmon, read_dmon
from parsers.nvidia_smi.gpu_list import has_list, read_list
from parsers.nvidia_smi.log_text import has_log_text, read_log_text
from parsers.nvidia_smi.log_xml import has_xml, read_xml
from parsers.nvidia_smi.query import has_query, read_query
from parsers.nvidia_smi.readings import READINGS, metric
from parsers.nvidia_smi.said import said_in
from parsers.nvidia_smi.table import has_table, read_table
from parsers.terminal import plain
from parsers.trees import beginning, text_parser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["PARSER", "Gpu", "gpus", "parse_text"]

FORMAT = "nvidia_smi"
TOOL = "nvidia-smi"
_ENDINGS = {".csv", ".xml", ".txt", ".log", ".out", ".err"}
_MIB = 1024**2
_SHORT = 2000
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
_TIMES = ("%Y/%m/%d %H:%M:%S.%f", "%a %b %d %H:%M:%S %Y", "%Y%m%d %H:%M:%S")
_FORMS: tuple[tuple[Callable[[str], bool], Callable[[str], Seen]], ...] = (
    (has_xml, read_xml),
    (has_log_text, read_log_text),
    (has_table, read_table),
    (has_dmon, read_dmon),
    (has_query, read_query),
    (has_list, read_list),
)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, for facts about a host; a value that nvidia-smi did not report is None or empty.

    Args:
        index: nvidia-smi's index.
        name: the product's full name; "NVIDIA L40S" is not an "NVIDIA L4".
        memory_bytes: its memory in bytes.
        driver_version: the driver's full version.
        uuid: its UUID.
        mig_mode: Enabled or Disabled.
        mig_devices: UUIDs of the devices that the GPU is split into.
    """

    index: int | None
    name: str
    memory_bytes: int | None = None
    driver_version: str = ""
    uuid: str = ""
    mig_mode: str = ""
    mig_devices: tuple[str, ...] = ()


def parse_text(text: str, source: str = "") -> ParsedOutput:
    """Return the metrics in nvidia-smi's output.

    Args:
        text: the output; times in it are taken as UTC, because nvidia-smi does not write a time zone.
        source: where the text comes from, for errors.

    Raises:
        ParseError: if the text is not from nvidia-smi, ends before any number, or has no number.
    """
    text = plain(text)
    try:
        links, cut = link_metrics(text)
        seen = Seen(complete=not cut) if has_links(text) else _seen(text)
    except ParseError as error:
        raise ParseError(error.message, where=source or None, remedy=error.remedy) from error
    metrics = links or tuple(_all_metrics(seen))
    if not metrics:
        reason = seen.said[0] if seen.said else None
        raise ParseError(
            reason.message if reason else "nvidia-smi's output holds no number",
            where=source or None,
            remedy=reason.remedy
            if reason
            else "the list of GPUs has no readings: use nvidia-smi --query-gpu or -q",
        )
    times = [time for device in seen.devices if (time := _time(device))]
    return ParsedOutput(
        format=FORMAT,
        tool_name=TOOL,
        tool_version=seen.devices[0].texts.get("driver_version", "") if seen.devices else "",
        scenario="c2c" if links else "gpu",
        metrics=metrics,
        verdict=_verdict(seen, times),
        start=times[0] if times else None,
        end=times[-1] if times else None,
        complete=seen.complete,
        details={"gpus": len({item.metadata["gpu"] for item in metrics})},
        sources=(source,) if source else (),
    )


def gpus(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs in nvidia-smi's output, each once.

    Args:
        text: as for `parse_text`.

    Raises:
        ParseError: if the text is not from nvidia-smi, or is incomplete.
    """
    found: dict[str, Gpu] = {}
    for device in _seen(plain(text)).devices:
        memory = device.numbers.get("memory_total")
        found[device.label] = Gpu(
            index=device.index,
            name=device.texts.get("name", ""),
            memory_bytes=int(memory[0] * _MIB) if memory else None,
            driver_version=device.texts.get("driver_version", ""),
            uuid=device.texts.get("uuid", ""),
            mig_mode=device.texts.get("mig.mode.current", ""),
            mig_devices=tuple(device.mig_devices),
        )
    return tuple(found.values())


def _seen(text: str) -> Seen:
    """Return the content of a text in any format; raise ParseError if the format is unknown."""
    for has, read in _FORMS:
        if has(text):
            seen = read(text)
            check(seen.devices)
            return seen
    said = [reason for line in text.splitlines() if (reason := said_in(line))]
    if not said:
        raise ParseError("is not a supported output of nvidia-smi")
    return Seen(said=said)


def _verdict(seen: Seen, times: list[datetime]) -> Verdict | None:
    """Return a verdict if there is a problem; nvidia-smi itself does not judge anything."""
    reasons = list({reason.message: reason for reason in seen.said}.values())
    reasons += [
        Reason(f"{what}: it was ignored", "see the driver's messages in dmesg", code=code)
        for what, code in dict.fromkeys(one for device in seen.devices for one in device.impossible)
    ]
    if any(after < before for before, after in pairwise(times)):
        reasons.append(
            Reason(
                "the times of the rows run backwards",
                "see whether the clock was set, or files were joined in the wrong order",
                code="time_backwards",
            )
        )
    warnings = list(seen.warnings)
    for device in {device.label: device for device in seen.devices if device.unread}.values():
        what = f"GPU {device.label.strip('_')} gives an error in place of {', '.join(device.unread)}"
        if device.numbers:
            warnings.append(f"{what}; see the driver's messages in dmesg")
        else:
            reasons.append(Reason(what, "see the driver's messages in dmesg", code="gpu_unread"))
    if not reasons and not warnings:
        return None
    validity = Validity.INVALID if reasons else Validity.NOT_APPLICABLE
    return Verdict(validity, tuple(reasons), tuple(warnings))


def _all_metrics(seen: Seen) -> Iterator[Metric]:
    times = Counter(device.label for device in seen.devices)
    readings = Counter[str]()
    for device in seen.devices:
        readings[device.label] += 1
        yield from _metrics(device, readings[device.label] if times[device.label] > 1 else None)


def _metrics(device: Device, reading_number: int | None) -> Iterator[Metric]:
    """Yield a device's metrics; if it was read several times, each reading is a scenario."""
    label = device.label
    metadata: dict[str, str | int | float | bool] = {"gpu": label.strip("_")}
    metadata |= {"gpu_index": device.index} if device.index is not None else {}
    metadata |= {name: text for column, name in _METADATA.items() if (text := device.texts.get(column, ""))}
    timestamp = _time(device) if reading_number else None
    scenario = f"reading-{reading_number}" if reading_number else None
    for reading in READINGS:
        if reading.name in device.numbers:
            value, unit = device.numbers[reading.name]
            found = metric(reading, label, value, unit, metadata)
            yield replace(found, timestamp=timestamp, scenario=scenario)


def _time(device: Device) -> datetime | None:
    told = device.texts.get("timestamp", "")
    for form in _TIMES:
        try:
            return datetime.strptime(told, form).replace(tzinfo=timezone.utc)
        except (ValueError, OverflowError):
            continue
    return None


def _is_output(path: Path) -> bool:
    text = beginning(path)
    if has_links(text) or any(has(text) for has, _ in _FORMS):
        return True
    # A log may quote one of nvidia-smi's messages; a text with nothing else is nvidia-smi's output.
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and len(text) < _SHORT and said_in(lines[0]) is not None


def _has_readings(path: Path) -> bool:
    """Return True if a file in a folder is nvidia-smi's with readings; the list of GPUs has none."""
    return path.suffix.lower() in _ENDINGS and _is_output(path) and not has_list(beginning(path))


PARSER = text_parser(
    FORMAT,
    TOOL,
    "nvidia-smi: --query-gpu as CSV, -q as XML or text, its table, dmon, c2c -s",
    is_output=_is_output,
    in_folder=_has_readings,
    parse_text=parse_text,
)
