"""The host in the terms of VirtualClient's telemetry."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from agent.facts.base import Facts
from agent.facts.cloud import Cloud, ask, read_cloud
from agent.facts.gpu_settings import GPU_SETTINGS
from agent.facts.host_metadata import gpu_runtime, metadata_host
from agent.facts.host_parts import memory_modules, network_cards
from agent.facts.lscpu import lscpu
from tests.agent.facts.recorded_host import RecordedHost

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAT = {
    "Architecture": "x86_64", "CPU(s)": "16", "Vendor ID": "GenuineIntel", "Model name": "Xeon",
    "CPU family": "6", "Model": "143", "Stepping": "8", "Core(s) per socket": "4", "Socket(s)": "2",
    "L1d cache": "196608 (4 instances)", "L1i cache": "131072 (4 instances)", "L2 cache": "8388608",
    "L3 cache": "110100480 (1 instance)", "NUMA node(s)": "1",
}  # fmt: skip


def lscpu_json(*, nested: bool) -> str:
    items = [{"field": f"{name}:", "data": value} for name, value in FLAT.items()]
    if nested:
        items = [{"field": "Caches:", "data": None, "children": items}]
    return json.dumps({"lscpu": items})


DMIDECODE = """\
# dmidecode 3.4
Handle 0x1100, DMI type 17, 92 bytes
Memory Device
\tTotal Width: 80 bits
\tSize: 64 GB
\tType: DDR5
\tSpeed: 4800 MT/s
\tManufacturer: Samsung
\tPart Number: M321R8GA0BB0-CQK

