import importlib.util
import os
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

from code.common.constants import ByteSuffix, CPUArchitecture, Memory
from code.common.systems.accelerator import AcceleratorConfiguration
from code.common.systems.base import MATCH_ANY
from code.common.systems.cpu import CPU, CPUConfiguration
from code.common.systems.known_hardware import KnownGPU
from code.common.systems.memory import MemoryConfiguration
from code.common.systems.systems import SystemConfiguration

NVIDIAS_CPU = CPU("Intel(R) Xeon(R) Platinum 8480C", CPUArchitecture.x86_64, MATCH_ANY, MATCH_ANY)


def _wish(name, default):
    path = Path("standin") / name
    return path.read_text().strip() if path.exists() else default


_systems = {
    f"{gpu.name}x{count}": SystemConfiguration(
        CPUConfiguration({NVIDIAS_CPU: MATCH_ANY}),
        MATCH_ANY,
        AcceleratorConfiguration({gpu.value: count}),
        system_id=f"DGX_{gpu.name}x{count}",
    )
    for gpu in KnownGPU
    for count in (1, 2, 4, 8)
}
if importlib.util.find_spec("code.common.systems.custom_list") is not None:
    from code.common.systems.custom_list import custom_systems

    _systems.update(custom_systems)
KnownSystem = Enum("KnownSystem", _systems)

if Path("VERSION").read_text().startswith("v5"):
    _name = os.environ.get("SYSTEM_NAME") or _wish("matched", "UNREGISTERED_aarch64_NVIDIA_GB200x4")
    _tags = {"unregistered"} if _name.startswith("UNREGISTERED") else {"custom"}
    DETECTED_SYSTEM = SimpleNamespace(extras={"id": _name, "tags": _tags}, system_id=_name)
    MATCHED_SYSTEM = None
else:
    DETECTED_SYSTEM = SystemConfiguration(
        CPUConfiguration({CPU(_wish("cpu", NVIDIAS_CPU.name), CPUArchitecture.x86_64, 48, 1): 2}),
        MemoryConfiguration(Memory(1.9, ByteSuffix.TB)),
        AcceleratorConfiguration({KnownGPU[_wish("gpu", "H100_SXM_80GB")].value: int(_wish("count", "8"))}),
    )
    MATCHED_SYSTEM = next((one for one in KnownSystem if one.value.matches(DETECTED_SYSTEM)), None)
    if MATCHED_SYSTEM is not None:
        DETECTED_SYSTEM.system_id = MATCHED_SYSTEM.value.system_id
