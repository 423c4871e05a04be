from dataclasses import dataclass
from typing import Any


@dataclass
class SystemConfiguration:
    host_cpu_conf: Any
    host_mem_conf: Any
    accelerator_conf: Any
    numa_conf: Any = None
    system_id: Any = None

    def matches(self, other):
        mine = (self.host_cpu_conf, self.host_mem_conf, self.accelerator_conf)
        return mine == (other.host_cpu_conf, other.host_mem_conf, other.accelerator_conf)
