"""GPU problems that affect a measurement: memory errors, instances, clock limits, a driver that unloads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from agent.facts.base import Fact, Host
from agent.facts.gpus import pci_bus_id

_IDLE = frozenset({"gpu_idle", "applications_clocks_setting", "display_clocks_setting"})
"""Reasons for a low clock that are not faults: the GPU is idle, or the clock was set."""


@dataclass(frozen=True)
class GpuHealth:
    """State of one GPU; an unknown value is None.

    Args:
        bus_id: its PCI address.
        ecc: True if its memory corrects errors.
        uncorrected: memory errors that were not corrected since the driver was loaded.
        uncorrected_ever: uncorrected memory errors in its lifetime.
        remapping_pending: True if memory rows are replaced at the next reset.
        remapping_failed: True if it has no spare rows left and must be replaced.
        mig: True if it is split into instances.
        mig_pending: True if it will be split after a reset.
        persistence: True if the driver stays loaded between programs.
        graphics_clock_cap_mhz: a configured clock limit in MHz, if below the highest clock.
        throttled: reasons for an unexpectedly low clock, such as ``hw_thermal_slowdown``.
    """

    bus_id: str
    ecc: bool | None = None
    uncorrected: int | None = None
    uncorrected_ever: int | None = None
    remapping_pending: bool | None = None
    remapping_failed: bool | None = None
    mig: bool | None = None
    mig_pending: bool | None = None
    persistence: bool | None = None
    graphics_clock_cap_mhz: int | None = None
    throttled: tuple[str, ...] = ()


def smi_xml(text: str | None) -> tuple[GpuHealth, ...]:
    """Read ``nvidia-smi -q -x``; return nothing for an incomplete or unknown document.

    The DOCTYPE is removed, and with it any entity that could expand.
    """
    document = re.sub(r"<!DOCTYPE[^>]*>", "", (text or "").lstrip("\ufeff \r\n\t"), count=1)
    try:
        root = ET.fromstring(document)  # noqa: S314 - no DTD is left in it
    except ET.ParseError:
        return ()
    return tuple(_health(gpu) for gpu in root.iter("gpu") if ":" in gpu.get("id", ""))


def _health(gpu: ET.Element) -> GpuHealth:
    return GpuHealth(
        bus_id=pci_bus_id(gpu.get("id", "")),
        ecc=_switch(gpu, "ecc_mode/current_ecc"),
        uncorrected=_uncorrected(gpu.find("ecc_errors/volatile")),
        uncorrected_ever=_uncorrected(gpu.find("ecc_errors/aggregate")),
        remapping_pending=_switch(gpu, "remapped_rows/remapped_row_pending"),
        remapping_failed=_switch(gpu, "remapped_rows/remapped_row_failure"),
        mig=_switch(gpu, "mig_mode/current_mig"),
        mig_pending=_switch(gpu, "mig_mode/pending_mig"),
        persistence=_switch(gpu, "persistence_mode"),
        graphics_clock_cap_mhz=_clock_cap(gpu),
        throttled=_throttled(gpu),
    )


def _switch(gpu: ET.Element, path: str) -> bool | None:
    return {"Enabled": True, "Yes": True, "Disabled": False, "No": False}.get(gpu.findtext(path, "").strip())


def _number(text: str | None) -> int | None:
    match = re.match(r"\s*(\d+)(?:\s|$)", text or "")
    return int(match.group(1)) if match else None


def _uncorrected(counters: ET.Element | None) -> int | None:
    """Return uncorrected errors: before Ampere by part with a total, since then SRAM and DRAM."""
    if counters is None:
        return None
    total = counters.findtext("double_bit/total")
    texts = [total] if total else [part.text for part in counters if "uncorrectable" in part.tag]
    numbers = [number for number in map(_number, texts) if number is not None]
    return sum(numbers) if numbers else None


def _clock_cap(gpu: ET.Element) -> int | None:
    setting = _number(gpu.findtext("applications_clocks/graphics_clock"))
    # Some GPUs have a default clock below the highest one; this is not a configured limit.
    usual = _number(gpu.findtext("default_applications_clocks/graphics_clock"))
    highest = _number(gpu.findtext("max_clocks/graphics_clock"))
    limit = usual if usual is not None else highest
    return setting if setting is not None and limit is not None and setting < limit else None


def _throttled(gpu: ET.Element) -> tuple[str, ...]:
    found = []
    # Called throttle reasons until driver 535.
    for word in ("clocks_event_reason", "clocks_throttle_reason"):
        for reason in gpu.findall(f"{word}s/*"):
            name = reason.tag.removeprefix(f"{word}_")
            if (reason.text or "").strip() != "Active" or name in _IDLE:
                continue
            # Under full load a GPU is at its power limit; this is a fault only if the limit was lowered.
            if name != "sw_power_cap" or not _has_the_limit_it_was_delivered_with(gpu):
                found.append(name)
    return tuple(found)


def _has_the_limit_it_was_delivered_with(gpu: ET.Element) -> bool:
    # Without the prefixes until driver 530.
    for readings, limit in (("gpu_power_readings", "current_power_limit"), ("power_readings", "power_limit")):
        delivered = gpu.findtext(f"{readings}/default_power_limit", "").strip()
        if delivered[:1].isdigit():
            return gpu.findtext(f"{readings}/{limit}", "").strip() == delivered
    return False


def _read(host: Host) -> tuple[GpuHealth, ...]:
    return smi_xml(host.output(["nvidia-smi", "-q", "-x"], timeout_s=60))


GPU_HEALTH: Fact[tuple[GpuHealth, ...]] = Fact("gpu_health", "nvidia-smi -q -x", _read)
