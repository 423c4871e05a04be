"""Facts about NVIDIA's driver, its packages and its GPUs, from recorded answers.

``apt/jammy_*`` are from Ubuntu 22.04's own repositories; ``h100_nvidia_smi_q.xml`` is from a real H100,
without its list of clocks; ``h200_x2_*`` are from two real H200 (driver 580.159.04), the first under load.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.facts import Facts, cuda_toolkits
from agent.facts.cuda_toolkits import CUDA_TOOLKITS, CudaToolkit, toolkit_version
from agent.facts.gpu_generations import Generation, generation, needs_imex, needs_open_module
from agent.facts.gpu_health import GPU_HEALTH, GpuHealth, smi_xml
from agent.facts.gpu_memory import GPU_MEMORY
from agent.facts.gpu_processes import (
    GPU_PROCESSES,
    NVIDIA_DRM_HOLDERS,
    GpuProcess,
    compute_apps,
    device_holders,
)
from agent.facts.gpus import CUDA_VERSION, Gpu, merge_gpus, pci_gpus
from agent.facts.kernel_headers import KERNEL_HEADERS
from agent.facts.known_gpus import first_driver, gpu_name_of, is_vgpu
from agent.facts.nvidia_module import (
    COMPETING_MODULES,
    LOADED_MODULES,
    NVIDIA_DRM_USERS,
    NVIDIA_MODULE,
    NvidiaModule,
    nvidia_module,
)
from agent.facts.nvml import NVML, Nvml, ask_nvml
from agent.facts.nvswitch import NVSWITCH_BRIDGES
from agent.facts.package_origins import PACKAGE_ORIGINS
from agent.facts.package_versions import HELD_PACKAGES, PackageOffer, madison, origins, package_offers
from agent.facts.rpm_offers import RPM_DRIVER_OFFERS
from agent.facts.secure_boot import SECURE_BOOT, efi_variable, key_enrolled, sb_state
from agent.facts.services import SERVICES, ServiceState, service, systemctl_show
from agent.facts.unattended_upgrades import UNATTENDED_UPGRADES, UnattendedUpgrades, apt_config
from tests.agent.facts.recorded_host import RecordedHost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = Path(__file__).parent
APT = HERE / "apt"
CLOSED = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024
GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)
"""
OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs)
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)
"""
SERVER = "580.178.04-0ubuntu0.22.04.1"


def facts(files: Mapping[str, str] | None = None, outputs: Mapping[str, str] | None = None) -> Facts:
    return Facts(RecordedHost(files or {}, outputs or {}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CLOSED, NvidiaModule("550.90.07", open=False)),
        (OPEN, NvidiaModule("580.159.04", open=True)),
        (CLOSED.replace("550.90.07", "530.41.03"), NvidiaModule("530.41.03", open=False)),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Mod", None),
        ("", None),
        (None, None),
    ],
)
def test_the_loaded_module(text: str | None, expected: NvidiaModule | None) -> None:
    assert nvidia_module(text) == expected


def test_modules() -> None:
    modules = """\