Handle 0x1101, DMI type 17, 92 bytes
Memory Device
\tSize: No Module Installed
\tSpeed: Unknown
"""

LSPCI = """\
00:00.0 Host bridge: Intel Corporation Device 09a2
1a:00.0 Ethernet controller: Mellanox Technologies MT2892 Family [ConnectX-6 Dx]
"""

SMI = (
    "00000000:3B:00.0, GPU-1, NVIDIA H200, 570.86, 96.00, 143771, 700.00, 1980, 3201, 345, 3201, Disabled, "
    "Enabled, [N/A]\n"
)


@pytest.mark.parametrize("nested", [False, True])
def test_processors(*, nested: bool) -> None:
    cpu = lscpu(lscpu_json(nested=nested))
    assert cpu is not None
    assert (cpu.sockets, cpu.cores_per_socket, cpu.logical) == (2, 4, 16)
    assert cpu.cache_bytes == {"L1d": 196608, "L1i": 131072, "L2": 8388608, "L3": 110100480}


@pytest.mark.parametrize("text", [None, "", "lscpu: bad usage", "[]", '{"lscpu": 3}'])
def test_no_lscpu(text: str | None) -> None:
    cpu = lscpu(text)
    assert cpu is None or cpu.logical is None


def test_modules_and_cards() -> None:
    (module,) = memory_modules(DMIDECODE)
    assert (module.size_bytes, module.speed_mt_s, module.vendor) == (64 << 30, 4800, "Samsung")
    assert network_cards(LSPCI) == ("Mellanox Technologies MT2892 Family [ConnectX-6 Dx]",)
    assert memory_modules(None) == network_cards(None) == ()


def test_gpus_with_an_old_driver() -> None:
    host = RecordedHost(outputs={"nvidia-smi --query-gpu=pci.bus_id,uuid": SMI})
    (gpu,) = Facts(host)[GPU_SETTINGS]
    assert gpu.texts["uuid"] == "GPU-1"
    assert "ecc.mode.current" not in gpu.texts
    (runtime,) = gpu_runtime(Facts(host))
    assert runtime == {
        "busId": "0000:3b:00.0", "powerLimitWatts": 700.0, "smClockMHz": 345.0, "memoryClockMHz": 3201.0,
        "maxSmClockMHz": 1980.0, "maxMemoryClockMHz": 3201.0, "mig": "Disabled", "persistence": "Enabled",
    }  # fmt: skip


def test_virtualclient_s_keys() -> None:
    pci = "/sys/bus/pci/devices/0000:3b:00.0"
    host = RecordedHost(
        files={
            f"{pci}/vendor": "0x10de", f"{pci}/class": "0x030200", f"{pci}/device": "0x2335",
            f"{pci}/subsystem_device": "0x1", "/proc/driver/nvidia/version":
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu",
        },
        outputs={
            "lscpu": lscpu_json(nested=False), "dmidecode": DMIDECODE, "lspci": LSPCI, "uname -r": "6.8.0\n",
            "nvidia-smi --query-gpu=pci.bus_id,uuid": SMI,
            "nvidia-smi --query-gpu=pci.bus_id,name":
            "00000000:3B:00.0, NVIDIA H200, 143771, 570.86, Disabled",
        },
    )  # fmt: skip
    values = metadata_host(Facts(host))
    assert values["cpuPhysicalCores"] == 8
    assert values["cpuLogicalProcessorsPerCore"] == 2
    assert values["cpuCacheBytes_L1"] == 196608 + 131072
    assert values["cpuLastCacheBytes"] == 110100480
    assert values["osVersion"] == "6.8.0"
    assert values["gpuName"] == "NVIDIA H200"
    assert values["gpuMemoryBytes"] == 143771 << 20
    assert values["gpuDriverVersion"] == "570.86.15"
    parts = {part["type"]: part for part in values["parts"]}
    assert parts["CPU"]["vendor"] == "Intel"
    assert parts["Memory"]["partNumber"] == "M321R8GA0BB0-CQK"
    assert parts["Network"]["vendor"] == "Mellanox"
    assert parts["GPU"]["uuid"] == "GPU-1"


class _Service(BaseHTTPRequestHandler):
    """Answers as the metadata services of three clouds do (their documentation)."""

    def do_GET(self) -> None:
        answers = {
            ("/metadata/instance/compute?api-version=2021-02-01", "Metadata", "true"):
                '{"vmSize": "Standard_ND96isr_H200_v5", "location": "westus3"}',
            ("/latest/meta-data/instance-type", "X-aws-ec2-metadata-token", "t"): "p5en.48xlarge",
            ("/latest/meta-data/placement/region", "X-aws-ec2-metadata-token", "t"): "us-east-2",
            ("/computeMetadata/v1/instance/machine-type", "Metadata-Flavor", "Google"):
                "projects/1/machineTypes/a3-ultragpu-8g",
            ("/computeMetadata/v1/instance/zone", "Metadata-Flavor", "Google"):
                "projects/1/zones/us-central1-b",
        }  # fmt: skip
        found = [
            text for (path, name, value), text in answers.items()
            if path == self.path and self.headers.get(name) == value
        ]  # fmt: skip
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write("".join(found).encode())

    def do_PUT(self) -> None:
        self.send_response(200 if self.headers.get("X-aws-ec2-metadata-token-ttl-seconds") else 400)
        self.end_headers()
        self.wfile.write(b"t")

    def log_message(self, *_: object) -> None:
        """Ignore the message."""


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Service)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "cloud",
    [
        Cloud("azure", "Standard_ND96isr_H200_v5", "westus3"),
        Cloud("aws", "p5en.48xlarge", "us-east-2"),
        Cloud("gcp", "a3-ultragpu-8g", "us-central1"),
    ],
)
def test_the_size_of_a_cloud_s_machine(cloud: Cloud, address: str) -> None:
    assert ask(cloud.provider, address) == cloud


def test_a_host_outside_a_cloud_asks_nobody(address: str) -> None:
    dmi = "/sys/class/dmi/id"
    amazon = RecordedHost(files={f"{dmi}/sys_vendor": "Amazon EC2\n"})
    variable = "VCAGENT_CLOUD_METADATA_URL"
    assert read_cloud(RecordedHost(files={f"{dmi}/sys_vendor": "Dell"}), {variable: address}) is None
    assert read_cloud(amazon, {variable: "off"}) == Cloud("aws")
    assert read_cloud(amazon, {variable: f"{address}/"}) == Cloud("aws", "p5en.48xlarge", "us-east-2")
    assert read_cloud(amazon, {variable: "http://127.0.0.1:9"}) == Cloud("aws")
