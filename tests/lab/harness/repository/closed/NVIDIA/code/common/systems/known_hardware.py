from enum import Enum

from code.common.constants import AcceleratorType
from code.common.systems.accelerator import GPU


class KnownGPU(Enum):
    H100_SXM_80GB = GPU("NVIDIA H100 80GB HBM3", AcceleratorType.Discrete, 80, 700, ("2330", "233F"), 90)
    A100_SXM4_40GB = GPU("A100-SXM4-40GB", AcceleratorType.Discrete, 40, 400, ("20B0",), 80)