nouveau 3096576 1 - Live 0x0
nova_core 20480 0 - Unloading 0x0
nvidia_drm 122880 4 - Live 0x0 (PO)
"""
    host = facts({"/proc/modules": modules, "/proc/driver/nvidia/version": OPEN})
    assert host[COMPETING_MODULES] == ("nouveau",)
    assert host[NVIDIA_DRM_USERS] == 4
    assert host[NVIDIA_MODULE] == NvidiaModule("580.159.04", open=True)
    assert facts()[COMPETING_MODULES] is None
    assert facts()[NVIDIA_DRM_USERS] is None


def test_who_holds_the_display_part_of_the_driver() -> None:
    files = {
        "/sys/class/drm/card0/device/vendor": "0x1a03\n",  # a console's
        "/sys/class/drm/card1/device/vendor": "0x10de\n",
        "/sys/class/drm/renderD128/device/vendor": "0x10de\n",
        "/sys/class/drm/card1-DP-1/status": "connected\n",
        "/proc/812/comm": "Xorg\n",
    }

    class Host(RecordedHost):
        def output(self, command: Sequence[str], **_: Any) -> str | None:
            shell = " ".join(command)
            assert (
                "-lname /dev/dri/card1 -o -lname /dev/dri/renderD128 -o -lname /dev/nvidia-modeset" in shell
            )
            assert "card0" not in shell
            return "/proc/812/fd/9\n/proc/812/fd/11\n"

    assert Facts(Host(files))[NVIDIA_DRM_HOLDERS] == (GpuProcess(812, "Xorg"),)


def test_what_dnf_offers() -> None:
    files = {
        "/usr/bin/dnf": "",
        "/etc/yum.repos.d/cuda.repo": "[cuda-rhel9-x86_64]\nbaseurl=https://developer.download.nvidia.com/x\n"
        "[mirror]\nbaseurl=https://mirror.example.com/cuda\n",
    }
    answer = (
        "nvidia-driver-cuda\t3:550.90.07-1.el9\tx86_64\tcuda-rhel9-x86_64\n"
        "kernel-devel\t0:5.14.0-427.el9\tx86_64\tbaseos\nWarning: something\n"
    )
    command = "dnf --quiet --setopt=cuda-rhel9-x86_64.module_hotfixes=1 --disableplugin=versionlock repoquery"
    assert facts(files, {"uname -m": "x86_64\n", command: answer})[RPM_DRIVER_OFFERS] == (
        PackageOffer("nvidia-driver-cuda", "3:550.90.07-1.el9", "developer.download.nvidia.com"),
        PackageOffer("kernel-devel-5.14.0-427.el9.x86_64", "0:5.14.0-427.el9", "baseos"),
    )
    assert facts()[RPM_DRIVER_OFFERS] == ()


def test_where_packages_came_from() -> None:
    installed = (
        "docker.io\tamd64\t20.10.24\tii \t\nlibnvidia-ml1\tamd64\t535.1-1\tii \t\nbash\tamd64\t5.2\tii \t\n"
    )
    policy = " 500 http://d.org/debian bookworm/main amd64 Packages\n     release v=12,o=Debian,a=stable\n"
    outputs = {
        "dpkg --print": "amd64\n",
        "dpkg-query": installed,
        "apt-cache pkgnames": "docker.io\nlibnvidia-ml1\nbash\n",
        "apt-cache madison": "docker.io | 20.10.24 | http://d.org/debian bookworm/main amd64 Packages\n",
        "apt-cache policy": policy,
    }
    host = facts({"/usr/bin/apt-get": ""}, outputs)
    assert host[PACKAGE_ORIGINS] == {"docker.io": "Debian", "libnvidia-ml1": None}
    rpm = {
        "uname": "x86_64\n",
        "rpm": "nvidia-driver-cuda\t3:550.90.07-1.el9\tx86_64\t\nbash\t5.1\tx86_64\t\n",
        "dnf --quiet --cacheonly repoquery": "bash\tbaseos\nnvidia-driver-cuda\tcuda-rhel9-x86_64\n",
    }
    assert facts({"/usr/bin/dnf": ""}, rpm)[PACKAGE_ORIGINS] == {"nvidia-driver-cuda": "cuda-rhel9-x86_64"}


def test_services_that_runs_depend_on() -> None:
    shown = (
        "Id=docker.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\nResult=success\n\n"
        "Id=nvidia-imex.service\nLoadState=not-found\nActiveState=inactive\n"
    )
    host = facts(outputs={"systemctl show": shown})
    assert host[SERVICES] == {"docker": ServiceState(active=True, enabled=True, result="success")}
    assert facts()[SERVICES] == {}


def test_modules_of_a_kernel_that_does_not_list_them() -> None:
    files = {
        "/sys/module/nouveau/initstate": "live\n",
        "/sys/module/nova_core/initstate": "going\n",
        "/sys/module/ib_umad/initstate": "coming\n",
        "/sys/module/usbcore/parameters/nousb": "N\n",  # built into the kernel
    }
    host = facts(files)
    assert host[COMPETING_MODULES] == ("nouveau",)
    assert host[LOADED_MODULES] == {"nouveau", "ib_umad"}
    assert facts()[LOADED_MODULES] is None
    assert facts({"/proc/modules": "", **files})[LOADED_MODULES] == frozenset()


def test_secure_boot() -> None:
    assert sb_state("SecureBoot enabled\n") is True
    assert sb_state("SecureBoot disabled\nPlatform is in Setup Mode\n") is False
    assert sb_state("EFI variables are not supported on this system\n") is None
    assert efi_variable("\x06\0\0\0\x01") is True
    assert efi_variable("\x06\0\0\0\0") is False
    variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    assert facts({variable: "\x06\0\0\0\x01"})[SECURE_BOOT] is True
    assert facts({"/sys/kernel/notes": ""})[SECURE_BOOT] is False, "booted by BIOS"
    assert facts()[SECURE_BOOT] is None
    assert key_enrolled("/var/lib/shim-signed/mok/MOK.der is already enrolled\n") is True
    assert key_enrolled("/var/lib/shim-signed/mok/MOK.der is not enrolled\n") is False
    assert key_enrolled("") is None


def test_offers_of_ubuntu() -> None:
    names = "nvidia-driver-550-server\nnvidia-fabricmanager-580\nlibc6\nnvidia-driver-580-server\n"
    host = facts(
        outputs={
            "apt-cache pkgnames": names,
            "apt-cache policy": (APT / "jammy_policy.txt").read_text(),
            "apt-cache madison nvidia-driver-550-server nvidia-driver-580-server nvidia-fab": (
                APT / "jammy_madison.txt"
            ).read_text(),
            "apt-cache show": (APT / "jammy_show.txt").read_text(),
        }
    )
    offers = {offer.name: offer for offer in host[package_offers("test", "nvidia-.*")]}
    assert len(offers) == 3
    assert offers["nvidia-driver-550-server"] == PackageOffer(
        "nvidia-driver-550-server", "550.163.01-0ubuntu0.22.04.2", "Ubuntu", "nvidia-driver-570-server"
    )
    assert offers["nvidia-fabricmanager-580"].version == SERVER
    assert f"nvidia-utils-580-server (= {SERVER})" in offers["nvidia-driver-580-server"].depends
    assert host[package_offers("none", "no-such-.*")] == ()


def test_offers_of_several_repositories() -> None:
    cuda = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64"
    other = "https://mirror.example/cuda"
    ubuntu = "550.163.01-0ubuntu0.22.04.2"
    text = f"""\
