"""The lab itself: the stand-ins behave like the real programs in every way that matters to the installers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.lab.host.lab_host import Hardware
from tests.lab.host.packages import DOWNLOAD, add_repository, install
from tests.lab.host.web.content import (
    CUDA_REPOSITORY,
    DOCKER_REPOSITORY,
    OTHER_REPOSITORY,
    TOOLKIT_REPOSITORY,
    UNSIGNED_REPOSITORY,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.host.lab_host import LabHost

pytestmark = pytest.mark.lab

RUNFILES = "https://developer.download.nvidia.com/compute/cuda"


def test_a_driver_is_loaded_by_a_reboot_and_the_fabric_manager_wants_its_version(lab_host: LabHost) -> None:
    assert lab_host.run("nvidia-smi", check=False).returncode == 127
    lab_host.run("apt-get update -qq")
    old = "550.90.07-0ubuntu0.24.04.1"
    names = "driver", "dkms", "kernel-common", "utils"
    pins = [f"nvidia-{name}-550-server={old}" for name in names] + [f"libnvidia-compute-550-server={old}"]
    install(lab_host, *pins, f"nvidia-fabricmanager-550={old}")
    assert "Driver Version: 550.90.07" in lab_host.run("nvidia-smi").stdout
    assert lab_host.run("nvidia-smi -L").stdout.count("H100") == 8
    lab_host.run("systemctl start nvidia-fabricmanager")

    install(lab_host, "nvidia-driver-550-server", "nvidia-fabricmanager-550")
    assert "550.90.07" in lab_host.read("/proc/driver/nvidia/version")
    mismatch = lab_host.run("nvidia-smi", check=False)
    assert mismatch.returncode == 18
    assert "Driver/library version mismatch" in mismatch.stdout
    assert lab_host.run("systemctl restart nvidia-fabricmanager", check=False).returncode != 0
    assert "don't match with driver version" in lab_host.run("journalctl -u nvidia-fabricmanager").stdout

    lab_host.reboot()
    query = "--query-gpu=pci.bus_id,driver_version,mig.mode.current,nonsense --format=csv,noheader"
    first, *others = lab_host.run(f"nvidia-smi {query}").stdout.splitlines()
    assert first == "00000000:11:00.0, 550.127.05, Disabled, [N/A]"
    assert len(others) == 7
    lab_host.run("systemctl restart nvidia-fabricmanager")


def test_nouveau_holds_the_gpus_until_the_initramfs_says_no(make_host: Callable[[Hardware], LabHost]) -> None:
    host = make_host(Hardware(gpus=1, nvswitches=0, nouveau=True))
    host.run("apt-get update -qq")
    install(host, "nvidia-driver-570-server-open", "nvidia-fabricmanager-570")
    assert "couldn't communicate" in host.run("nvidia-smi", check=False).stdout
    host.put("/etc/modprobe.d/blacklist-nouveau.conf", "blacklist nouveau\noptions nouveau modeset=0\n")
    host.reboot()
    assert host.run("nvidia-smi", check=False).returncode == 9
    host.run("update-initramfs -u")
    host.reboot()
    assert "570.86.15" in host.run("nvidia-smi").stdout
    assert "Open Kernel Module" in host.read("/proc/driver/nvidia/version")
    assert host.run("systemctl start nvidia-fabricmanager", check=False).returncode != 0, "there is no switch"


def test_docker_runs_inside_and_gives_gpus_to_a_container(lab_host: LabHost) -> None:
    add_repository(lab_host, "docker", f"{DOCKER_REPOSITORY}/gpg", f"{DOCKER_REPOSITORY} noble stable")
    install(lab_host, "docker-ce=5:26.1.4-1~ubuntu.24.04~noble", "nvidia-driver-550-server")
    run = "docker run --rm --gpus all nvidia/cuda:12.4.1-base-ubuntu22.04 nvidia-smi -L"
    assert "could not select device driver" in lab_host.run(run, check=False).stderr
    toolkit = f"{TOOLKIT_REPOSITORY}/stable/deb/$(ARCH) /"
    add_repository(lab_host, "toolkit", f"{TOOLKIT_REPOSITORY}/gpgkey", toolkit)
    install(lab_host, "nvidia-container-toolkit")
    lab_host.put("/etc/docker/daemon.json", '{"log-driver": "journald"}')
    lab_host.run("nvidia-ctk runtime configure --runtime=docker && systemctl restart docker")
    assert set(json.loads(lab_host.read("/etc/docker/daemon.json"))) == {"log-driver", "runtimes"}
    assert lab_host.run(run).stdout.count("GPU ") == 8
    by_runtime = run.replace("--gpus all", "--runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all")
    assert lab_host.run(by_runtime).stdout.count("GPU ") == 8
    lab_host.run("nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
    assert "nvidia.com/gpu=all" in lab_host.run("nvidia-ctk cdi list").stdout


def test_apt_takes_what_is_signed_and_nothing_else(lab_host: LabHost) -> None:
    lab_host.put("/etc/apt/sources.list.d/unsigned.list", f"deb http://{UNSIGNED_REPOSITORY} /\n")
    assert "is not signed" in lab_host.run("apt-get update 2>&1", check=False).stdout
    lab_host.run("rm /etc/apt/sources.list.d/unsigned.list")
    add_repository(lab_host, "cuda", f"{CUDA_REPOSITORY}/3bf863cc.pub", f"{CUDA_REPOSITORY}/ /")
    add_repository(lab_host, "other", f"{OTHER_REPOSITORY}/key.asc", f"{OTHER_REPOSITORY} /")
    policy = lab_host.run("apt-cache policy nvidia-fabricmanager-550 hello").stdout
    for expected in ("550.127.05-1 ", "550.127.05-0ubuntu0.24.04.1 ", "2.0-1", "1.0-1"):
        assert expected in policy


def test_runfiles_install_a_toolkit_or_say_why_not(lab_host: LabHost) -> None:
    name = "cuda_12.4.0_550.54.14_linux.run"
    lab_host.run(f"python3 -c '{DOWNLOAD}' {RUNFILES}/12.4.0/local_installers/{name} >{name}")
    lab_host.run(f"python3 -c '{DOWNLOAD}' {RUNFILES}/12.4.0/docs/sidebar/md5sum.txt | md5sum -c -")
    lab_host.run(f"sh {name} --silent --toolkit --override --no-man-page --toolkitpath=/usr/local/cuda-12.4")
    assert "release 12.4" in lab_host.run("/usr/local/cuda/bin/nvcc").stdout
    assert "Unrecognized option" in lab_host.run(f"sh {name} --sudo", check=False).stderr
    cut = "cuda_12.8.0_570.86.10_linux.run"
    get = f"python3 -c '{DOWNLOAD}' {RUNFILES}/12.8.0/local_installers/{cut} >{cut}"
    assert "IncompleteRead" in lab_host.run(get, check=False).stderr
    failing = "cuda_12.4.1_550.54.15_linux.run"
    lab_host.run(f"python3 -c '{DOWNLOAD}' {RUNFILES}/12.4.1/local_installers/{failing} >{failing}")
    assert lab_host.run(f"sh {failing} --silent --driver", check=False).returncode == 1
    assert "Unable to build the kernel module" in lab_host.read("/var/log/cuda-installer.log")


def test_a_reboot_is_another_boot(lab_host: LabHost) -> None:
    before = lab_host.boot()
    lab_host.put("/root/kept", "x")
    lab_host.run("touch /run/lost")
    lab_host.run("systemctl reboot", check=False)
    lab_host.wait_until_booted(before)
    assert lab_host.exists("/root/kept")
    assert not lab_host.exists("/run/lost")
