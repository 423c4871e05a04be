from dataclasses import dataclass
from enum import Enum
from typing import Any


class CPUArchitecture(Enum):
    x86_64 = "x86_64"
    aarch64 = "aarch64"


class AcceleratorType(Enum):
    Discrete = "Discrete"


class ByteSuffix(Enum):
    GB = "GB"
    TB = "TB"
    GiB = "GiB"


class HarnessType(Enum):
    Custom = "custom"
    LWIS = "lwis"
    Triton = "triton"


class PowerSetting(Enum):
    MaxP = "MaxP"
    MaxQ = "MaxQ"


@dataclass(frozen=True)
class AccuracyTarget:
    value: float


AccuracyTarget.k_99 = AccuracyTarget(0.99)
AccuracyTarget.k_99_9 = AccuracyTarget(0.999)


@dataclass(frozen=True)
class Memory:
    quantity: float
    byte_suffix: ByteSuffix


@dataclass(frozen=True)
class WorkloadSetting:
    harness_type: Any
    accuracy_target: Any
    power_setting: Any
