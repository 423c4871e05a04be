from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CPU:
    name: Any
    architecture: Any
    core_count: Any
    threads_per_core: Any


@dataclass
class CPUConfiguration:
    layout: Any
