"""amdsmi, the Python library of ROCm's amd-smi: the numbers of the command without its process.

Its functions, units and exceptions are those of ROCm/amdsmi, ``docs/how-to/using-amdsmi-for-python.md`` and
``py-interface/amdsmi_interface.py``. PyPI's package of that name does not have the library itself; the one
that is installed with ROCm is taken.
"""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.core.safe_files import distrust_file
from agent.facts.nvml_library import NvmlError

if TYPE_CHECKING:
    from types import ModuleType

_ROCM = Path("/opt")
_PACKAGE = "share/amd_smi/amdsmi/__init__.py"
_BROKEN = (ImportError, OSError, KeyError, AttributeError, RuntimeError, SyntaxError, SystemExit)
"""What an import raises whose library is missing or of another version (7.0.2 raises KeyError)."""
_CLOCKS = {"gfx_0": "GFX", "mem_0": "MEM", "vclk_0": "VCLK0"}
_SENSORS = {"edge": "EDGE", "hotspot": "HOTSPOT", "mem": "VRAM"}
_CAUSES = {
    "ppt": "per_ppt_pwr",
    "prochot": "per_prochot_thrm",
    "socket_thermal": "per_socket_thrm",
    "vr_thermal": "per_vr_thrm",
    "hbm_thermal": "per_hbm_thrm",
}


def load_amdsmi(folder: Path = _ROCM) -> ModuleType | None:
    """Import the amdsmi that ROCm installed; None if there is none that works or that root may trust.

    Args:
        folder: the folder with ROCm's versions.
    """
    for rocm in ("rocm", *sorted((path.name for path in folder.glob("rocm-*")), reverse=True)):
        path = folder / rocm / _PACKAGE
        if not path.is_file() or distrust_file(path.resolve()):
            continue
        spec = spec_from_file_location("amdsmi", path, submodule_search_locations=[str(path.parent)])
        if spec is None or spec.loader is None:
            continue
        module = module_from_spec(spec)
        sys.modules["amdsmi"] = module  # its parts import each other by this name
        try:
            spec.loader.exec_module(module)
        except _BROKEN:
            for name in [one for one in sys.modules if one == "amdsmi" or one.startswith("amdsmi.")]:
                del sys.modules[name]
            continue
        return module
    return None


