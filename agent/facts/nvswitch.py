"""NVSwitches outside the PCI bus: those of HGX B200 and later answer through a ConnectX-7."""

from __future__ import annotations

from agent.facts.base import Fact, Host

_INFINIBAND = "/sys/class/infiniband"
_MARK = "SW_MNG"


def _read(host: Host) -> int | None:
    if not host.names("/sys/class"):
        return None
    return sum(
        _MARK in (host.text(f"{_INFINIBAND}/{name}/device/vpd") or "") for name in host.names(_INFINIBAND)
    )


NVSWITCH_BRIDGES: Fact[int | None] = Fact("nvswitch_bridges", f"{_INFINIBAND}/*/device/vpd", _read)
"""Bridges to NVSwitches of the fourth generation (NVLink 5): devices whose product data says ``SW_MNG``.

Source: NVIDIA's Fabric Manager User Guide, "Systems Using Fourth Generation NVSwitches"; the start script of
nvidia-fabricmanager searches for the same mark.
"""
