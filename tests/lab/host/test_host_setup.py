"""A bare GPU host is prepared for GPU containers, with stand-ins for NVIDIA's software.

systemd, apt, dpkg and Docker are real; NVIDIA's packages, module, tools and GPUs are not. The tests prove the
agent's actions and their order, not that NVIDIA's software then works.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.lab.host.agent_runs import (
    await_resumed_run,
    element,
    latest_run,
    needs_types,
    planned_steps,
    profile_with,
    run_until,
)
from tests.lab.host.lab_host import Hardware
from tests.lab.host.web.content import CUDA_REPOSITORY
from tests.lab.host.web.nvidia_packages import NVIDIA_ALONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.host.lab_host import LabHost

pytestmark = [
    pytest.mark.lab,
    needs_types("DockerInstallation", "NvidiaCudaInstallation", "NvidiaContainerToolkitInstallation"),
]

PROFILE = Path(__file__).parents[3] / "profiles" / "SETUP-GPU-NVIDIA.yaml"
DAEMON_CONFIG = "/etc/docker/daemon.json"
RUNFILES = "https://developer.download.nvidia.com/compute/cuda"
KEYS = {
    "DockerInstallation": "https://download.docker.com/linux/ubuntu/gpg",
    "NvidiaContainerToolkitInstallation": "https://nvidia.github.io/libnvidia-container/gpgkey",
}
"""Settings without the publishers' fingerprints, because the lab signs with its own keys."""


def docker(**parameters: Any) -> dict[str, Any]:
    return element("DockerInstallation", "docker", KeyUri=KEYS["DockerInstallation"], **parameters)


def driver(version: str, **parameters: Any) -> dict[str, Any]:
    return element(
        "NvidiaCudaInstallation", "cuda", LinuxDriverVersion=version, CudaRequired=False, **parameters
    )


def toolkit(**parameters: Any) -> dict[str, Any]:
    name = "NvidiaContainerToolkitInstallation"
    return element(name, "toolkit", KeyUri=KEYS[name], **parameters)


def shipped_profile(host: LabHost) -> str:
    """Return the shipped profile on a host, unchanged except for the keys."""
    content = yaml.safe_load(PROFILE.read_text())
    for part in content["dependencies"]:
        if key := KEYS.get(part["type"]):
            part["parameters"]["keyUri"] = key
    host.put(f"/root/{PROFILE.name}", yaml.safe_dump(content))
    return f"/root/{PROFILE.name}"


def cuda(runfile: str, version: str, branch: str) -> dict[str, Any]:
    release = runfile.split("_")[1]
    return element(
        "NvidiaCudaInstallation",
        "cuda",
        LinuxDriverVersion=branch,
        LinuxCudaVersion=version,
        LinuxLocalRunFile=f"{RUNFILES}/{release}/local_installers/{runfile}",
    )


def check_working(host: LabHost, version: str) -> None:
    """Check that every part has the version and answers, also after a reboot."""
    listed = host.run("nvidia-smi --query-gpu=driver_version --format=csv,noheader").stdout.split()
    assert listed == [version] * 8
    assert host.run("systemctl is-active nvidia-fabricmanager docker").stdout.split() == ["active"] * 2
    assert version in host.run("nv-fabricmanager --version").stdout
    held = host.run("apt-mark showhold").stdout.split()
    assert any(name.startswith("libnvidia-compute-") for name in held)
    assert any(name.startswith("nvidia-dkms-") for name in held)
    assert any(name.startswith("nvidia-fabricmanager-") for name in held)


def test_a_fresh_host_is_set_up_and_then_left_alone(lab_host: LabHost) -> None:
    lab_host.put(DAEMON_CONFIG, '{"log-driver": "journald", "max-concurrent-downloads": 5}')
    runfile = f"{RUNFILES}/12.4.0/local_installers/cuda_12.4.0_550.54.14_linux.run"
    chosen = (
        f"LinuxDriverVersion=550,,,CudaRequired=true,,,LinuxCudaVersion=12.4,,,LinuxLocalRunFile={runfile}"
    )
    profile, options = shipped_profile(lab_host), ("--parameters", chosen)
    result = lab_host.vcagent("--profile", profile, *options)
    assert result.returncode == 0, result.stdout + result.stderr
    check_working(lab_host, "550.127.05")
    proof = latest_run(lab_host)["steps"][-1]
    assert [proof["name"], proof["status"]] == ["proof", "done"]
    assert "8 GPU" in proof["message"]

    config = json.loads(lab_host.read(DAEMON_CONFIG))
    assert config.pop("runtimes").keys() == {"nvidia"}
    assert config == {"log-driver": "journald", "max-concurrent-downloads": 5}
    assert "release 12.4" in lab_host.run(". /etc/profile && nvcc").stdout

    before = lab_host.boot(), lab_host.run("systemctl show docker -p ActiveEnterTimestampMonotonic").stdout
    assert planned_steps(lab_host, profile, *options) == []
    lab_host.vcagent("--profile", profile, "--yes", *options, check=True)
    assert before == (
        lab_host.boot(),
        lab_host.run("systemctl show docker -p ActiveEnterTimestampMonotonic").stdout,
    )