class AmdSmiLibrary:
    """All GPUs through amdsmi; answers in the form of ``amd-smi … --json``.

    Args:
        api: the library.

    Raises:
        NvmlError: if it does not find amdgpu.
    """

    def __init__(self, api: Any) -> None:
        self._api = api
        try:
            api.amdsmi_init()
            self._handles = list(api.amdsmi_get_processor_handles())
        except api.AmdSmiException as error:
            raise NvmlError(
                f"amdsmi does not answer: {error}", remedy="see whether amdgpu is loaded (vcagent doctor)"
            ) from error

    def close(self) -> None:
        """End the session."""
        try:
            self._api.amdsmi_shut_down()
        except self._api.AmdSmiException as error:
            raise NvmlError(f"amdsmi does not end: {error}") from error

    def static(self) -> str:
        """Return what ``amd-smi static`` would say of name, place, driver and power limit."""
        return self._all(self._static)

    def metric(self) -> str:
        """Return what ``amd-smi metric`` would say, and the bytes over XGMI, which it does not."""
        return self._all(self._metric)

    def _all(self, read: Any) -> str:
        entries = [{"gpu": index, **read(handle)} for index, handle in enumerate(self._handles)]
        return json.dumps({"gpu_data": entries})

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Return an answer; None if the GPU, its driver or this version of the library has none."""
        function = getattr(self._api, f"amdsmi_{name}", None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except self._api.AmdSmiException:
            return None

    def _block(self, name: str, *arguments: Any) -> dict[str, Any]:
        found = self._ask(name, *arguments)
        return found if isinstance(found, dict) else {}

    def _static(self, handle: Any) -> dict[str, Any]:
        cap_microwatts = _number(self._block("get_power_cap_info", handle).get("power_cap"))
        return {
            "asic": {"market_name": self._block("get_gpu_asic_info", handle).get("market_name")},
            "bus": {"bdf": self._ask("get_gpu_device_bdf", handle)},
            "driver": {"version": self._block("get_gpu_driver_info", handle).get("driver_version")},
            "limit": {"socket_power": _in(cap_microwatts and cap_microwatts / 1e6, "W")},
        }

    def _metric(self, handle: Any) -> dict[str, Any]:
        usage = self._block("get_gpu_activity", handle)
        power = self._block("get_power_info", handle)
        memory = self._block("get_gpu_vram_usage", handle)
        errors = self._block("get_gpu_total_ecc_count", handle)
        pcie = self._block("get_pcie_info", handle).get("pcie_metric") or {}
        violations = self._block("get_violation_status", handle)
        return {
            "usage": {name: _in(usage.get(name), "%") for name in ("gfx_activity", "umc_activity")},
            "power": {
                name: _in(power.get(name), "W")
                for name in ("socket_power", "current_socket_power", "average_socket_power")
            },
            "temperature": self._temperatures(handle),
            "clock": self._clocks(handle),
            "mem_usage": {
                "total_vram": _in(memory.get("vram_total"), "MB"),
                "used_vram": _in(memory.get("vram_used"), "MB"),
            },
            "ecc": {
                f"total_{kind}_count": _known(errors.get(f"{kind}_count"))
                for kind in ("correctable", "uncorrectable", "deferred")
            },
            "energy": {"total_energy_consumption": _in(self._joules(handle), "J")},
            "pcie": {
                "width": _known(pcie.get("pcie_width")),
                "replay_count": _known(pcie.get("pcie_replay_count")),
                "bandwidth": _in(pcie.get("pcie_bandwidth"), "Mb/s"),
            },
            "throttle": {
                f"{cause}_violation_activity": _in(violations.get(name), "%")
                for cause, name in _CAUSES.items()
            },
            "xgmi": self._links(handle),
        }

    def _temperatures(self, handle: Any) -> dict[str, Any]:
        kinds, current = self._api.AmdSmiTemperatureType, self._api.AmdSmiTemperatureMetric.CURRENT
        return {
            name: _in(self._ask("get_temp_metric", handle, getattr(kinds, kind), current), "C")
            for name, kind in _SENSORS.items()
        }

    def _clocks(self, handle: Any) -> dict[str, Any]:
        kinds = self._api.AmdSmiClkType
        found = {
            name: self._block("get_clock_info", handle, getattr(kinds, kind))
            for name, kind in _CLOCKS.items()
        }
        return {
            name: {key: _in(clock.get(key), "MHz") for key in ("clk", "max_clk")}
            for name, clock in found.items()
        }

    def _joules(self, handle: Any) -> float | None:
        """Return the energy since amdgpu was loaded; ``power`` is its name before ROCm 6.4."""
        energy = self._block("get_energy_count", handle)
        count = _number(energy.get("energy_accumulator", energy.get("power")))
        microjoules = _number(energy.get("counter_resolution"))
        return count * microjoules / 1e6 if count is not None and microjoules is not None else None

    def _links(self, handle: Any) -> dict[str, Any]:
        """Return the data over all XGMI links since amdgpu was loaded."""
        links = self._block("get_link_metrics", handle).get("links") or []
        sums: dict[str, Any] = {}
        for name in ("read", "write"):
            amounts = [amount for link in links if (amount := _number(link.get(name))) is not None]
            sums[name] = _in(sum(amounts) if amounts else None, "KB")
        return sums


def _number(value: object) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _known(value: object) -> object:
    return "N/A" if _number(value) is None else value


def _in(value: object, unit: str) -> object:
    return "N/A" if _number(value) is None else {"value": value, "unit": unit}
