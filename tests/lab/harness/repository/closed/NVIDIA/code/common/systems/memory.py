from dataclasses import dataclass
from typing import Any


@dataclass
class MemoryConfiguration:
    host_memory_capacity: Any
    comparison_tolerance: float = 0.05