nvidia-driver-550 | 550.163.01-0ubuntu1 | {cuda}  Packages
nvidia-driver-550 | 550.90.07-0ubuntu1 | {other}  Packages
nvidia-driver-550 | {ubuntu} | http://archive.ubuntu.com/ubuntu jammy-updates/restricted amd64 Packages
nvidia-driver-550 | {ubuntu} | http://security.ubuntu.com/ubuntu jammy-security/restricted amd64 Packages
nvidia-driver | 550.163.01-0ubuntu0.22.04.2 | http://deb.debian.org/debian bookworm/non-free Sources
"""
    known = origins(f"""\
 500 {cuda}  Packages
     release o=NVIDIA,l=NVIDIA CUDA,c=
     origin developer.download.nvidia.com
 500 http://security.ubuntu.com/ubuntu jammy-security/restricted amd64 Packages
     release v=22.04,o=Ubuntu,a=jammy-security,n=jammy,l=Ubuntu,c=restricted,b=amd64
 500 http://archive.ubuntu.com/ubuntu jammy-updates/restricted amd64 Packages
     release v=22.04,o=Ubuntu,a=jammy-updates,n=jammy,l=Ubuntu,c=restricted,b=amd64
""")
    assert [(offer.version, offer.origin) for offer in madison(text, known, {})] == [
        ("550.163.01-0ubuntu1", "NVIDIA"),
        ("550.90.07-0ubuntu1", "mirror.example"),
        (ubuntu, "Ubuntu"),
    ]


def test_held_packages() -> None:
    host = facts(outputs={"apt-mark showhold": "nvidia-driver-550-server\nlinux-image-azure\n"})
    assert host[HELD_PACKAGES] == {"nvidia-driver-550-server", "linux-image-azure"}


def test_unattended_upgrades() -> None:
    dump = """\
