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
        cpus, others = ([*one.host_cpu_conf.layout.items()] for one in (self, other))
        return cpus == others and self.host_mem_conf == other.host_mem_conf and self._has_the_gpus_of(other)

    def _has_the_gpus_of(self, other):
        return self.accelerator_conf == other.accelerator_conf