def test_a_host_without_a_network_is_set_up_from_a_bundle(
    make_host: Callable[[Hardware], LabHost], tmp_path: Path
) -> None:
    maker, host = make_host(Hardware(gpus=0, nvswitches=0)), make_host(Hardware())
    maker.vcagent("--profile", profile_with(maker, [docker()]), check=True)  # for the image of the proof
    # A host has NVIDIA's repository; a machine that makes a bundle has not, and checks the publisher's key.
    key = f"InstallNvidiaCuda.keyUri=https://{CUDA_REPOSITORY}/3bf863cc.pub"
    chosen = ("--parameters", "LinuxDriverVersion=550", "--set", key)
    kernel = maker.run(["uname", "-r"]).stdout.strip()
    options = ("--platform", "ubuntu-24.04-x64", "--kernel", kernel, "--output", "/root/bundle")
    maker.vcagent("bundle", "--profile", shipped_profile(maker), *chosen, *options, check=True)
    maker.engine.docker("cp", f"{maker.name}:/root/bundle", tmp_path)
    host.engine.docker("cp", tmp_path / "bundle", f"{host.name}:/root/bundle")
    host.run("ip link set eth0 down")
    assert host.run("ip route").stdout == ""

    profile, use = shipped_profile(host), (*chosen, "--bundle", "/root/bundle")
    other = host.vcagent("plan", "--profile", profile, *use, "--set", "InstallDocker.version=27.3.1")
    assert other.returncode == 4, other.stdout + other.stderr
    assert "lacks deb docker-ce=5:27.3.1-*" in other.stdout
    ended = host.vcagent("--profile", profile, *use)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    check_working(host, "550.127.05")
    proof = latest_run(host)["steps"][-1]
    assert [proof["name"], proof["status"]] == ["proof", "done"]
    assert "8 GPU" in proof["message"]
    assert planned_steps(host, profile, *use) == []
    assert host.run("ls /etc/apt/sources.list.d").stdout == ""


def test_another_version_is_put_in_place_over_a_reboot_that_resumes_itself(lab_host: LabHost) -> None:
    old = profile_with(lab_host, [docker(), driver("550.90.07"), toolkit()], name="OLD")
    lab_host.vcagent("--profile", old, check=True)
    check_working(lab_host, "550.90.07")
    new = profile_with(lab_host, [docker(), driver("570"), toolkit()], name="NEW")
    left = lab_host.vcagent("--profile", new)
    assert left.returncode == 8, left.stdout + left.stderr
    assert "550.90.07" in lab_host.read("/proc/driver/nvidia/version"), "nobody has rebooted it"

    boot = lab_host.boot()
    lab_host.vcagent("resume", "--yes")
    lab_host.wait_until_booted(boot)
    run = await_resumed_run(lab_host)
    assert run["exit_code"] == 0, run["exit_reason"]
    assert run["steps"][-1]["name"] == "proof"
    check_working(lab_host, "570.86.15")
    packages = lab_host.run("dpkg-query -W -f '${Package} ${db:Status-Abbrev}\\n' '*nvidia*'").stdout
    assert not [line for line in packages.splitlines() if "550" in line and line.endswith("ii ")]
    assert planned_steps(lab_host, new) == []


def test_nouveau_gives_way_over_a_reboot(make_host: Callable[[Hardware], LabHost]) -> None:
    host = make_host(Hardware(nouveau=True))
    profile = profile_with(host, [driver("550"), docker(), toolkit()])
    boot = host.boot()
    host.vcagent("--profile", profile, "--yes")
    host.wait_until_booted(boot)
    run = await_resumed_run(host)
    assert run["exit_code"] == 0, run["exit_reason"]
    check_working(host, "550.127.05")
    assert planned_steps(host, profile) == []


