from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GPU:
    name: Any
    accelerator_type: Any
    vram: Any
    max_power_limit: Any
    pci_id: Any
    compute_sm: Any


MIG = GPU


@dataclass
class AcceleratorConfiguration:
    layout: Any
