"""Facts about AMD GPUs from recorded sysfs.

The KFD properties are shortened from the testdata of ROCm/k8s-device-plugin (topo-mi300-cpx).
``xgmi_num_links`` is from ROCm/rocm-systems issue 5763.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agent.doctor.amd_gpus import check_amd_gpus
from agent.doctor.check import Status
from agent.facts import Facts
from agent.facts.amd_driver import (
    AMD_DEVICES,
    AMDGPU_BLACKLISTS,
    AMDGPU_MODULE,
    ROCM_VERSION,
    AmdgpuModule,
    DeviceAccess,
    rocm_version,
)
from agent.facts.amd_gpus import AMD_GPUS, AmdGpu, error_count, gfx_name
from agent.facts.gpus import GPU_COUNT
from agent.facts.known_amd_gpus import amd_gpu_name_of, is_virtual_function
from tests.agent.facts.recorded_host import RecordedHost

if TYPE_CHECKING:
    from agent.doctor.check import Check

PCI = "/sys/bus/pci/devices"
KFD = "/sys/class/kfd/kfd/topology/nodes"


def device(address: str, pci_id: str = "0x74a1", pci_class: str = "0x120000", **files: str) -> dict[str, str]:
    base = {"vendor": "0x1002\n", "class": f"{pci_class}\n", "device": f"{pci_id}\n"}
    return {f"{PCI}/{address}/{name}": text for name, text in {**base, **files}.items()}


def node(number: int, **values: int) -> dict[str, str]:
    text = "".join(f"{name} {value}\n" for name, value in values.items())
    return {f"{KFD}/{number}/properties": text}


def facts(*files: dict[str, str], **outputs: str) -> Facts:
    merged = {path: text for each in files for path, text in each.items()}
    return Facts(RecordedHost(merged, {name.replace("_", " "): text for name, text in outputs.items()}))


def test_an_instinct_card_is_found_and_named_before_a_driver_is_there() -> None:
    host = facts(
        device("0000:0c:00.0"),
        device("0000:0d:00.0", "0x1234", "0x060400"),  # a bridge of AMD
        device("0000:0e:00.0", "0x744c", "0x030000"),
        {f"{PCI}/0000:3b:00.0/{name}": text for name, text in (("vendor", "0x10de"), ("class", "0x030200"))},
    )
    assert host[AMD_GPUS] == (
        AmdGpu("0000:0c:00.0", "0x74a1", "AMD Instinct MI300X"),
        AmdGpu("0000:0e:00.0", "0x744c"),
    )
    assert host[AMDGPU_MODULE] is None
    assert host[GPU_COUNT] == 1  # only NVIDIA's


def test_a_gpu_that_amdgpu_holds() -> None:
    files = {
        "mem_info_vram_total": "206141652992\n",
        "current_compute_partition": "SPX\n",
        "current_memory_partition": "NPS1\n",
        "hwmon/hwmon7/power1_cap": "750000000\n",
        "ras/umc_err_count": "ue: 0\nce: 3\n",
        "xgmi_num_links": "00 04 01 00 00 00 02 00\n",
    }
    host = facts(
        device("0000:05:00.0", **files),
        {"/sys/bus/pci/drivers/amdgpu/0000:05:00.0": "", "/sys/module/amdgpu/initstate": "live\n"},
        {"/sys/module/amdgpu/version": "6.12.12\n"},
        node(0, simd_count=0, location_id=0),
        node(2, simd_count=1216, gfx_target_version=90402, location_id=1280, domain=0),
        node(3, simd_count=1216, gfx_target_version=90402, location_id=1536, domain=0),
    )
    assert host[AMD_GPUS] == (
        AmdGpu(
            "0000:05:00.0",
            "0x74a1",
            "AMD Instinct MI300X",
            driver="amdgpu",
            gfx="gfx942",
            memory_bytes=206141652992,
            compute_partition="SPX",
            memory_partition="NPS1",
            partitions=1,
            power_cap_w=750,
            corrected=3,
            uncorrected=0,
            xgmi_peers=3,
        ),
    )
    assert host[AMDGPU_MODULE] == AmdgpuModule("6.12.12")


def test_partitions_are_functions_of_one_gpu() -> None:
    host = facts(
        device("0000:05:00.0"),
        node(2, simd_count=152, gfx_target_version=90402, location_id=1280),
        node(3, simd_count=152, gfx_target_version=90402, location_id=1281),
    )
    (gpu,) = host[AMD_GPUS]
    assert gpu.partitions == 2


def test_architectures_and_counts() -> None:
    assert [gfx_name(number) for number in (90402, 90500, 90010, 100301, 0)] == [
        "gfx942",
        "gfx950",
        "gfx90a",
        "gfx1031",
        None,
    ]
    assert error_count("ue: 2\nce: 0\n", "ue") == 2
    assert error_count("", "ue") is None


def test_a_virtual_function_is_named_as_one() -> None:
    assert amd_gpu_name_of("0x74b5") == "AMD Instinct MI300X VF"
    assert is_virtual_function("0x74b5")
    assert not is_virtual_function("0x74a1")
    assert amd_gpu_name_of("0x7550") is None


def test_the_module_of_the_kernel_has_no_version() -> None:
    assert facts({"/sys/module/amdgpu/initstate": "live\n"})[AMDGPU_MODULE] == AmdgpuModule(None)
    assert facts({"/sys/module/amdgpu/initstate": "going\n"})[AMDGPU_MODULE] is None


def test_what_keeps_amdgpu_from_loading_is_found() -> None:
    host = facts(
        {
            "/etc/modprobe.d/blacklist.conf": "# blacklist amdgpu\n",
            "/etc/modprobe.d/late.conf": "blacklist amdgpu\n",
            "/etc/modprobe.d/old.conf.bak": "blacklist amdgpu\n",
        }
    )
    assert host[AMDGPU_BLACKLISTS] == ("/etc/modprobe.d/late.conf",)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("6.3.1-48\n", "6.3.1"),
        ('[{"tool": "AMDSMI Tool", "version": "24.7.1+b446d6c", "rocm_version": "6.3.0"}]', "6.3.0"),
        ("AMDSMI Tool: 25.4.2 | ROCm version: 6.4.1 | amdgpu version: 6.10.5", "6.4.1"),
        ("AMDSMI Tool: 24.7.1 | ROCm version: N/A | hsmp version: 2.2", None),
        (None, None),
    ],
)
def test_the_version_of_rocm(text: str | None, version: str | None) -> None:
    assert rocm_version(text) == version


def test_rocm_is_looked_for_where_each_release_puts_it() -> None:
    assert facts({"/opt/rocm-6.2.4/.info/version": "6.2.4-139\n"})[ROCM_VERSION] == "6.2.4"
    assert facts(amd_smi_version="").fresh()[ROCM_VERSION] is None
    host = Facts(RecordedHost(outputs={"amd-smi version --json": '[{"rocm_version": "7.0.0"}]'}))
    assert host[ROCM_VERSION] == "7.0.0"


def access(groups: str, uid: str = "1000") -> tuple[DeviceAccess, ...]:
    files = dict.fromkeys(("/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128", "/dev/dri/by-path"), "")
    stat = "/dev/kfd render 109\n/dev/dri/card1 video 44\n/dev/dri/renderD128 UNKNOWN 993\n"
    outputs = {"id -G": groups, "id -u": uid, "stat --format=%n %G %g /dev/kfd /dev/dri/card1": stat}
    return Facts(RecordedHost(files, outputs))[AMD_DEVICES]


def test_who_may_open_the_devices() -> None:
    assert access("1000 109\n") == (
        DeviceAccess("/dev/kfd", "render", 109, mine=True),
        DeviceAccess("/dev/dri/card1", "video", 44, mine=False),
        DeviceAccess("/dev/dri/renderD128", "993", 993, mine=False),
    )
    assert all(device.mine for device in access("0\n", uid="0\n"))


GPU = AmdGpu(
    "0000:05:00.0",
    "0x74a1",
    "AMD Instinct MI300X",
    driver="amdgpu",
    compute_partition="SPX",
    memory_partition="NPS1",
    uncorrected=0,
)
DEVICES = (
    DeviceAccess("/dev/kfd", "render", 109, mine=True),
    DeviceAccess("/dev/dri/card1", "video", 44, mine=False),
    DeviceAccess("/dev/dri/renderD128", "render", 109, mine=True),
)


def checks(**changes: Any) -> dict[str, Check]:
    values: dict[str, Any] = {
        "amd_gpus": (GPU,),
        "amdgpu_module": AmdgpuModule("6.14.14"),
        "amdgpu_blacklists": (),
        "rocm_version": "7.0.0",
        "amd_devices": DEVICES,
        **changes,
    }
    return {check.name: check for check in check_amd_gpus(Facts(None, values))}


def test_a_healthy_host_and_one_without_amd_gpus() -> None:
    found = checks()
    assert {check.status for check in found.values()} == {Status.OK}
    assert len(found) == 6
    assert checks(amd_gpus=()) == {}


CLOSED = tuple(replace(device, mine=False) for device in DEVICES)


@pytest.mark.parametrize(
    ("changes", "name", "status", "message", "remedy"),
    [
        ({"amdgpu_module": None}, "amdgpu", Status.PROBLEM, "not loaded", "modprobe amdgpu"),
        (
            {"amdgpu_module": None, "amdgpu_blacklists": ("/etc/modprobe.d/a.conf",)},
            "amdgpu",
            Status.PROBLEM,
            "/etc/modprobe.d/a.conf forbids it",
            "remove amdgpu from /etc/modprobe.d/a.conf",
        ),
        ({"amd_devices": ()}, "AMD devices", Status.PROBLEM, "no /dev/kfd", "--device /dev/kfd"),
        (
            {"amd_devices": CLOSED},
            "AMD devices",
            Status.PROBLEM,
            "render",
            "usermod --append --groups render",
        ),
        ({"rocm_version": None}, "ROCm", Status.WARNING, "not installed", "AmdRocmInstallation installs it"),
        ({"rocm_version": "7.2.0"}, "ROCm", Status.WARNING, "ROCm 6.2 to 7.0", "one release"),
        (
            {"amd_gpus": (replace(GPU, compute_partition="CPX", memory_partition="NPS4"),)},
            "AMD partitions",
            Status.WARNING,
            "0000:05:00.0: CPX/NPS4",
            "--compute-partition SPX",
        ),
        (
            {"amd_gpus": (replace(GPU, uncorrected=2),)},
            "AMD memory errors",
            Status.PROBLEM,
            "0000:05:00.0: 2",
            "bad-pages",
        ),
        (
            {"amd_gpus": (GPU, replace(GPU, bus_id="0000:26:00.0", driver=None))},
            "AMD GPUs",
            Status.PROBLEM,
            "does not hold 0000:26:00.0",
            "dmesg",
        ),
    ],
)
def test_each_trouble_has_its_remedy(
    changes: dict[str, Any], name: str, status: Status, message: str, remedy: str
) -> None:
    check = checks(**changes)[name]
    assert check.status is status
    assert message in check.message
    assert remedy in check.remedy


def test_pairs_that_amd_supports_or_says_nothing_of_fit() -> None:
    for module, rocm in (("6.14.14", "6.2.4"), ("6.16.13", "7.2.4"), ("6.12.12", "7.2"), (None, "6.0.0")):
        check = checks(amdgpu_module=AmdgpuModule(module), rocm_version=rocm)["ROCm"]
        assert check.status is Status.OK


def test_a_host_that_hands_its_gpus_over_needs_no_amdgpu() -> None:
    found = checks(amd_gpus=(replace(GPU, driver="gim"),), amdgpu_module=None)
    assert [check.status for check in found.values()] == [Status.WARNING]
    assert "virtual machine" in found["AMD GPUs"].remedy