def test_a_fabric_manager_that_drifted_is_brought_back(lab_host: LabHost) -> None:
    profile = profile_with(lab_host, [driver("550")])
    lab_host.vcagent("--profile", profile, check=True)
    lab_host.run("apt-mark unhold nvidia-fabricmanager-550")
    older = "nvidia-fabricmanager-550=550.90.07-0ubuntu0.24.04.1"
    lab_host.run(f"apt-get install -qq --allow-downgrades {older}")
    assert lab_host.run("systemctl restart nvidia-fabricmanager", check=False).returncode != 0
    lab_host.vcagent("--profile", profile, check=True)
    lab_host.run("systemctl is-active nvidia-fabricmanager")
    assert "550.127.05" in lab_host.run("nv-fabricmanager --version").stdout
    assert planned_steps(lab_host, profile) == []


def test_a_driver_that_nvidia_alone_has_and_all_of_it_taken_back(lab_host: LabHost) -> None:
    key = f"https://{CUDA_REPOSITORY}/3bf863cc.pub"
    profile = profile_with(lab_host, [driver(NVIDIA_ALONE, KeyUri=key)])
    planned = planned_steps(lab_host, profile)
    assert [step.partition(" ")[2] for step in planned[:5]] == [
        *("update", "key", "repository", "refresh", "driver")
    ]
    run_until(lab_host, ["--profile", profile], "cuda: refresh")
    lab_host.vcagent("resume", check=True)
    check = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
    assert lab_host.run(check).stdout.split() == [NVIDIA_ALONE] * 8
    lab_host.run("systemctl is-active nvidia-fabricmanager")
    assert planned_steps(lab_host, profile) == []

    lab_host.vcagent("clean", "--dependencies", "--yes", check=True)
    assert not lab_host.exists("/etc/apt/sources.list.d/vcagent-nvidia-cuda.sources")
    assert not lab_host.exists("/etc/apt/keyrings/vcagent-nvidia-cuda.gpg")
    assert lab_host.run("apt-mark showhold").stdout == ""
    packages = lab_host.run("dpkg-query -W -f '${Package} ${db:Status-Abbrev}\\n' '*nvidia*'", check=False)
    assert not [line for line in packages.stdout.splitlines() if line.endswith("ii ")]


def test_a_malformed_daemon_json_is_refused_and_not_touched(lab_host: LabHost) -> None:
    malformed = '{"data-root": "/srv/docker",}\n'
    lab_host.put(DAEMON_CONFIG, malformed)
    packages = lab_host.run("dpkg-query -W").stdout
    result = lab_host.vcagent("--profile", profile_with(lab_host, [docker()]))
    assert result.returncode == 4, result.stdout + result.stderr
    assert "malformed" in result.stdout + result.stderr
    assert lab_host.read(DAEMON_CONFIG) == malformed
    assert lab_host.run("dpkg-query -W").stdout == packages


def test_the_power_may_fail_at_any_step(lab_host: LabHost) -> None:
    profile = profile_with(lab_host, [docker(), driver("550"), toolkit()])
    first, *others = (
        "docker: repository",
        "docker: install",
        "cuda: driver",
        "cuda: hold",
        "toolkit: daemon",
    )
    run_until(lab_host, ["--profile", profile], first)
    for step in (*others, "toolkit: proof"):
        run_until(lab_host, ["resume"], step)
    lab_host.vcagent("resume", check=True)
    check_working(lab_host, "550.127.05")
    assert planned_steps(lab_host, profile) == []
    assert lab_host.run("dpkg --audit").stdout == ""


def test_runfiles_that_are_cut_or_fail(lab_host: LabHost) -> None:
    failing = profile_with(lab_host, [cuda("cuda_12.4.1_550.54.15_linux.run", "12.4", "550")])
    failed = lab_host.vcagent("--profile", failing)
    assert failed.returncode == 5
    assert "Unable to build the kernel module" in failed.stdout + failed.stderr
    cut = profile_with(lab_host, [cuda("cuda_12.8.0_570.86.10_linux.run", "12.8", "")], name="CUT")
    boot = lab_host.boot()
    lab_host.vcagent("--profile", cut, "--yes")
    lab_host.wait_until_booted(boot)
    assert await_resumed_run(lab_host)["exit_code"] == 0
    assert lab_host.read("/usr/local/cuda-12.8/version.json").count("12.8.0") == 1
    assert planned_steps(lab_host, cut) == []