APT::Periodic::Unattended-Upgrade "1";
Unattended-Upgrade::Package-Blacklist "";
Unattended-Upgrade::Package-Blacklist:: "nvidia-driver-550-server$";
Unattended-Upgrade::Package-Blacklist:: "libnvidia-";
Unattended-Upgrade::Package-Blacklist:: "(broken";
"""
    found = apt_config(dump)
    assert found == UnattendedUpgrades(
        enabled=True, excluded=("nvidia-driver-550-server$", "libnvidia-", "(broken")
    )
    assert found.leaves_alone(["nvidia-driver-550-server", "libnvidia-compute-550-server"])
    assert not found.leaves_alone(["nvidia-driver-550-server-open"])
    assert apt_config('APT::Periodic::Unattended-Upgrade "0";') == UnattendedUpgrades(enabled=False)
    outputs = {"apt-config": dump}
    assert not facts(outputs=outputs)[UNATTENDED_UPGRADES].enabled, "configured, but not installed"
    assert facts({"/usr/bin/unattended-upgrade": ""}, outputs)[UNATTENDED_UPGRADES].enabled


def test_kernel_headers() -> None:
    outputs = {"uname -r": "6.8.0-1021-azure\n"}
    modules = {"/lib/modules/6.8.0-1021-azure/kernel/drivers/net/veth.ko": ""}
    makefile = {"/lib/modules/6.8.0-1021-azure/build/Makefile": ""}
    assert facts(modules | makefile, outputs)[KERNEL_HEADERS] is True
    assert facts(modules, outputs)[KERNEL_HEADERS] is False
    assert facts({}, outputs)[KERNEL_HEADERS] is None, "a container"
    assert facts()[KERNEL_HEADERS] is None


def test_services() -> None:
    running = (
        "LoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\nResult=success\n"
    )
    assert systemctl_show(running) == ServiceState(active=True, enabled=True, result="success")
    failed = "LoadState=loaded\nActiveState=failed\nUnitFileState=disabled\nResult=exit-code\n"
    assert systemctl_show(failed) == ServiceState(
        active=False, enabled=False, failed=True, result="exit-code"
    )
    assert systemctl_show("LoadState=not-found\nActiveState=inactive\nResult=success\n") is None
    assert facts()[service("nvidia-fabricmanager")] is None


def test_gpu_processes() -> None:
    assert compute_apps("812, /usr/bin/python3\n77, [Not Found]\nNo devices were found\n") == {
        812: "python3",
        77: "",
    }
    assert device_holders("/proc/812/fd/5\n/proc/812/fd/6\n/proc/31/fd/9\nfind: x\n") == (31, 812)
    host = facts(
        {"/proc/31/comm": "nv-fabricmanage\n", "/proc/900/comm": "Xorg\n"},
        {
            "nvidia-smi": "812, /usr/bin/python3\n",
            "sh -c find": "/proc/31/fd/9\n/proc/812/fd/5\n/proc/900/fd/1\n",
        },
    )
    assert host[GPU_PROCESSES] == (
        GpuProcess(31, "nv-fabricmanage"),
        GpuProcess(812, "python3"),
        GpuProcess(900, "Xorg"),
    )
    assert [process.name for process in host[GPU_PROCESSES] if process.is_workload] == ["python3", "Xorg"]
    assert str(GpuProcess(812, "python3")) == "python3 (process 812)"
    assert facts()[GPU_PROCESSES] == ()


def test_health_of_an_h100() -> None:
    text = (HERE / "h100_nvidia_smi_q.xml").read_text()
    (gpu,) = facts(outputs={"nvidia-smi -q -x": text})[GPU_HEALTH]
    assert gpu == GpuHealth(
        bus_id="0000:00:06.0",
        ecc=True,
        uncorrected=0,
        uncorrected_ever=0,
        remapping_pending=False,
        remapping_failed=False,
        mig=False,
        mig_pending=False,
        persistence=True,
    )
    sick = (
        text.replace("<dram_uncorrectable>0<", "<dram_uncorrectable>3<")
        .replace("<remapped_row_failure>No<", "<remapped_row_failure>Yes<")
        .replace("hw_thermal_slowdown>Not Active<", "hw_thermal_slowdown>Active<")
        .replace("<pending_mig>Disabled<", "<pending_mig>Enabled<")
        .replace("<persistence_mode>Enabled<", "<persistence_mode>N/A<")
    )
    sick = re.sub(r"(<applications_clocks>\s*<graphics_clock>)1980", r"\g<1>1200", sick)
    (gpu,) = smi_xml(sick)
    assert (gpu.uncorrected, gpu.remapping_failed, gpu.mig_pending, gpu.persistence) == (3, True, True, None)
    assert gpu.throttled == ("hw_thermal_slowdown",)
    assert gpu.graphics_clock_cap_mhz == 1200
    assert smi_xml(text[: len(text) // 2]) == ()


def test_health_of_two_h200_of_which_one_is_at_its_power_limit() -> None:
    text = (HERE / "h200_x2_nvidia_smi_q.xml").read_text()
    loaded, idle = facts(outputs={"nvidia-smi -q -x": text})[GPU_HEALTH]
    assert (loaded.bus_id, idle.bus_id) == ("0000:00:06.0", "0000:00:07.0")
    assert "<clocks_event_reason_sw_power_cap>Active<" in text
    assert loaded.throttled == idle.throttled == ()  # as any GPU at work is: no fault
    assert replace(loaded, bus_id=idle.bus_id) == idle
    limit = "<current_power_limit>700.00 W<"
    for changed in (
        text.replace(limit, "<current_power_limit>450.00 W<"),
        text.replace("<default_power_limit>700.00 W<", "<default_power_limit>N/A<"),
    ):
        assert [gpu.throttled for gpu in smi_xml(changed)] == [("sw_power_cap",), ()]
    older = text.replace("gpu_power_readings>", "power_readings>").replace(
        "current_power_limit>", "power_limit>"
    )
    assert smi_xml(older)[0].throttled == ()
    assert (idle.ecc, idle.uncorrected, idle.mig, idle.persistence) == (True, 0, False, True)


def test_memory_of_two_h200_of_which_one_is_busy() -> None:
    answer = (
        "0, GPU-892e6585-0e5d-396e-9b84-85d3b8d74b5c, 143771, 6116\n"
        "1, GPU-b7cbd66a-0f12-03c4-cd08-27345c7ef73a, 143771, 143156\n"
    )
    busy, free = facts(outputs={"nvidia-smi --query-gpu": answer})[GPU_MEMORY]
    assert (busy.index, busy.free_bytes) == (0, 6116 * 1024**2)
    assert (free.uuid, free.total_bytes) == ("GPU-b7cbd66a-0f12-03c4-cd08-27345c7ef73a", 143771 * 1024**2)


def test_cuda_of_two_h200() -> None:
    host = facts(outputs={"nvidia-smi": (HERE / "h200_x2_nvidia_smi.txt").read_text()})
    assert host[CUDA_VERSION] == "13.0"
    assert smi_xml("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.") == ()


def test_health_that_nobody_tells() -> None:
    gpu = '<gpu id="00000000:3B:00.0"><ecc_mode><current_ecc>N/A</current_ecc></ecc_mode></gpu>'
    assert smi_xml(f"<nvidia_smi_log>{gpu}</nvidia_smi_log>") == (GpuHealth(bus_id="0000:3b:00.0"),)


@pytest.mark.parametrize(
    ("pci_id", "expected", "open_only", "imex"),
    [
        ("0x15f8", Generation.BEFORE_VOLTA, False, False),  # P100
        ("0x1db5", Generation.VOLTA, False, False),  # V100
        ("0x1eb8", Generation.TURING, False, False),  # T4
        ("0x20b2", Generation.AMPERE, False, False),  # A100
        ("0x2236", Generation.AMPERE, False, False),  # A10
        ("0x27b8", Generation.ADA, False, False),  # L4
        ("0x2330", Generation.HOPPER, False, False),  # H100
        ("0x2342", Generation.HOPPER, True, False),  # GH200
        ("0x2901", Generation.BLACKWELL, True, False),  # B200
        ("0x2941", Generation.BLACKWELL, True, True),  # GB200
        ("0x31c2", Generation.BLACKWELL, True, True),  # GB300
        ("0x2b85", Generation.BLACKWELL, True, False),  # RTX 5090
        ("0x9999", None, False, False),
        ("", None, False, False),
        (None, None, False, False),
    ],
)
def test_generations(pci_id: str | None, expected: Generation | None, open_only: bool, imex: bool) -> None:  # noqa: FBT001
    assert generation(pci_id) is expected
    assert needs_open_module(pci_id) is open_only
    assert needs_imex(pci_id) is imex


def test_switches_behind_a_bridge() -> None:
    files = {
        "/sys/class/infiniband/mlx5_0/device/vpd": "\x82ConnectX-7\0V3SMDL=SW_MNG\0",
        "/sys/class/infiniband/mlx5_1/device/vpd": "\x82ConnectX-7 HHHL\0",
        "/sys/class/infiniband/mlx5_2/ports": "",
    }
    assert facts(files)[NVSWITCH_BRIDGES] == 1
    assert facts({"/sys/class/net/lo": ""})[NVSWITCH_BRIDGES] == 0
    assert facts()[NVSWITCH_BRIDGES] is None


def test_toolkits() -> None:
    version = '{"cuda": {"name": "CUDA SDK", "version": "12.4.0"}}'
    files = {
        "/usr/local/cuda-12.4/version.json": version,
        "/usr/local/cuda-12.4/bin/nvcc": "",
        "/usr/local/cuda-11.8/version.json": version.replace("12.4.0", "11.8.20220929"),
        "/usr/local/cuda-13.1/version.json": version[:20],
        "/usr/local/cuda/version.json": version,
    }
    assert facts(files)[CUDA_TOOLKITS] == (
        CudaToolkit("/usr/local/cuda-11.8", "11.8.20220929", complete=False),
        CudaToolkit("/usr/local/cuda-12.4", "12.4.0"),
    )
    assert toolkit_version("{}") is None
    assert toolkit_version('{"cuda": {"version": 12}}') is None


@pytest.mark.parametrize(
    ("on_path", "folders"),
    [("", ["/usr/local/cuda-13.0"]), ("/usr/local/cuda-13.0", ["/usr/local/cuda-13.0"]),
     ("/opt/nvidia/cu13", ["/usr/local/cuda-13.0", "/opt/nvidia/cu13"]), ("/usr/local", None)],
)  # fmt: skip
def test_toolkits_of_single_packages(on_path: str, folders: list[str] | None) -> None:
    """NVIDIA's cuda-nvcc-13-0 has no version.json, and an environment's toolkit is anywhere."""
    told = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.48\n"
    files = {"/usr/local/cuda-13.0/bin/nvcc": "", "/usr/local/cuda-12.1/lib64/libcudart.so": ""}
    outputs = {
        " ".join(cuda_toolkits._WHICH): f"{on_path}/bin/nvcc\n" if on_path else "",
        "/usr/local/cuda-13.0/bin/nvcc --version": told,
        "/opt/nvidia/cu13/bin/nvcc --version": told,
    }
    found = facts(files, outputs)[CUDA_TOOLKITS]
    assert found == tuple(CudaToolkit(one, "13.0.48") for one in folders or ["/usr/local/cuda-13.0"])


class _Pynvml:
    """nvidia-ml-py with given answers; ``error`` is raised by the first call of NVML."""

    class NVMLError(Exception):
        pass

    def __init__(self, error: str = "", *, late: bool = False) -> None:
        self.error, self.late, self.ended = error, late, False

    def nvmlInit(self) -> None:  # noqa: N802
        if self.error and not self.late:
            raise self.NVMLError(self.error)

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.ended = True

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        if self.error:
            raise self.NVMLError(self.error)
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> Any:  # noqa: N802
        return b"NVIDIA A100-SXM4-40GB" if handle else "NVIDIA A100-SXM4-80GB"

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"550.90.07"

    def __getattr__(self, name: str) -> Any:
        raise self.NVMLError(f"no {name}")


def test_nvml() -> None:
    assert ask_nvml(_Pynvml()) == Nvml("550.90.07", ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB"))
    mismatch = "Driver/library version mismatch"
    assert ask_nvml(_Pynvml(mismatch)) == Nvml(error=mismatch)
    lost = _Pynvml("GPU is lost", late=True)
    assert ask_nvml(lost) == Nvml(error="GPU is lost")
    assert lost.ended
    assert facts()[NVML] is None


def test_gpus_are_known_before_their_driver() -> None:
    assert gpu_name_of("0x1eb8") == "Tesla T4"
    assert gpu_name_of("0xffff") is None
    assert first_driver("0x3182") == "580.82.07"
    assert first_driver("0x232c", "550") == "550.127.08", "a newer branch knew it later"
    assert first_driver("0x232c") == "535.216.03"
    assert first_driver("0x20b2", "550") == ""
    assert is_vgpu("0x2236", "0x14bb")
    assert not is_vgpu("0x2236", "0x1482")
    files = {"vendor": "0x10de", "class": "0x030200", "device": "0x2236", "subsystem_device": "0x14bb"}
    (gpu,) = pci_gpus({"0002:00:00.0": files})
    assert gpu.subsystem == "0x14bb"
    answered = Gpu(bus_id="0002:00:00.0", name="NVIDIA A10-8Q", driver="550.144.06")
    assert merge_gpus((gpu,), (answered,))[0].subsystem == "0x14bb"
